"""RLQS: one limit, divided among Envoys that decide on their own (rate_limit_quota filter).

Envoy keeps a stream open, reports every 5 s how many requests it has seen in each bucket, and
decides by the token bucket that it was assigned last. The way of a report::

    QuotaStream.receive   messages.py reads it; what is pending is kept by bucket   streams.py
    BucketRules           which limit applies, by the rules of the gate             buckets.py
    Bank.exchange         reserves before anything is sent: account.py is the law,
                          in memory (bank.py), in a file (file_bank.py), or as
                          bank.lua in Redis (redis_bank.py)
    QuotaWire.send        assignments, or a push to others when something became free

`shares.py` has the numbers and says who gets how much. `service.py` has the one loop that asks
the bank. Nothing but the banks reads a clock. docs/design/rlqs.md has the law and its proof.

It may import the gate, the stores and the readers of `service/`, never a wire: `interface.py` is
all that a wire has to know.
"""
