"""Without an extra, the error says which one to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

import penstock
from penstock import AsyncGate, Gate


def run(missing: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run a program in which a module is not installed."""
    program = f"import sys; sys.modules[{missing!r}] = None\n{code}"
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("missing", "code", "hint"),
    [
        ("fastapi", "import penstock.integrations.fastapi", "pip install 'penstock[fastapi]'"),
        ("redis", "import penstock.stores.redis", "pip install 'penstock[redis]'"),
        ("hiredis", "import penstock.stores.redis", "pip install 'penstock[redis]'"),
        ("yaml", "from penstock import Gate; Gate.from_file('r')", "pip install 'penstock[rules]'"),
        (
            "redis",
            "import os; os.environ['PENSTOCK_STORE'] = 'redis://localhost'\n"
            "from penstock.integrations.asgi import PenstockMiddleware\n"
            "PenstockMiddleware(None, limit='1/minute', from_env=True)",
            "pip install 'penstock[redis]'",
        ),
    ],
)
def test_an_import_says_what_to_install(missing: str, code: str, hint: str) -> None:
    last = run(missing, code).stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: ")
    assert hint in last


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        ("yaml", ["check", "rules.yaml"], "rules"),
        ("yaml", ["explain", "rules.yaml", "user=1"], "rules"),
        ("yaml", ["serve", "--rules", "rules.yaml"], "server"),
        ("yaml", ["serve", "--config", "config.yaml"], "server"),
        ("httptools", ["serve", "--rules", "rules.yaml"], "server"),
        ("yaml", ["proxy", "--rules", "r.yaml", "--upstream", "http://localhost:1"], "server"),
    ],
)
def test_a_command_says_what_to_install(missing: str, arguments: list[str], extra: str) -> None:
    done = run(missing, f"from penstock.cli import main; sys.exit(main({arguments!r}))")
    assert done.stdout == ""
    assert done.stderr == (
        f"penstock {arguments[0]}: this needs {missing}: pip install 'penstock[{extra}]'\n"
    )
    assert done.returncode == 2


def test_a_module_that_is_no_extra_is_still_an_error() -> None:
    broken = (
        "import penstock.cli.check as check\ncheck.run = lambda arguments: __import__('nowhere')"
    )
    code = f"{broken}\nfrom penstock.cli import main; main(['check', 'x'])"
    assert "No module named 'nowhere'" in run("yaml", code).stderr


@pytest.mark.parametrize("kind", [Gate, AsyncGate])
@pytest.mark.parametrize("rules", ["rules.yaml", "domain: a\n", {"domain": "a"}, None])
def test_a_gate_is_made_of_rules(kind: type[penstock.Gate], rules: object) -> None:
    with pytest.raises(TypeError, match=rf"{kind.__name__}.from_file\('rules.yaml'\).*from_rules"):
        kind(rules)  # type: ignore[arg-type]  # that is the point
