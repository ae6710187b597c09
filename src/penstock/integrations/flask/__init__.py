"""Flask: limits for an application, a blueprint or a view.

>>> from flask import Flask
>>> from penstock.integrations.flask import Penstock, limit
>>> app = Flask("shop")
>>> _ = Penstock(app, "100/minute", exempt=["/health"])
>>> @app.get("/search")
... @limit("10/second")
... def search() -> list[str]: ...

A refusal is raised as an exception of Werkzeug's, so ``@app.errorhandler(429)`` can answer in
its own way. Limits that do not need to know routes or users can stand further out:
`penstock.integrations.wsgi.PenstockWSGI`.
"""

try:
    import flask as _flask  # noqa: F401 - to say so in words if it is not there
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "Flask is not installed: pip install 'penstock[flask]'", name=error.name
    ) from error

from penstock.integrations.flask.extension import Penstock, limit
from penstock.integrations.flask.refusals import (
    Denied,
    LimitsUnavailable,
    PathUnclear,
    RateLimited,
)

__all__ = ["Denied", "LimitsUnavailable", "PathUnclear", "Penstock", "RateLimited", "limit"]
