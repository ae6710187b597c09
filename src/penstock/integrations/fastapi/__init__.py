"""FastAPI: a limit as a dependency.

>>> from fastapi import Depends, FastAPI
>>> from penstock.integrations.fastapi import limit
>>> app = FastAPI()
>>> @app.get("/search", dependencies=[Depends(limit("10/second"))])
... async def search(q: str) -> list[str]: ...

For the whole application there is `penstock.integrations.asgi.PenstockMiddleware`.

FastAPI merges a dependency's headers into what a handler returns, unless that is a Response
itself, and tells a dependency of exceptions, but of no status. Where that matters, add
`LimitFields` to the application: it sees all that is sent. `PenstockMiddleware` does it, too.
"""

from penstock.integrations.asgi.fields import LimitFields
from penstock.integrations.fastapi.dependency import RateLimited, limit

__all__ = ["LimitFields", "RateLimited", "limit"]
