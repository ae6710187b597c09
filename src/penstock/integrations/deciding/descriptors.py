"""From a request to its descriptors, which rules match.

The rules determine which descriptors: every path from the top of a domain to a rule is a
sequence of keys, its *shape*. A request has a descriptor for each shape of which it has all
values::

    descriptors:                          shapes
      - key: remote_address               (remote_address,)
      - key: path
        value: /login
        descriptors:
          - key: remote_address           (path, remote_address)

The value of a key comes from a *dimension*: a function of the request, by the key's name.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from inspect import isawaitable
from typing import Generic, TypeVar

from penstock.async_gate import AnyGate
from penstock.errors import RulesError
from penstock.integrations.deciding.paths import AmbiguousPath, AmbiguousText
from penstock.integrations.deciding.waiting import Flow, finish
from penstock.rules.aliases import ADDRESSES, ALIASES, names_of
from penstock.rules.deciding.compiled import Compiled
from penstock.rules.deciding.verdict import Descriptor
from penstock.rules.model import Domain, Step

logger = logging.getLogger("penstock")

R = TypeVar("R")
Value = str | None
Dimension = Callable[[R], Value | Awaitable[Value]]
# Finds a dimension by name where there is none in the mapping, as for ``header:x-tenant``.
Family = Callable[[str], Dimension[R] | None]


class Descriptors(Generic[R]):
    """Makes the descriptors of a request, for the rules that are in force.

    A key without a dimension is an error at the start. After a reload, it is logged, and rules
    with that key do not apply. If not ``strict``, the same happens at the start: such rules may be
    for other callers.
    """

    def __init__(
        self,
        gate: AnyGate,
        dimensions: Mapping[str, Dimension[R] | str],
        family: Family[R] | None = None,
        domain: str | None = None,
        strict: bool = True,
    ) -> None:
        self._gate = gate
        self._dimensions = {name: as_dimension(name, how) for name, how in dimensions.items()}
        self._family = family
        self._domain = domain
        # The rules, their shapes, and the dimensions for these.
        self._ready: tuple[Compiled, list[tuple[str, ...]], dict[str, Dimension[R]]]
        problems = self._prepare(gate.compiled)
        if problems and strict:
            raise RulesError(problems)
        for problem in problems:
            logger.warning("%s", problem)

    def of(self, request: R) -> list[Descriptor]:
        """For threads. Dimensions cannot be awaited."""
        return finish(self.flow(request))

    def flow(self, request: R) -> Flow[list[Descriptor]]:
        """Yields what has to be awaited."""
        _, shapes, dimensions = self._current()
        if not self._gate.switches.calm:
            shapes, dimensions = self._with_lists(shapes, dimensions)
        values: dict[str, str] = {}
        unclear: tuple[str, AmbiguousText] | None = None
        for name, dimension in dimensions.items():
            value = dimension(request)
            if value is not None and type(value) is not str and isawaitable(value):
                value = yield value
            if value is not None:
                values[name] = str(value)
                if isinstance(value, AmbiguousText):
                    unclear = name, value
        descriptors = _descriptors(shapes, values)
        if unclear is not None and self._gate.enforces:
            self._check_readings(*unclear, shapes, values, descriptors)
        return descriptors

    def _with_lists(
        self, shapes: list[tuple[str, ...]], dimensions: dict[str, Dimension[R]]
    ) -> tuple[list[tuple[str, ...]], dict[str, Dimension[R]]]:
        """Add the keys of the operator's lists, whether or not a rule has them."""
        state = self._gate.switches.state()
        keys = dict.fromkeys([*state.deny_lists, *state.allow_lists])
        missing = [key for key in keys if not any((name,) in shapes for name in names_of(key))]
        if all(name in missing for name in ADDRESSES):  # lists have both names: one is enough
            missing = [key for key in missing if key not in ALIASES]
        dimensions = dict(dimensions)
        more = [(key,) for key in missing if self._dimension(key, dimensions) is not None]
        return [*shapes, *more], dimensions

    def _check_readings(
        self,
        name: str,
        path: AmbiguousText,
        shapes: list[tuple[str, ...]],
        values: dict[str, str],
        descriptors: list[Descriptor],
    ) -> None:
        """Check that the rules decide alike, however the server reads the path."""
        if path.problem:
            raise AmbiguousPath(f"the path has {path.problem}: servers disagree on what it means")
        for reading in path.others:
            other = _descriptors(shapes, {**values, name: reading})
            if not self._gate.treats_alike(descriptors, other, domain=self._domain):
                raise AmbiguousPath(
                    f"the path can be read as {reading!r:.100} and as {str(path)!r:.100}, which "
                    "have different rules: send one that is only the one or the other"
                )

    def in_force(self) -> tuple[list[tuple[str, ...]], dict[str, Dimension[R]]]:
        """The shapes of the rules in force, and the dimensions that these need."""
        _, shapes, dimensions = self._current()
        return shapes, dimensions

    @property
    def denies(self) -> bool:
        """Whether there is any deny list."""
        self._current()
        return self._denies or self._gate.switches.denies

    def _current(self) -> tuple[Compiled, list[tuple[str, ...]], dict[str, Dimension[R]]]:
        """The shapes and dimensions of the rules in force, which may have changed."""
        compiled = self._gate.compiled
        if compiled is not self._ready[0]:
            for problem in self._prepare(compiled):
                logger.warning("%s", problem)
        return self._ready

    def _prepare(self, compiled: Compiled) -> list[str]:
        """Find the shapes of these rules and their dimensions; returns the problems."""
        problems: list[str] = []
        shapes: list[tuple[str, ...]] = []
        dimensions: dict[str, Dimension[R]] = {}
        self._denies = False
        try:
            domain = self._of_domain(compiled)
            places, self._denies = shapes_of(domain), denies(domain)
        except RulesError as error:
            problems, places = [str(error)], {}
        for shape, place in places.items():
            missing = [key for key in shape if self._dimension(key, dimensions) is None]
            for key in missing:
                known = ", ".join(sorted({*self._dimensions, *ALIASES}))
                problems.append(
                    f"{place}: nobody says what {key!r} is of a request; known are {known}: "
                    f"in Python, give dimensions={{{key!r}: function}}; on the command line, give"
                    f" --dimension {key}=header:NAME, if a trusted proxy sets such a header"
                )
            if not missing:
                shapes.append(shape)
        self._ready = (compiled, shapes, dimensions)
        return problems

    def _dimension(self, key: str, dimensions: dict[str, Dimension[R]]) -> Dimension[R] | None:
        dimension = self._dimensions.get(key) or self._dimensions.get(ALIASES.get(key, key))
        if dimension is None and self._family is not None:
            dimension = self._family(key)
        if dimension is not None:
            dimensions[key] = dimension
        return dimension

    def _of_domain(self, compiled: Compiled) -> Domain:
        domains = compiled.rules.domains
        if self._domain is None and len(domains) == 1:
            return next(iter(domains.values()))
        if self._domain is None:
            names = ", ".join(sorted(domains))
            raise RulesError(f"which domain? The rules have {names}: give domain='...'")
        if self._domain not in domains:
            names = ", ".join(sorted(domains))
            raise RulesError(f"the rules have no domain {self._domain!r}; they have {names}")
        return domains[self._domain]


