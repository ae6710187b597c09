"""The rate limit service without sockets: messages in, messages out.

`Service` (`service.py`) answers for every wire; the decision itself is made in `rules/deciding`.
`rls_request.py` decodes Envoy's RateLimitRequest and `rls_response.py` writes the
RateLimitResponse; `rls_json.py` does both for JSON. Plain requests
take a short path (`rls_quick.py`), all others the general one (`rls_general.py`). `leases.py` has
the ids with which clients release slots. May import the gate and the metrics, never a wire.
"""
