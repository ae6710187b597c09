"""Why a key looks automated, or like many people: reasons for people to weigh, not a verdict."""

from __future__ import annotations

import re
from functools import lru_cache

from penstock.replay.deciding.tallies import KeyTally

_DECLARED = re.compile(
    r"bot\b|bot/|crawl|spider|slurp|scrapy|curl/|wget/|python-requests|python-urllib|httpx/|"
    r"aiohttp|go-http-client|java/|okhttp|libwww|headless|phantomjs|axios/|node-fetch|postman|"
    r"monitor|uptime|pingdom|feedfetcher|facebookexternalhit|scan",
    re.I,
)
_BROWSER = re.compile(r"Mozilla/.*(?:Chrome|Firefox|Safari|Edg|OPR)/", re.I)
# From synthetic logs: scrapers are at 0.06 to 0.2, people at 3 to 7.
_CONSTANT_GAPS = 0.3
_FEW = 30  # requests, below which behaviour says nothing


@lru_cache(4096)  # keys share few agents
def _is_declared(agent: str | None) -> bool:
    return agent is not None and _DECLARED.search(agent) is not None


@lru_cache(4096)
def _is_browser(agent: str | None) -> bool:
    return agent is not None and _BROWSER.search(agent) is not None


def automated_reasons(key: KeyTally) -> list[str]:
    """What speaks for a program: empty if nothing does."""
    reasons = []
    if _is_declared(key.agent):
        reasons.append(f"says that it is {key.agent:.40}")
    if key.asked < _FEW:
        return reasons
    if key.gap_variation is not None and key.gap_variation < _CONSTANT_GAPS:
        reasons.append(f"constant gaps (variation {key.gap_variation:.2f})")
    browser = _is_browser(key.agent)
    if browser and key.asset_share == 0 and key.paths > 1 and key.asked >= 100:
        reasons.append("a browser that loads no assets")
    if key.hours > 20:
        reasons.append(f"active in {key.hours} of 24 hours")
    if key.error_share > 0.5:
        reasons.append(f"{key.error_share:.0%} of its answers were 4xx")
    if key.asked >= 100 and key.paths == 1:
        reasons.append("asks for one path only")
    return reasons


def shared_reasons(key: KeyTally) -> list[str]:
    """What speaks for several people behind one address."""
    reasons = []
    if key.agents >= 8:
        reasons.append(f"about {key.agents} different user agents")
    if key.agents >= 3 and key.asset_share > 0.2 and key.asked >= _FEW:
        reasons.append(f"{key.asset_share:.0%} assets, as browsers load them")
    return reasons if key.agents >= 3 else []


def describe(key: KeyTally) -> str:
    """One phrase for a table."""
    shared, automated = shared_reasons(key), automated_reasons(key)
    if shared and (len(shared) >= len(automated) or key.agents >= 8):
        return "looks shared: " + ", ".join(shared)
    if automated:
        return "looks automated: " + ", ".join(automated)
    return "too few requests to tell" if key.asked < _FEW else "looks like a person"


def looks_automated(key: KeyTally) -> bool:
    return describe(key).startswith("looks automated")


def looks_shared(key: KeyTally) -> bool:
    return describe(key).startswith("looks shared")
