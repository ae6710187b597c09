"""Several limits on one request: all of them pass, or nothing is taken from any.

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


print("Two users behind one address: 3 a minute each, 5 a minute together.")
for user in ("ann", "ann", "ann", "ann", "ben", "ben", "ben"):
    decision = request(user, "192.0.2.7")
    if decision:
        print(f"  {user}: allowed; {decision.limit} has the least left: {decision.remaining}")
    else:
        print(f"  {user}: refused by {decision.limit} for {decision.retry_after:.1f} s")

left = limiter.peek("user:ben", PER_USER).remaining
print(
    f"Ben's last request was refused for the address, so his own limit kept its unit: {left} left."
)
