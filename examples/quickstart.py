"""A first limit: three requests per minute for each user.

Run it: python examples/quickstart.py
"""

from penstock import Limiter

limiter = Limiter("3/minute")

print("Alice sends five requests; the limit is 3 per minute:")
for attempt in range(1, 6):
    decision = limiter.hit("user:alice")
    if decision:
        print(f"  {attempt}. allowed, {decision.remaining} left")
    else:
        print(f"  {attempt}. refused, retry in {decision.retry_after:.1f} s")

print("Bob has his own key, so he is not affected:")
print(f"  {limiter.hit('user:bob')}")

print("peek takes nothing:")
print(f"  {limiter.peek('user:bob')}")
