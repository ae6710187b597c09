"""LLM tokens: reserve the tokens that a call may use, then settle for the actual use.

The number of tokens in the response is unknown before the call. Reserving the maximum
enforces the limit, and settling gives the rest back.

Run it: python examples/llm_tokens.py
"""

from dataclasses import dataclass

from penstock import Limiter, LimitExceeded

limiter = Limiter("10_000/minute")


@dataclass
class Answer:
    text: str
    tokens: int


def call_the_model(prompt: str, max_tokens: int) -> Answer:
    """Takes the place of a real model."""
    if "fail" in prompt:
        raise ConnectionError("the model hung up")
    return Answer("42", tokens={"short": 700, "long": 4600}.get(prompt, 3000))


def ask(team: str, prompt: str, max_tokens: int = 4000) -> str:
    try:
        with limiter.reserve(team, cost=max_tokens) as reservation:
            answer = call_the_model(prompt, max_tokens)
            reservation.settle(answer.tokens)
            return f"used {answer.tokens} of the {max_tokens} reserved"
    except LimitExceeded as error:
        return f"not sent: wait {error.decision.retry_after:.0f} s"
    except ConnectionError as error:
        return f"{error}: everything was given back"


for prompt in ("short", "fail", "long", "medium", "medium"):
    outcome = ask("team:blue", prompt)
    left = limiter.peek("team:blue").remaining
    print(f"{prompt:<7} {outcome:<46} {left:>6} tokens left")
