"""Editors and help() show what to write, with the compiled core as without it."""

from __future__ import annotations

import ast
import importlib
import inspect
import pydoc
import re
from pathlib import Path

import pytest

import penstock
from penstock import AsyncLimiter, Decision, Limiter
from penstock._mode import CORE
from penstock.stores.base import Counters

# Public classes that are C types: their methods have a signature only if we give them one.
COMPILED = (Counters, Decision, Limiter)


def written(kind: type) -> dict[str, str]:
    """The parameters of each public method, as they are in the source."""
    path = Path(str(importlib.import_module(kind.__module__).__file__))
    tree = ast.parse(path.with_name(f"{kind.__module__.rpartition('.')[2]}.py").read_text())
    (body,) = (node.body for node in tree.body if getattr(node, "name", "") == kind.__name__)
    return {
        node.name: ast.unparse(node.args)
        for node in body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and "property" not in map(ast.unparse, node.decorator_list)
    }


def plain(text: str) -> str:
    return "".join(text.replace("'", "").split())


METHODS = [(kind, name) for kind in COMPILED for name in written(kind)]


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_the_class(kind: type) -> None:
    shown = (
        "(limit: 'Limit | str | None' = None, store: 'Store | str | None' = None,"
        " *, name: 'str | None' = None, chance: 'Callable[[], float] | None' = None,"
        " enabled: 'bool | None' = None) -> 'None'"
    )
    assert str(inspect.signature(kind)) == shown


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_help_shows_the_parameters_of_a_method(kind: type, name: str) -> None:
    shown = plain(pydoc.plain(pydoc.render_doc(getattr(kind, name))))
    parameters = plain(written(kind)[name])
    # A default that is a constant is shown by its name if compiled, else by its value.
    module = importlib.import_module(kind.__module__)
    values = re.sub(r"(?<==)[A-Z_]{2,}", lambda name: repr(getattr(module, name[0])), parameters)
    assert f"({parameters})" in shown or f"({values})" in shown


# The signature of `hit` is only in its docstring, which makes it faster.
@pytest.mark.parametrize("name", sorted(written(Limiter).keys() - {"hit"}))
def test_inspect_shows_the_signature_of_a_verb(name: str) -> None:
    shown = str(inspect.signature(getattr(Limiter, name)))
    assert plain(shown).startswith(f"({plain(written(Limiter)[name])})")


def test_no_public_class_is_left_out() -> None:
    public = [getattr(penstock, name) for name in penstock.__all__]
    compiled = {
        kind
        for kind in public
        if isinstance(kind, type) and kind.__module__.removeprefix("penstock.") in CORE
    }
    assert compiled <= set(COMPILED)
