"""Penstock in web frameworks: who is asking, and how they are answered.

The names here are the same in every framework; the middleware is in `asgi`, `wsgi`,
`fastapi`, `flask`, `django` and `grpc`.
"""

from penstock.integrations.keys import (
    by_api_key,
    by_cookie,
    by_header,
    by_ip,
    by_region,
    by_route,
    by_user,
    combined,
)
from penstock.integrations.request import Request, Response

__all__ = [
    "Request",
    "Response",
    "by_api_key",
    "by_cookie",
    "by_header",
    "by_ip",
    "by_region",
    "by_route",
    "by_user",
    "combined",
]
