"""Reads rules: from files and folders, from a text, or from a Python dict.

All errors are reported at once, by one `RulesError`. Warnings, about what is allowed but looks
like a mistake, are in the ``problems`` that a caller passes in.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from penstock.rules.lists import ValueList
from penstock.rules.model import Domain, RuleSet, id_part
from penstock.rules.problems import Place, Problems
from penstock.rules.reading.dict_tree import read_dict
from penstock.rules.reading.files import CannotRead, digest_of, find_files, read_bytes
from penstock.rules.reading.keywords import FILE
from penstock.rules.reading.levels import check_level, check_replaced
from penstock.rules.reading.limits import LimitReader
from penstock.rules.reading.lists import read_lists
from penstock.rules.reading.quotas import (
    check_meters,
    check_plans_agree,
    read_plan_definitions,
)
from penstock.rules.reading.steps import Progress, StepReader
from penstock.rules.reading.tree import SyntaxNode, shown
from penstock.rules.reading.values import Enough, Reading, read_fields, refer
from penstock.rules.reading.yaml_tree import decode, read_yaml
from penstock.rules.walk import rules_of


def parse_text(
    text: str,
    file: str = "<text>",
    problems: Problems | None = None,
    *,
    progress: Progress | None = None,
) -> Domain:
    """The domain that a YAML text describes; `RulesError` lists all errors.

    ``file`` is the name of the text in messages; list files are looked for beside it.
    ``progress`` is called now and then with the number of rules read so far.
    """
    loading = _Loading(problems, progress)
    with _no_collection():
        loading.add_text(text, file)
    return next(iter(loading.finish().values()))


def load_mapping(
    rules: Mapping[str, Any], problems: Problems | None = None, *, file: str = "<rules>"
) -> Domain:
    """The domain that a Python dict describes, with the same keys as in YAML.

    Problems have the path of keys instead of a line.
    """
    loading = _Loading(problems, None)
    with _no_collection():
        loading.add_mapping(rules, file)
    return next(iter(loading.finish().values()))


def load_files(
    paths: Iterable[str | Path],
    merge_domains: bool = False,
    problems: Problems | None = None,
    *,
    progress: Progress | None = None,
) -> RuleSet:
    """All domains in these files, and in all ``*.yaml`` and ``*.yml`` files of these folders.

    With ``merge_domains``, a domain may be split over several files.
    """
    loading = _Loading(problems, progress, merge_domains)
    with _no_collection():
        files = loading.add_files([paths] if isinstance(paths, str | Path) else paths)
        files += loading.list_files
    return RuleSet(loading.finish(), tuple(map(str, files)), loading.digests)


def load_texts(files: Mapping[str, bytes], merge_domains: bool = False) -> RuleSet:
    """All domains in these files, which are given by name and content.

    Such rules come from a store. They cannot read lists from files beside them.
    """
    problems = Problems()
    loading = _Loading(problems, None, merge_domains)
    with _no_collection():
        for name, data in files.items():
            loading.digests[name] = digest_of(data)
            text = decode(data, name, problems)
            if text is not None:
                loading.add_text(text, name)
    if loading.list_files:
        place = Place(next(iter(files)), 1, 1)
        problems.error(place, f"rules from a store cannot read {next(iter(loading.list_files))}")
    return RuleSet(loading.finish(), tuple(files), loading.digests)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Pause the garbage collector. A load makes no cycles, but so many objects that scanning them
    again and again would take two thirds of the time of a large file.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Loading:
    """One load: the domains so far, and their problems."""

    def __init__(
        self, problems: Problems | None, progress: Progress | None, merge: bool = False
    ) -> None:
        self._problems = Problems() if problems is None else problems
        self._reading = Reading(self._problems)
        self._progress = progress
        self._merge = merge
        self._rules = 0
        self._domains: dict[str, Domain] = {}
        self.digests = self._reading.digests
        self.list_files = self._reading.list_files

    def finish(self) -> dict[str, Domain]:
        if self._progress is not None:
            self._progress(self._rules)
        check_plans_agree(self._reading, self._domains.values())
        self._problems.raise_errors()
        for domain in self._domains.values():
            check_replaced(self._reading, domain)
        return self._domains

    def add_files(self, paths: Iterable[str | Path]) -> list[Path]:
        files = find_files(paths, self._problems)
        if not files and not self._problems.errors:
            self._problems.error(Place("<rules>", 1, 1), "no file was named")
        for path in files:
            try:
                data = read_bytes(path)
            except CannotRead as error:
                self._problems.error(Place(str(path), 1, 1), str(error))
                continue
            self.digests[str(path)] = digest_of(data)
            text = decode(data, str(path), self._problems)
            if text is not None:
                self.add_text(text, str(path))
        return files

    def add_text(self, text: str, file: str) -> None:
        before = len(self._problems.errors)
        root = read_yaml(text, file, self._problems)
        if root is not None and not root.is_null:
            self._reading.folder = Path(file).parent
            self._add(root)
        elif len(self._problems.errors) == before:
            self._problems.error(Place(file, 1, 1), "there is nothing here: 'domain' is missing")

    def add_mapping(self, rules: Mapping[str, Any], file: str) -> None:
        root = read_dict(rules, file, self._problems)
        if root is not None:
            self._reading.folder = Path()
            self._add(root)

    def _add(self, root: SyntaxNode) -> None:
        with suppress(Enough):
            domain = self._domain(root)
            if domain is not None:
                self._join(domain)

    def _domain(self, root: SyntaxNode) -> Domain | None:
        reading = self._reading
        fields = read_fields(reading, root, FILE, "a file of rules")
        if fields is None:
            return None
        limits = LimitReader(reading)
        nodes, name = fields.nodes, fields.values.get("domain", "")
        if "defaults" in nodes:
            limits.set_defaults(nodes["defaults"])
        reader = StepReader(reading, limits, self._progress, self._rules)
        steps = reader.steps(nodes["descriptors"], id_part(name)) if "descriptors" in nodes else ()
        self._rules = reader.rules
        allow, deny = (
            read_lists(reading, nodes[list_], repr(list_)) if list_ in nodes else {}
            for list_ in ("allow", "deny")
        )
        plans = read_plan_definitions(reading, nodes["plans"]) if "plans" in nodes else {}
        domain = Domain(name, fields.place("domain"), steps, allow, deny, plans)
        check_meters(
            reading, domain, [rule.meter for rule in rules_of(domain) if rule.meter is not None]
        )
        return domain

    def _join(self, domain: Domain) -> None:
        first = self._domains.setdefault(domain.name, domain)
        if first is domain or not domain.name:
            return
        if not self._merge:
            where = refer(first.place, domain.place)
            message = f"the domain {shown(domain.name)} a second time: first at {where}"
            self._reading.error(domain.place, message)
            return
        check_plans_agree(self._reading, (first, domain))
        steps = (*first.steps, *domain.steps)
        check_level(self._reading, steps)
        allow, deny = _joined(first.allow, domain.allow), _joined(first.deny, domain.deny)
        self._domains[domain.name] = Domain(
            domain.name, first.place, steps, allow, deny, {**first.plans, **domain.plans}
        )


def _joined(
    first: Mapping[str, ValueList], second: Mapping[str, ValueList]
) -> dict[str, ValueList]:
    joined = dict(first)
    for key, values in second.items():
        before = joined.get(key)
        joined[key] = values if before is None else ValueList((*before.entries, *values.entries))
    return joined
