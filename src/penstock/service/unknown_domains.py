"""Requests with a domain that no rule has: they pass, and this says so.

Envoy's service lets them pass, too. A misspelt domain must not stay unseen: the response to a check
over HTTP has a ``warning``, and each such domain is logged once.
"""

from __future__ import annotations

import logging

from penstock.async_gate import AsyncGate
from penstock.rules.problems import nearest

_logger = logging.getLogger("penstock.service")

# Clients may send any number of domains: only so many are logged.
MOST_LOGGED = 20


class UnknownDomains:
    """Knows which domains have rules, also after they were reloaded."""

    def __init__(self, gate: AsyncGate) -> None:
        self._gate = gate
        self._logged: set[str] = set()

    def warning(self, domain: str | None) -> str | None:
        """What to tell the caller, and the log; None if the rules have this domain."""
        known = self._gate.matchers
        if domain is None or domain in known:
            return None
        names = ", ".join(sorted(known)[:10])
        warning = (
            f"no rule has the domain {domain[:60]!r}{nearest(domain, known)}, so nothing is"
            f" limited; there are: {names:.200}"
        )
        if domain not in self._logged and len(self._logged) < MOST_LOGGED:
            self._logged.add(domain)
            _logger.warning("%s", warning)
        return warning
