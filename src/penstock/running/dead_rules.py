"""Says which rules do not apply to /v1/auth, when the service starts and in a metric.

Callers of other endpoints send any keys, so their rules cannot be known to be dead. Whether there
are proxies that use /v1/auth is not known at the start either, unless the settings are about them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from penstock.integrations.deciding.dead_rules import DeadRule, dead_rules
from penstock.integrations.deciding.dimension_sources import parse_dimensions
from penstock.metrics import Snapshot
from penstock.metrics.labels import short
from penstock.rules.model import RuleSet
from penstock.running.settings import OFF, TRUSTED, Settings
from penstock.wires.http.auth import is_known, proxy_dimensions

logger = logging.getLogger("penstock.server")

# So many rules are logged, and so many are in metrics.
MOST_LOGGED = 10
MOST_SHOWN = 1000


def is_for_proxies(settings: Settings) -> bool:
    """Whether somebody has set what only /v1/auth needs."""
    return settings.http != OFF and (bool(settings.dimension) or settings.trusted != TRUSTED)


def log_dead_rules(settings: Settings, rules: RuleSet) -> None:
    """A warning for each; if there may be no proxies at all, one line for information."""
    if settings.http == OFF:
        return
    knows = is_known(proxy_dimensions(parse_dimensions(settings.dimension)))
    dead = list(dead_rules(rules, knows))
    keys = dict.fromkeys(key for rule in dead for key in rule.keys)
    if dead and not is_for_proxies(settings):
        logger.info(
            "%d rules are not for /v1/auth, where nobody says what %.200s is (--dimension)",
            len(dead), ", ".join(keys),
        )  # fmt: skip
        return
    for rule in dead[:MOST_LOGGED]:
        logger.warning(
            "the rule %s does not apply to /v1/auth: nobody says what %r is of a request; give"
            " --dimension %s=header:NAME, if a trusted proxy sets such a header",
            rule.rule, rule.keys[0], rule.keys[0],
        )  # fmt: skip
    if len(dead) > MOST_LOGGED:
        logger.warning("and %d more rules do not apply to /v1/auth", len(dead) - MOST_LOGGED)


def collect_dead_rules(out: Snapshot, rules: Iterable[DeadRule]) -> None:
    for rule in list(rules)[:MOST_SHOWN]:
        out.set("penstock_rules_without_dimension", (short(rule.domain), short(rule.rule)), 1)
