"""export: rules as configuration of nginx, Envoy, HAProxy or nftables.

>>> from penstock.replay import export
>>> rules = {"domain": "web", "descriptors": [{"key": "remote_address", "limits": "10/second"}]}
>>> made = export(rules, "nginx", keys=5000)
>>> [line for line in made.text.splitlines() if line.startswith("limit_req zone")]
['limit_req zone=penstock_1 burst=9 nodelay;']
>>> made.pieces[0].how
'exact'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType

from penstock.errors import RulesError
from penstock.integrations.deciding.identity import NOBODY_TRUSTED, Trust
from penstock.limits import Limit
from penstock.replay.deciding.settings import read_dimensions
from penstock.replay.exporting import envoy, haproxy, nftables, nginx
from penstock.replay.exporting.escaping import comment
from penstock.replay.exporting.items import ExportError, Item, Piece, items_of, refuse
from penstock.replay.exporting.numbers import Choices, Inexact, Job
from penstock.replay.exporting.sources import sources_of
from penstock.replay.report import Report
from penstock.replay.simulate import RequestsLike, RulesLike, as_rules, simulate
from penstock.rules.model import Domain, RuleSet, Step
from penstock.rules.problems import Problem

TARGETS: Mapping[str, ModuleType] = {
    "nginx": nginx, "envoy": envoy, "nftables": nftables, "haproxy": haproxy,
}  # fmt: skip
# Each is looked at for every request, in most targets.
MOST_LIMITS = 1000


@dataclass(frozen=True, slots=True)
class Export:
    """A configuration, and what it amounts to.

    - ``text``: the configuration
    - ``pieces``: for each limit, ``how`` it was translated (``exact``, ``rounded``,
      ``approximate``), by what ``error``, and what it ``means`` as a limit of Penstock
    - ``rules``: the rules that were exported; ``means``: what the configuration does, as rules
    - ``warnings``: what to know before it is loaded
    """

    to: str
    text: str
    pieces: list[Piece]
    rules: RuleSet
    means: RuleSet
    warnings: list[str] = field(default_factory=list)
    dimensions: tuple[str, ...] = ()

    def compare(self, requests: RequestsLike, *, trust: Trust = NOBODY_TRUSTED) -> Report:
        """Replay a log: what would the configuration decide differently from the rules?

        ``change`` of the report has what it would refuse and admit in addition, and whom.
        """
        dimensions = read_dimensions(self.dimensions)
        return simulate(
            self.means, requests, against=self.rules, trust=trust, dimensions=dimensions
        )


def export(
    rules: RulesLike,
    to: str,
    *,
    approximate: bool = False,
    never_above: bool = False,
    keys: Mapping[str, int] | int | None = None,
    only: Iterable[str] = (),
    dimensions: Iterable[str] = (),
    domain: str | None = None,
    ports: Iterable[int] = (80, 443),
) -> Export:
    """Translate rules for ``to``: nginx, envoy, nftables or haproxy.

    ``approximate`` permits what is not exact; ``never_above`` also has it admit too few rather
    than too many. ``keys``: how many keys there are, for all rules or by their ids; `keys_of`
    counts them in a log. ``only``: ids of the rules to export. ``dimensions``:
    ``"user=header:x-user-id"``. ``ports``: which ones nftables limits.

    `ExportError` lists everything that cannot be translated, with file and line.
    """
    if to not in TARGETS:
        raise ExportError(f"cannot export to {to!r:.50}: use one of {', '.join(TARGETS)}")
    target, dimensions, only = TARGETS[to], tuple(dimensions), tuple(only)
    ruleset = as_rules(rules)
    of = _domain(ruleset, domain)
    choices = Choices(approximate or never_above, never_above, keys, _ports(ports))
    items, problems = items_of(of, sources_of(dimensions), only)
    if len(items) > MOST_LIMITS:
        raise ExportError(
            f"{len(items):,} limits are too many for one configuration: at most {MOST_LIMITS:,};"
            " choose rules by --rule"
        )
    pieces = _written(target, items, choices, problems)
    if problems:
        raise ExportError(sorted(set(problems)))
    if not items:
        raise ExportError("there is nothing to export: no rule has a limit")
    header = _header(ruleset, to, target, items, only)
    kept = _changed(ruleset, of, {item.rule.id: [] for item in items}, pieces=None)
    return Export(
        to,
        "\n".join([*header, "", *target.whole(pieces, choices)]).rstrip("\n") + "\n",
        pieces,
        kept,
        _changed(ruleset, of, _means(pieces), pieces),
        _warnings(pieces, keys, target),
        dimensions,
    )


def _written(
    target: ModuleType, items: list[Item], choices: Choices, problems: list[Problem]
) -> list[Piece]:
    """The pieces; adds what cannot be translated to the problems."""
    job = Job(items, replace(choices, approximate=True))
    possible: list[Item] = []
    for item in items:
        try:
            target.write(item, job)
            possible.append(item)
        except RulesError as error:
            problems.append(refuse(item, str(error)))
    # Again, as what is refused makes nothing else inexact.
    pieces: list[Piece] = []
    job = Job(possible, choices)
    for item in possible:
        try:
            pieces.append(target.write(item, job))
        except Inexact as error:
            problems.append(
                refuse(item, f"not exact in {target.NAME}: {error}; --approximate permits that")
            )
    return pieces


def keys_of(
    rules: RulesLike,
    requests: RequestsLike,
    *,
    trust: Trust = NOBODY_TRUSTED,
    dimensions: Iterable[str] = (),
    domain: str | None = None,
) -> dict[str, int]:
    """How many keys each rule meets in a log, by the rule's id."""
    report = simulate(
        rules, requests, trust=trust, dimensions=read_dimensions(dimensions), domain=domain
    )
    return {rule.id: rule.keys for rule in report.rules}


