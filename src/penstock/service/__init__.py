"""The rate limit service without sockets: messages in, messages out.

`Service` decides for every wire. Envoy's messages are read by `rls_request.py` and written by
`rls_response.py`; plain requests take the short way (`rls_quick.py`), all others the general one
(`rls_general.py`). May import the gate and the metrics, never a wire.
"""
