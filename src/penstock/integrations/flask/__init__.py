"""Flask: limits for an application, a blueprint or a view.

>>> from flask import Flask
>>> from penstock.integrations.flask import Penstock, limit
>>> app = Flask("shop")
>>> _ = Penstock(app, "100/minute", exempt=["/health"])
>>> @app.get("/search")
... @limit("10/second")
... def search() -> list[str]: ...

A refusal is raised as a Werkzeug exception, so that ``@app.errorhandler(429)`` can respond. If a
limit needs neither routes nor users, `penstock.integrations.wsgi.PenstockWSGI` is enough.
"""

try:
    import flask as _flask  # noqa: F401 - for the message below
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "Flask is not installed: pip install 'penstock[flask]'", name=error.name
    ) from error

from penstock.integrations.deciding.marked_views import exempt
from penstock.integrations.flask.exceptions import (
    Denied,
    LimitsUnavailable,
    PathUnclear,
    RateLimited,
)
from penstock.integrations.flask.extension import Penstock, limit

__all__ = [
    "Denied",
    "LimitsUnavailable",
    "PathUnclear",
    "Penstock",
    "RateLimited",
    "exempt",
    "limit",
]