def _domain(rules: RuleSet, name: str | None) -> Domain:
    names = ", ".join(sorted(rules.domains))
    if name is None and len(rules.domains) != 1:
        raise ExportError(f"which domain? The rules have {names:.500}: name one")
    if name is not None and name not in rules.domains:
        raise ExportError(f"the rules have no domain {name!r:.100}; they have {names:.500}")
    return rules.domains[name] if name is not None else next(iter(rules.domains.values()))


def _ports(ports: Iterable[int]) -> tuple[int, ...]:
    out = tuple(ports)
    for port in out:
        if type(port) is not int or not 1 <= port <= 65_535:
            raise ExportError(f"a port is a number from 1 to 65535, not {port!r:.50}")
    if not out:
        raise ExportError("name at least one port")
    return out


def _header(
    rules: RuleSet, to: str, target: ModuleType, items: list[Item], only: tuple[str, ...]
) -> list[str]:
    files = list(rules.files) or sorted({item.place.file for item in items})
    lines = [f"Limits for {target.NAME}, written by: penstock export --to {to}", ""]
    for file in files:
        digest = rules.digests.get(file, "")
        lines.append(f"From {file}{f' ({digest[:12]})' if digest else ''}")
    if only:
        lines.append(f"Only {', '.join(only)}")
    lines += ["", *target.LOAD]
    return [f"# {comment(line)}".rstrip() for line in lines]


def _warnings(
    pieces: list[Piece], keys: Mapping[str, int] | int | None, target: ModuleType
) -> list[str]:
    out = []
    if keys is None and any(piece.item.counted for piece in pieces):
        room = Choices().room(next(piece.item for piece in pieces if piece.item.counted))
        out.append(
            f"the number of keys is unknown, so there is room for {room:,}: give --log or --keys"
        )
    if isinstance(keys, Mapping):
        for piece in pieces:
            if piece.item.counted and not keys.get(piece.item.rule.id):
                out.append(f"{piece.item.title}: the log has no key of this rule")
    for piece in pieces:
        if piece.how != "exact":
            out.append(f"{piece.item.title}: {piece.how}: {'; '.join(piece.error)}")
    return out


# Back to rules -----------------------------------------------------------------------------------


def _means(pieces: list[Piece]) -> dict[str, list[Limit]]:
    means: dict[str, list[Limit]] = {}
    for piece in pieces:
        means.setdefault(piece.item.rule.id, []).append(piece.means)
    return means


def _changed(
    rules: RuleSet, domain: Domain, means: Mapping[str, list[Limit]], pieces: list[Piece] | None
) -> RuleSet:
    """The domain with only these rules; with their limits replaced where there are pieces."""

    def step(each: Step) -> Step:
        rule = each.rule
        if rule is not None and not rule.unlimited and rule.id not in means:
            rule = replace(rule, limits=(), concurrency=(), unlimited=True, closed=False)
        elif rule is not None and pieces is not None and rule.limits:
            limits = means[rule.id]
            rule = replace(
                rule,
                limits=tuple(
                    replace(old, limit=limit, envoy=False)
                    for old, limit in zip(rule.limits, limits, strict=False)
                ),
            )
        return replace(each, rule=rule, children=tuple(step(child) for child in each.children))

    changed = replace(domain, steps=tuple(step(each) for each in domain.steps))
    return replace(rules, domains={domain.name: changed})
