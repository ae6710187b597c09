"""Django REST framework: throttle classes that count exactly.

::

    class BurstThrottle(PenstockThrottle):
        limit = "60/minute"

or, by the names of ``REST_FRAMEWORK["DEFAULT_THROTTLE_RATES"]``, `UserThrottle`,
`AnonThrottle` and `ScopedThrottle` in the places of REST framework's own.

Headers tell of the limits on every answer of the view. If one throttle of a view refuses, the
others take nothing. The body of a refusal is REST framework's.
"""

from __future__ import annotations

import threading
from inspect import getattr_static
from typing import Any, ClassVar

try:
    import django as _django  # noqa: F401 - to say so in words if it is not there
    import rest_framework as _rest_framework  # noqa: F401 - the same
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "Django REST framework is not installed: pip install 'penstock[django]' "
        "djangorestframework",
        name=error.name,
    ) from error

from django.core.exceptions import ImproperlyConfigured
from rest_framework.exceptions import APIException
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from penstock.errors import PenstockError
from penstock.integrations.deciding.deciders import Limits
from penstock.integrations.deciding.http_checkpoint import HttpCheckpoint
from penstock.integrations.deciding.keys import by_ip, by_user
from penstock.integrations.deciding.outcome import Outcome, Undecided
from penstock.integrations.deciding.pending import PENDING, Pending, fields_of, withdraw
from penstock.integrations.deciding.request import Request
from penstock.integrations.deciding.views import OF_A_SITE, Options, for_view, with_site
from penstock.integrations.deciding.waiting import finish
from penstock.integrations.django.request import DjangoRequest
from penstock.integrations.django.settings import of_the_site
from penstock.integrations.django.view_limit import carrier_of, wait, wait_for_all
from penstock.limit import Limit, as_limit

__all__ = [
    "AnonThrottle",
    "LimitsUnavailable",
    "PenstockThrottle",
    "ScopedThrottle",
    "UserThrottle",
]

# What a class may say besides its limit.
OPTIONS = ("key", "cost", "name", "exempt", *OF_A_SITE)
# On Django's request: all throttles of ours that were asked.
_ASKED = "_penstock_throttles"
_ABSENT = object()


def _said(cls: type, name: str) -> Any:
    """An attribute as it was written: a function is not made a method."""
    value = getattr_static(cls, name, _ABSENT)
    return value.__func__ if isinstance(value, staticmethod) else value


class LimitsUnavailable(APIException):  # type: ignore[misc]  # REST framework has no types
    """The store failed, and ``on_failure`` is ``"closed"``."""

    status_code = 503
    default_detail = "Rate limits cannot be checked."
    default_code = "limits_unavailable"
    wait = 1


