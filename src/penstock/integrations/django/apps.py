"""The Django application: ``manage.py check`` checks ``settings.PENSTOCK``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured

from penstock.integrations.django.middleware import view_limit_of
from penstock.integrations.django.settings import EXAMPLE, configured

_MIDDLEWARE = (
    "penstock.integrations.django.PenstockMiddleware",
    "penstock.integrations.django.middleware.PenstockMiddleware",
)


class PenstockConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """``INSTALLED_APPS = [..., "penstock.integrations.django"]``"""

    name = "penstock.integrations.django"
    label = "penstock"
    verbose_name = "Penstock"

    def ready(self) -> None:
        register(check_settings, Tags.security)


def check_settings(
    app_configs: Sequence[AppConfig] | None = None, **options: Any
) -> list[CheckMessage]:
    """What is wrong with ``settings.PENSTOCK``, as Django's check framework reports it."""
    used = any(name in settings.MIDDLEWARE for name in _MIDDLEWARE)
    if getattr(settings, "PENSTOCK", None) is None:
        if not used:
            return []
        hint = f"Add a setting, such as {EXAMPLE}."
        return [Error("PenstockMiddleware has no setting PENSTOCK.", hint, id="penstock.E001")]
    try:
        given = configured()
        given.pop("watch", None)  # nothing is to be watched for a check
        view_limit = view_limit_of(False, given)
    except ImproperlyConfigured as error:
        return [Error(str(error), id="penstock.E002")]
    if view_limit is not None and not used:
        hint = f"Add {_MIDDLEWARE[0]!r} to MIDDLEWARE."
        text = "PENSTOCK has a limit for the site, but its middleware is not installed."
        return [Warning(text, hint, id="penstock.W001")]
    return []
