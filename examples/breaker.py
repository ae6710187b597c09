"""A circuit breaker: stop calling a service that is down, and test it before resuming.

The price service fails for a while. The first calls fail. Then the breaker opens and a stored
price is used immediately. From time to time, one call tests whether the service is back.

Run it: python examples/breaker.py
"""

import time

from penstock.breaker import CircuitBreaker
from penstock.errors import CircuitOpen

START = time.monotonic()
breaker = CircuitBreaker(failures=3, pause=0.2, longest_pause=0.5, name="prices")
breaker.subscribe(lambda event: print(f"        {event.before} -> {event.state}: {event.reason}"))


@breaker
def fetch_price() -> str:
    if 0.1 < time.monotonic() - START < 0.6:
        raise ConnectionError("connection refused")
    return "42.00"


def price() -> str:
    try:
        return fetch_price()
    except CircuitOpen as error:
        return f"41.90, stored (retry in {error.retry_after:.2f} s)"
    except ConnectionError:
        return "41.90, stored (the call failed)"


while time.monotonic() - START < 1.3:
    print(f"{time.monotonic() - START:>5.2f} s  {price()}")
    time.sleep(0.07)
