"""Middleware for web frameworks, and interceptors for gRPC.

`deciding` decides, independently of frameworks. `asgi`, `wsgi`, `fastapi`, `flask`, `django` and
`grpc` translate: the framework's request into ours, and our response into the framework's. They
import `deciding`; `fastapi` also imports `asgi`, and `flask` and `django` import `wsgi`.

Where things are::

    client address, trusted proxies        deciding/identity
    keys: by_ip, by_user, ...              deciding/keys; for gRPC grpc/call
    switched off; options from variables   penstock.switch; deciding/environment
    ambiguous paths; exempt paths          deciding/paths; deciding/exempt
    exempt views, and override             deciding/marked_views
    429: body, headers, Retry-After        deciding/responses; for gRPC grpc/trailers
      of the service: /v1/check, /json     wires/http/check_response; service/rls_json
    fallback and defer instead of 429      deciding/refusals
    LimitExceeded raised in a handler      deciding/error_responses
    headers on every response              headers (asgi, wsgi), view_limit (flask, django)
    count_when and clients that leave      deciding/applied_limits; disconnects (asgi, wsgi)

The names here are the same in every framework.
"""

from penstock.integrations.deciding.identity import Trust
from penstock.integrations.deciding.keys import (
    by_api_key,
    by_cookie,
    by_header,
    by_ip,
    by_region,
    by_route,
    by_user,
    combined,
)
from penstock.integrations.deciding.request import Request, Response

__all__ = [
    "Request",
    "Response",
    "Trust",
    "by_api_key",
    "by_cookie",
    "by_header",
    "by_ip",
    "by_region",
    "by_route",
    "by_user",
    "combined",
]
