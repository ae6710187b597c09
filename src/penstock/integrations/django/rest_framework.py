"""Django REST framework: throttle classes that count exactly.

::

    class BurstThrottle(PenstockThrottle):
        limit = "60/minute"

or, by the names of ``REST_FRAMEWORK["DEFAULT_THROTTLE_RATES"]``, `UserThrottle`,
`AnonThrottle` and `ScopedThrottle` in the places of REST framework's own.

Every response of the view has the headers of its limits. If one throttle of a view refuses, the
others take nothing. The body of a refusal is REST framework's.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from inspect import getattr_static
from typing import Any, ClassVar

try:
    import django as _django  # noqa: F401 - for the message below
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
from penstock.integrations.deciding.applied_limits import (
    APPLIED,
    AppliedLimits,
    fields_of,
    withdraw,
)
from penstock.integrations.deciding.deciders import Limits
from penstock.integrations.deciding.http_checkpoint import HttpCheckpoint
from penstock.integrations.deciding.keys import by_ip, by_user
from penstock.integrations.deciding.marked_views import EXEMPT, mark_of
from penstock.integrations.deciding.outcome import Outcome, Undecided
from penstock.integrations.deciding.views import SITE_OPTIONS, Options, for_view, with_site
from penstock.integrations.deciding.waiting import all_of, finish
from penstock.integrations.django.counts import CHECKPOINTS
from penstock.integrations.django.request import DjangoRequest
from penstock.integrations.django.settings import site_options
from penstock.integrations.django.view_limit import carrier_of, wait
from penstock.limits import Limit, limits_of

__all__ = [
    "AnonThrottle",
    "LimitsUnavailable",
    "PenstockThrottle",
    "ScopedThrottle",
    "UserThrottle",
]

# What a class may set besides its limit.
OPTIONS = ("key", "cost", "name", "exempt", *SITE_OPTIONS)
# On Django's request: our throttles that were checked.
_THROTTLES = "_penstock_throttles"
_ABSENT = object()


def _attribute(cls: type, name: str) -> Any:
    """An attribute as it was written: a function does not become a method."""
    value = getattr_static(cls, name, _ABSENT)
    return value.__func__ if isinstance(value, staticmethod) else value


class LimitsUnavailable(APIException):  # type: ignore[misc]  # REST framework has no types
    """The store failed, and ``on_failure`` is ``"closed"``."""

    status_code = 503
    default_detail = "Rate limits cannot be checked."
    default_code = "limits_unavailable"
    wait = 1


class PenstockThrottle(BaseThrottle):  # type: ignore[misc]  # REST framework has no types
    """Set ``limit``, or ``scope``: the name of one of ``DEFAULT_THROTTLE_RATES``.

    - ``limit``: as everywhere: text, a `Limit`, a list, a function of the request, or a dict
      from keys to limits
    - ``key``: a function of the request; by default the user, or the address
    - ``cost``, ``name``, ``exempt``, ``store``, ``shadow`` and so on: as for a `HttpCheckpoint`

    Throttles with the same scope count together, in all views; those without one, by class.
    The store, trusted proxies and other options of the site are by default those of
    ``settings.PENSTOCK``; the number of proxies also that of ``NUM_PROXIES``.
    """

    limit: Any = None
    scope: str | None = None
    key: Any = by_user

    _checkpoints: ClassVar[dict[Any, HttpCheckpoint]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()
    _outcome: Outcome | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._checkpoints, cls._lock = {}, threading.Lock()
        limit = _attribute(cls, "limit")
        for each in limit.values() if isinstance(limit, Mapping) else [limit]:
            for one in each if isinstance(each, (list, tuple)) else [each]:
                if isinstance(one, (str, Limit)):
                    limits_of(one)  # a mistake is found where it is made
        if hasattr(cls, "count_when"):
            raise TypeError(
                f"{cls.__name__}: a throttle does not see the response; count_when is for "
                "penstock.integrations.django.limit"
            )

    # What REST framework calls ---------------------------------------------------------------

    def allow_request(self, request: Any, view: Any) -> bool:
        limit = self.get_limit(request, view)
        match = request._request.resolver_match
        if limit is None or (match is not None and mark_of(match.func) == EXEMPT):
            return True
        checkpoint = self._checkpoint(limit)
        outcome = finish(checkpoint.flow(DjangoRequest(request, self._counted_as())), wait)
        if outcome is None:
            return True
        self._outcome = outcome
        native = request._request
        native.penstock = outcome
        throttles: AppliedLimits = native.__dict__.setdefault(_THROTTLES, [])
        throttles.append((checkpoint, outcome))
        applied: AppliedLimits | None = carrier_of(native).get(APPLIED)
        if applied is not None:
            applied.append(throttles[-1])
        # REST framework checks every throttle of a view, also when one has refused.
        if any(not each.allowed for _, each in throttles):
            finish(all_of(withdraw(throttles if applied is None else applied)), wait)
        # REST framework adds the view's headers to every response.
        getattr(view, "headers", {}).update(fields_of(throttles))
        if isinstance(outcome, Undecided) and not outcome.allowed:
            raise LimitsUnavailable
        return outcome.allowed

    def wait(self) -> float | None:
        """Seconds until the same request would pass, exactly; None if no waiting helps."""
        if self._outcome is None:
            return None
        waits = [d.retry_after for _, d in self._outcome.named_decisions if not d.allowed]
        known = [each for each in waits if each is not None]
        return max(known) if known and len(known) == len(waits) else None

    # What is counted -------------------------------------------------------------------------

    def get_limit(self, request: Any, view: Any) -> Limits | Any:
        """To override where the view decides; None is no limit."""
        limit = _attribute(type(self), "limit")
        return self._rate() if limit is None else limit

    def _rate(self) -> Limits:
        if not self.scope:
            hint = ": write limit in place of rate" if hasattr(self, "rate") else ""
            raise ImproperlyConfigured(f"{type(self).__name__} needs a limit, or a scope{hint}")
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
        kept = (self.scope, _hashable(limit))
        checkpoint = self._checkpoints.get(kept)
        if checkpoint is None:
            with self._lock:
                checkpoint = self._checkpoints.get(kept)
                if checkpoint is None:
                    checkpoint = self._checkpoints[kept] = self._new_checkpoint(limit)
        return checkpoint

    def _new_checkpoint(self, limit: Any) -> HttpCheckpoint:
        options: Options = {"name": self.scope} if self.scope else {}
        for name in OPTIONS:
            value = _attribute(type(self), name)
            if value is not _ABSENT:
                options[name] = value
        if isinstance(limit, Mapping) and options.get("key") is by_user:
            del options["key"]  # the default; the limits have their own
        site = site_options()
        proxies = api_settings.NUM_PROXIES
        if proxies and {"trusted", "hops"}.isdisjoint(with_site(options, site)):
            options["hops"] = proxies
        try:
            checkpoint = HttpCheckpoint(asynchronous=False, **for_view(limit, options, site))
        except (TypeError, ValueError, PenstockError) as error:
            raise ImproperlyConfigured(f"{type(self).__name__}: {error}") from error
        CHECKPOINTS.add(checkpoint)
        return checkpoint


def _hashable(limit: Any) -> Any:
    if isinstance(limit, Mapping):
        return tuple((key, _hashable(limits)) for key, limits in limit.items())
    return tuple(limit) if isinstance(limit, list) else limit


class UserThrottle(PenstockThrottle):
    """By user, or by address for clients that are not logged in: the rate of scope ``user``."""

    scope = "user"


class AnonThrottle(PenstockThrottle):
    """Only clients that are not logged in: the rate of scope ``anon``."""

    scope = "anon"
    key = by_ip

    def get_limit(self, request: Any, view: Any) -> Limits | Any:
        return None if DjangoRequest(request).user else super().get_limit(request, view)


class ScopedThrottle(PenstockThrottle):
    """The rate of the view's ``throttle_scope``; a view without one is not limited."""

    scope_attr = "throttle_scope"

    def get_limit(self, request: Any, view: Any) -> Limits | Any:
        self.scope = getattr(view, self.scope_attr, None)
        return self._rate() if self.scope else None