class PenstockThrottle(BaseThrottle):  # type: ignore[misc]  # REST framework has no types
    """Say ``limit``, or ``scope``: the name of one of ``DEFAULT_THROTTLE_RATES``.

    - ``limit``: as everywhere: text, a `Limit`, a list, or a function of the request
    - ``key``: a function of the request; by default the user, or the address
    - ``cost``, ``name``, ``exempt``, ``store``, ``shadow`` and so on: as for a `HttpCheckpoint`

    Throttles with the same scope count together, in all views; those without one, by class.
    The store, trusted proxies and whatever else is true of a site are taken from
    ``settings.PENSTOCK`` if a class does not say; the number of proxies also from
    ``NUM_PROXIES``.
    """

    limit: Any = None
    scope: str | None = None
    key: Any = by_user

    _checkpoints: ClassVar[dict[Any, HttpCheckpoint]] = {}
    _making: ClassVar[threading.Lock] = threading.Lock()
    _outcome: Outcome | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._checkpoints, cls._making = {}, threading.Lock()
        given = _said(cls, "limit")
        for each in given if isinstance(given, (list, tuple)) else [given]:
            if isinstance(each, (str, Limit)):
                as_limit(each)  # a mistake is found where it is made
        if hasattr(cls, "count_when"):
            raise TypeError(
                f"{cls.__name__}: a throttle does not see the response; count_when is for "
                "penstock.integrations.django.limit"
            )

    # What REST framework asks ----------------------------------------------------------------

    def allow_request(self, request: Any, view: Any) -> bool:
        limit = self.get_limit(request, view)
        if limit is None:
            return True
        checkpoint = self._checkpoint(limit)
        outcome = finish(checkpoint.flow(DjangoRequest(request, self._counted_as())), wait)
        if outcome is None:
            return True
        self._outcome = outcome
        native = request._request
        native.penstock = outcome
        throttles: Pending = native.__dict__.setdefault(_ASKED, [])
        throttles.append((checkpoint, outcome))
        pending: Pending | None = carrier_of(native).get(PENDING)
        if pending is not None:
            pending.append(throttles[-1])
        # REST framework asks every throttle of a view, also when one has refused.
        if any(not each.allowed for _, each in throttles):
            wait_for_all(withdraw(throttles if pending is None else pending))
        # Of the view: REST framework adds them to whatever it answers.
        getattr(view, "headers", {}).update(fields_of(throttles))
        if isinstance(outcome, Undecided) and not outcome.allowed:
            raise LimitsUnavailable
        return outcome.allowed

    def wait(self) -> float | None:
        """Seconds until the same request would pass, exactly; None if no waiting helps."""
        if self._outcome is None:
            return None
        waits = [d.retry_after for _, d in self._outcome.told if not d.allowed]
        known = [each for each in waits if each is not None]
        return max(known) if known and len(known) == len(waits) else None

    # What is counted -------------------------------------------------------------------------

    def get_limit(self, request: Any, view: Any) -> Limits | Any:
        """To override where the view decides; None is no limit."""
        given = _said(type(self), "limit")
        return self._rate() if given is None else given

    def _rate(self) -> Limits:
        if not self.scope:
            raise ImproperlyConfigured(f"{type(self).__name__} needs a limit, or a scope")
        rates: dict[str, Limits] = api_settings.DEFAULT_THROTTLE_RATES
        if self.scope not in rates:
            raise ImproperlyConfigured(
                f"DEFAULT_THROTTLE_RATES has no {self.scope!r}; it has {', '.join(sorted(rates))}"
            )
        return rates[self.scope]

    def _counted_as(self) -> str:
        return self.scope or f"{type(self).__module__}.{type(self).__qualname__}"

    def _checkpoint(self, limit: Any) -> HttpCheckpoint:
        """One for each limit that the class ever had: rates may change, as in tests."""
        kept = (self.scope, tuple(limit) if isinstance(limit, list) else limit)
        checkpoint = self._checkpoints.get(kept)
        if checkpoint is None:
            with self._making:
                checkpoint = self._checkpoints.get(kept)
                if checkpoint is None:
                    checkpoint = self._checkpoints[kept] = self._made(limit)
        return checkpoint

    def _made(self, limit: Any) -> HttpCheckpoint:
        options: Options = {"name": self.scope} if self.scope else {}
        for name in OPTIONS:
            value = _said(type(self), name)
            if value is not _ABSENT:
                options[name] = value
        site = of_the_site()
        proxies = api_settings.NUM_PROXIES
        if proxies and {"trusted", "hops"}.isdisjoint(with_site(options, site)):
            options["hops"] = proxies
        try:
            return HttpCheckpoint(asynchronous=False, **for_view(limit, options, site))
        except (TypeError, ValueError, PenstockError) as error:
            raise ImproperlyConfigured(f"{type(self).__name__}: {error}") from error


class UserThrottle(PenstockThrottle):
    """Who is logged in, and the address of who is not: the rate of scope ``user``."""

    scope = "user"


def _by_ip_of_strangers(request: Request) -> str | None:
    return None if request.user else by_ip(request)


class AnonThrottle(PenstockThrottle):
    """Only those who are not logged in: the rate of scope ``anon``."""

    scope = "anon"
    key = _by_ip_of_strangers


class ScopedThrottle(PenstockThrottle):
    """The rate of the view's ``throttle_scope``; a view without one is not limited."""

    scope_attr = "throttle_scope"

    def get_limit(self, request: Any, view: Any) -> Limits | Any:
        self.scope = getattr(view, self.scope_attr, None)
        return self._rate() if self.scope else None
