"""A Flask application with limits for the application, a view, and failed log-ins.

Run it: python examples/flask_app.py           sends requests to itself, shows the responses
        python examples/flask_app.py --serve   serves at http://127.0.0.1:8000
"""

import sys

from flask import Flask, Response, abort, g, request

from penstock.integrations import Response as Answered
from penstock.integrations import by_user
from penstock.integrations.flask import Penstock, RateLimited

app = Flask(__name__)


@app.before_request
def who() -> None:
    """Takes the place of a real log-in."""
    g.user = request.headers.get("X-User")


penstock = Penstock(app, "100/minute", name="all", exempt=["/health"])


def failed(response: Answered) -> bool:
    return response.status == 401


@app.get("/search/<word>")
@penstock.limit("3/second", key=by_user)
def search(word: str) -> list[str]:
    return [f"{word} {number}" for number in range(3)]


@app.post("/log-in")
@penstock.limit("3/minute lockout 15m", count_when=failed)
def log_in() -> str:
    if request.form["password"] != "open sesame":
        abort(401)
    return "welcome"


@app.get("/health")
def health() -> str:
    return "fine"


@app.errorhandler(429)
def slow_down(error: RateLimited) -> tuple[str, int]:
    return "slow down, please", 429


def show(answer: Response) -> None:
    text = answer.get_data(as_text=True).strip()
    print(f"  {answer.status_code}  {text.splitlines()[0]:<50} {answer.headers.get('RateLimit')}")


def ask_ourselves() -> None:
    client = app.test_client()
    for name in ("ada", "bob"):
        print(f"{name} searches, at most three times per second:")
        for _ in range(4):
            show(client.get("/search/penstock", headers={"X-User": name}))
    print("Only wrong passwords count; after the third, log-ins are locked for 15 minutes:")
    for word in ("open sesame", "guess", "guess", "guess", "open sesame"):
        answer = client.post("/log-in", data={"password": word})
        print(f"  {answer.status_code}  {word:<12} retry after", answer.headers.get("Retry-After"))
    print("This path is exempt:")
    show(client.get("/health"))


if __name__ == "__main__":
    if "--serve" in sys.argv:
        app.run(port=8000)
    else:
        ask_ourselves()
