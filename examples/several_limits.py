"""Several limits for one request: units are taken from all of them, or from none.

Run it: python examples/several_limits.py
"""

from penstock import Decision, Limit, Limiter

PER_USER = Limit(3, "minute")
PER_ADDRESS = Limit(5, "minute")
EVERYBODY = Limit(1000, "second")

limiter = Limiter()


def request(user: str, address: str) -> Decision:
    return limiter.hit_all(
        [(f"user:{user}", PER_USER), (f"ip:{address}", PER_ADDRESS), ("all", EVERYBODY)]
    )


print("Two users behind one address: 3 per minute each, 5 per minute together.")
for user in ("ann", "ann", "ann", "ann", "ben", "ben", "ben"):
    decision = request(user, "192.0.2.7")
    if decision:
        print(f"  {user}: allowed; lowest remaining: {decision.remaining} of {decision.limit}")
    else:
        print(f"  {user}: refused by {decision.limit}, retry in {decision.retry_after:.1f} s")

left = limiter.peek("user:ben", PER_USER).remaining
print(f"Ben's last request was refused by the address limit; his own limit still has {left} left.")