def shapes_of(domain: Domain) -> dict[tuple[str, ...], str]:
    """Every sequence of keys that leads to a rule or a list, with its place in the file.

    And the keys that name the plans of new accounts.
    """
    shapes: dict[tuple[str, ...], str] = {}
    for shape, step in _steps(domain.steps, ()):
        if step.rule is not None or step.deny is not None:
            shapes.setdefault(shape, str(step.place))
        meter = step.rule.meter if step.rule is not None else None
        if meter is not None and meter.plan_by is not None and meter.plan_by not in shape:
            shapes.setdefault((meter.plan_by,), str(meter.place))
    for key in [*domain.allow, *domain.deny]:
        if not any((name,) in shapes for name in names_of(key)):  # lists apply under all names
            shapes[(key,)] = str(domain.place)
    return shapes


def denies(domain: Domain) -> bool:
    """Whether it has a deny list, anywhere."""
    return bool(domain.deny) or any(step.deny is not None for _, step in _steps(domain.steps, ()))


def _descriptors(shapes: list[tuple[str, ...]], values: Mapping[str, str]) -> list[Descriptor]:
    return [
        Descriptor(tuple([(key, values[key]) for key in shape]))
        for shape in shapes
        if values.keys() >= set(shape)
    ]


def _steps(
    steps: tuple[Step, ...], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Step]]:
    for step in steps:
        shape = (*above, step.key)
        yield shape, step
        yield from _steps(step.children, shape)


def as_dimension(name: object, how: Dimension[R] | str) -> Dimension[R]:
    """A function of the request; a text is a fixed value."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"a dimension's name is a non-empty str, not {name!r:.100}")
    if isinstance(how, str):
        fixed: str = how
        return lambda request: fixed
    if not callable(how):
        raise TypeError(f"dimension {name!r} is a function of the request, not {how!r:.100}")
    return how
