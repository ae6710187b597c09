"""Throws wrong rules at the parser: only a `RulesError` may come out, and soon.

    python tests/rules/reading/fuzz.py --minutes 10      for so long; 3 seconds in the tests
    python tests/rules/reading/fuzz.py FILE ...          once more what was found before

Inputs are random bytes, valid rules with something broken in them, and attacks on a
parser: deep nesting, aliases that blow up, huge numbers. What comes out must be rules
whose ids are all different, or problems that name a place within the text.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from penstock.errors import RulesError
from penstock.rules.model import Domain, Step
from penstock.rules.problems import Problem, Problems
from penstock.rules.reading.dict_tree import KeyPlace
from penstock.rules.reading.parse import load_mapping, parse_text

sys.path.insert(0, str(Path(__file__).parents[2]))  # as pytest does; this is run alone, too
from rules.reading.fuzz_inputs import inputs

LONGEST = 2.0  # seconds of the processor for one input
MOST_MEMORY = 500  # MB by which one input may raise the process's peak
LONGEST_MESSAGE = 1000


class Found(Exception):
    """An input that the parser does not bear."""


def check(given: str | object, longest: float = LONGEST) -> bool:
    """Whether it was read or refused, as it should be; `Found` if it was neither."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    before = time.process_time()
    problems = Problems()
    fine = True
    try:
        if isinstance(given, str):
            domain = parse_text(given, "fuzz.yaml", problems)
        else:
            domain = load_mapping(given, problems)  # type: ignore[arg-type]
        _check_domain(domain)
    except RulesError as error:
        fine = False
        _check_problems(error.problems, given)
    except Found:
        raise
    except Exception as error:
        raise Found(f"{type(error).__name__}: {error}") from error
    _check_problems(problems.warnings, given)
    spent = time.process_time() - before
    if spent > longest:
        raise Found(f"it took {spent:.1f} s")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) // 1024
    if grown > MOST_MEMORY:
        raise Found(f"it took {grown} MB")
    return fine


def _check_domain(domain: Domain) -> None:
    ids = [step.rule.id for step in _steps(domain.steps) if step.rule is not None]
    if len(set(ids)) < len(ids):
        raise Found("two rules have the same id")
    if not domain.name or any(not step.key for step in _steps(domain.steps)):
        raise Found("something has no name")


def _steps(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        yield step
        yield from _steps(step.children)


def _check_problems(problems: Any, given: str | object) -> None:
    last = len(given.splitlines()) + 1 if isinstance(given, str) else 0
    for problem in problems:
        if not isinstance(problem, Problem) or not problem.message:
            raise Found(f"no problem: {problem!r}")
        place = problem.place
        if not isinstance(place, KeyPlace) and not (1 <= place.line <= last and place.column >= 1):
            raise Found(f"a place beyond the text: {problem}")
        if len(problem.message) > LONGEST_MESSAGE or "\n" in problem.message:
            raise Found(f"a message of {len(problem.message)} characters: {problem.message[:300]}")


def run(
    seconds: float,
    seed: int,
    tell: Callable[[int, int], None] | None = None,
    most: float = float("inf"),
) -> int:
    """Try for so long, or so many; how many that were. `Found` has the input as its argument."""
    end = time.monotonic() + seconds
    count = read = 0
    for given in inputs(random.Random(seed)):
        if time.monotonic() > end or count >= most:
            break
        try:
            read += check(given)
        except Found as failure:
            raise Found(str(failure), given) from failure
        count += 1
        if tell is not None and count % 1000 == 0:
            tell(count, read)
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("files", nargs="*", type=Path, help="inputs to try once more")
    arguments = parser.parse_args()
    for path in arguments.files:
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        print(f"{path}: {'read' if check(text) else 'refused'}")
    if arguments.files:
        return 0
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().getrandbits(32)
    print(f"seed {seed}, for {arguments.minutes:g} minutes")
    # What hangs or eats all memory becomes an exception, and so is told like the rest.
    signal.signal(signal.SIGALRM, _hanging)
    resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))

    def tell(count: int, read: int) -> None:
        signal.alarm(60)
        if sys.stdout.isatty():
            print(f"\r{count} inputs, {read} of them valid", end="", flush=True)

    signal.alarm(60)
    try:
        count = run(arguments.minutes * 60, seed, tell)
    except Found as failure:
        text, *given = failure.args
        path = Path(f"fuzz-{seed}.txt")
        shown = given[0] if given and isinstance(given[0], str) else repr(given)
        path.write_bytes(shown.encode("utf-8", "surrogateescape"))
        print(f"\n{text}\nThe input is in {path}")
        return 1
    print(f"\r{count} inputs: each was read or refused as it should be")
    return 0


def _hanging(*_: object) -> None:
    raise TimeoutError("no end after a minute")


if __name__ == "__main__":
    sys.exit(main())
