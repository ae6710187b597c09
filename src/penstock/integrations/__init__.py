"""Penstock in web frameworks and in gRPC: who is asking, and how they are answered.

The names here are the same in every framework. `deciding` decides, and knows no framework.
`asgi`, `wsgi`, `fastapi`, `flask`, `django` and `grpc` translate: a framework's request into
ours, and our answer into the framework's. They import `deciding`; of each other, only
`fastapi` imports `asgi`, and `flask` and `django` import `wsgi`.
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
