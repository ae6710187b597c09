"""HTTP/1.1: checks as JSON, Envoy's /json, forward auth, health.

Bytes of a connection (`protocol.py`) become an `HttpRequest` (`reader.py`, `framing.py`), which
`routes.py` passes to a handler (`check.py`, `auth.py`, `api.py`); its `HttpResponse` is encoded by
`messages.py`. `admin/` and `proxy/` use this wire, too.
"""
