"""The first limit: three requests a minute for each user.

Run it: python examples/quickstart.py
"""

from penstock import Limiter

limiter = Limiter("3/minute")

print("Alice asks five times, the limit is 3 a minute:")
for attempt in range(1, 6):
    decision = limiter.hit("user:alice")
    if decision:
        print(f"  {attempt}. allowed, {decision.remaining} left")
    else:
        print(f"  {attempt}. refused, try again in {decision.retry_after:.1f} s")

print("Bob has a key of his own, so he is not affected:")
print(f"  {limiter.hit('user:bob')}")

print("Looking takes nothing:")
print(f"  {limiter.peek('user:bob')}")
