"""Log-ins: after five wrong passwords in a minute, log-ins are locked for 15 minutes.

A correct password gives its attempt back, so users who know theirs are not affected.
A fake clock lets 15 minutes pass immediately.

Run it: python examples/login_lockout.py
"""

from penstock import Limit, Limiter, LimitExceeded, MemoryStore
from penstock.testing import FakeClock

PASSWORDS = {"alice": "correct horse"}

clock = FakeClock()
limiter = Limiter(
    Limit(5, "1m", algorithm="sliding_log", lockout="15m"), store=MemoryStore(clock=clock)
)


def log_in(user: str, password: str, address: str) -> str:
    try:
        with limiter.reserve(f"login:{user}:{address}") as attempt:
            if PASSWORDS.get(user) != password:
                return f"wrong password, {attempt.decision.remaining} more before the lockout"
            attempt.cancel()  # a correct password does not count
            return "welcome"
    except LimitExceeded as error:
        wait = error.decision.retry_after or 0.0
        return f"locked for {wait / 60:.1f} minutes"


print("Alice logs in ten times in a row:")
print("  ", {log_in("alice", "correct horse", "192.0.2.7") for _ in range(10)})

print("An attacker guesses her password:")
for guess in range(1, 8):
    print(f"   guess {guess}:", log_in("alice", f"guess {guess}", "203.0.113.9"))
    clock.advance(2)

print("During the lockout, even the correct password is refused:")
print("  ", log_in("alice", "correct horse", "203.0.113.9"))

print("Alice logs in from another address and is not locked out:")
print("  ", log_in("alice", "correct horse", "192.0.2.7"))

clock.advance(15 * 60)
print("15 minutes later:")
print("  ", log_in("alice", "correct horse", "203.0.113.9"))
