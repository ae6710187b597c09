"""FastAPI: limits for routes.

>>> from fastapi import FastAPI
>>> from penstock.integrations.fastapi import limit
>>> app = FastAPI()
>>> @app.get("/search")
... @limit("10/second")
... async def search(q: str) -> list[str]: ...

As a dependency it is ``Depends(limit("10/second"))``, for a route, a router or the application.
For the whole application there is also `penstock.integrations.asgi.PenstockMiddleware`.

FastAPI merges a dependency's headers into a handler's response, unless the handler returns a
`Response`. A dependency sees exceptions, but not the status. The decorator sees both. For
dependencies, add the middleware `LimitFields`, which sees every response. The middleware in
`penstock.integrations.asgi` does the same.

`document_limits` shows the limits in the OpenAPI document.
"""

try:
    import fastapi as _fastapi  # noqa: F401 - for the message below
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "FastAPI is not installed: pip install 'penstock[fastapi]'", name=error.name
    ) from error

from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.asgi.headers import LimitFields
from penstock.integrations.deciding.marked_views import exempt
from penstock.integrations.fastapi.exceptions import RateLimited
from penstock.integrations.fastapi.openapi import document_limits
from penstock.integrations.fastapi.route_limit import limit

__all__ = [
    "LimitFields",
    "PenstockMiddleware",
    "RateLimited",
    "document_limits",
    "exempt",
    "limit",
]
