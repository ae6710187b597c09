"""Django: limits for a site, or for a view.

In the settings, behind the middleware that knows who is logged in::

    MIDDLEWARE = [..., "penstock.integrations.django.PenstockMiddleware"]
    PENSTOCK = {"limit": "100/minute", "exempt": ["/health"]}

On a view, a function or a class, sync or async::

    @limit("5/minute", key=by_user)
    def search(request): ...

For Django REST framework there is `penstock.integrations.django.rest_framework`.
"""

try:
    import django as _django  # noqa: F401 - for the message below
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "Django is not installed: pip install 'penstock[django]'", name=error.name
    ) from error

from penstock.integrations.deciding.marked_views import exempt
from penstock.integrations.django.counts import reset
from penstock.integrations.django.decorator import limit
from penstock.integrations.django.middleware import PenstockMiddleware

__all__ = ["PenstockMiddleware", "exempt", "limit", "reset"]
