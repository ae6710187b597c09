"""HTTP/1.1: checks as JSON, Envoy's /json, forward auth, health.

Bytes of a connection (`protocol.py`) become an `HttpRequest` (`reader.py`, `framing.py`), which
`routes.py` passes to a handler (`check.py`, `release.py`, `auth.py`, `api.py`); its `HttpResponse`
is encoded by `messages.py`. The JSON of `/v1/check` is read by `check_request.py` and written,
also for a 429, by `check_response.py`. `admin/` and `proxy/` use this wire, too.
"""
