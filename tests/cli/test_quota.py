"""``penstock quota``: what it prints, and its exit codes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.quota import Ledger

pytest.importorskip("yaml")


@pytest.fixture(autouse=True)
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{tmp_path}/quota.db"
    monkeypatch.setenv("PENSTOCK_LEDGER", url)
    monkeypatch.setenv("LOGNAME", "ann")
    file = tmp_path / "plans.yaml"
    file.write_text(
        "plans:\n  free: {requests: 10000/month}\n"
        "  pro: {requests: 1000000/month, rollover: 100000, tokens: 5M/month}\n"
    )
    assert main(["quota", "plans", "--from", str(file)]) == 0
    assert main(["quota", "open", "acme", "--plan", "pro", "--tz", "Asia/Taipei"]) == 0
    return url


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(["quota", *arguments]) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.err


def test_a_balance_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    grant = ("grant", "acme", "1_000_000", "--meter", "tokens", "--ref", "invoice-17")
    out = run(capsys, *grant, "--expires", "2099-12-31")
    assert run(capsys, *grant, "--expires", "2099-12-31") == out  # the same ref: once
    lines = out.splitlines()
    assert lines[0] == "acme  plan pro, times in Asia/Taipei"
    assert lines[2].split() == ["meter", "available", "held", "used", "of", "period", "renews"]
    assert lines[4].split()[:5] == ["tokens", "6,000,000", "0", "0", "5,000,000"]
    assert lines[-1].split() == [
        "tokens", "top-up", "1,000,000", "0", "1,000,000", "2099-12-31", "invoice-17",
    ]  # fmt: skip
    assert "\x1b" not in out


def test_balances_of_all_accounts(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "open", "empty")
    out = run(capsys, "balance")
    assert [line.split()[0] for line in out.splitlines()] == ["account", "acme", "acme", "empty"]
    assert len(json.loads(run(capsys, "balance", "--json"))) == 2
    balance = json.loads(run(capsys, "balance", "acme", "--json"))
    assert balance["meters"]["tokens"]["available"] == 5_000_000
    assert balance["meters"]["tokens"]["period"]["ends"].endswith("T00:00:00+08:00")


def test_history_and_corrections(capsys: pytest.CaptureFixture[str]) -> None:
    run(
        capsys, "adjust", "acme", "--meter", "tokens", "--ref", "a", "--note", "twice", "--", "-500"
    )
    run(capsys, "change-plan", "acme", "free")
    lines = run(capsys, "history", "acme").splitlines()
    assert "time in Asia/Taipei" in lines[0]
    assert lines[3].split()[3:] == ["adjust", "tokens", "-500", "a", "ann", "twice"]
    assert "free from " in lines[4]
    assert run(capsys, "history", "acme", "--last", "1").splitlines()[-1] == "3 older: --last N"
    assert len(json.loads(run(capsys, "history", "acme", "--json", "--after", "2"))) == 2
    out = run(capsys, "export", "--format", "csv", "--after", "2")
    assert [row["kind"] for row in csv.DictReader(io.StringIO(out))] == ["adjust", "plan"]
    assert len(run(capsys, "export", "acme").splitlines()) == 4


def test_a_lost_stock_is_found_and_written_off(
    capsys: pytest.CaptureFixture[str], url: str
) -> None:
    assert run(capsys, "holds") == "nothing is held\n"
    with Ledger(url) as ledger:
        ledger.stock("acme", meter="tokens", id="gate-1", granted=5000, settled=800, lasts="1us")
        ledger.stock("acme", meter="tokens", id="gate-2", granted=70, lasts="1us")
    head, first, second = run(capsys, "holds", "acme").splitlines()
    assert head.split() == [
        "account", "meter", "kind", "held", "settled", "id", "since", "until", "time", "in",
    ]  # fmt: skip
    assert first.split()[:6] == ["acme", "tokens", "stock", "4,200", "800", "gate-1"]
    assert first.endswith("Asia/Taipei")
    assert second.split()[3] == "70"
    out = run(capsys, "reconcile")
    assert "4,200 held by gate-1" in out
    assert "write-off ACCOUNT ID" in out
    out = run(capsys, "write-off", "acme", "gate-1", "--note", "host lost")
    assert out == "gate-1 is closed: 4,200 tokens spent\n"
    assert "closed before: 5,000 settled" in run(capsys, "write-off", "acme", "gate-1")
    out = run(capsys, "write-off", "acme", "gate-2", "--give-back")
    assert out == "gate-2 is closed: 70 tokens given back\n"
    assert run(capsys, "holds") == "nothing is held\n"
    history = run(capsys, "history", "acme").splitlines()
    assert history[-2].split()[-4:] == ["gate-1", "ann", "host", "lost"]
    with Ledger(url) as ledger:
        assert ledger.balance("acme")["tokens"].available == 5_000_000 - 5000
    assert "no hold 'gone'" in run(capsys, "write-off", "acme", "gone", code=1)
    assert "there is no account 'acm'" in run(capsys, "holds", "acm", code=1)


def test_reconcile_has_an_exit_code(capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert run(capsys, "reconcile") == "ok: 1 account, 2 entries\n"
    import sqlite3

    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    connection.execute("UPDATE penstock_balance SET granted = granted - 1 WHERE meter = 'tokens'")
    connection.commit()
    connection.close()
    assert main(["quota", "reconcile"]) == 1
    assert "4,999,999" in capsys.readouterr().out
    assert main(["quota", "reconcile", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_plans(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = run(capsys, "plans").splitlines()
    assert lines[1].split() == ["free", "requests", "10,000", "month", "0", "0"]
    assert json.loads(run(capsys, "plans", "--json"))["pro"]["tokens"]["amount"] == 5_000_000
    file = tmp_path / "bad.yaml"
    file.write_text("gold: {tokens: 5/mnth}\n")
    err = run(capsys, "plans", "--from", str(file), code=2)
    assert f"{file}: plan 'gold': 'mnth' is no period" in err
    assert run(capsys, "plans", "--from", str(tmp_path / "none.yaml"), code=2)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["balance", "acne"], 1, "there is no account 'acne' (did you mean 'acme'?): to open it,"),
        (["open", "acme", "--plan", "free"], 1, "account 'acme' exists, with plan 'pro'"),
        (["open", "b", "--plan", "gold"], 1, "there is no plan 'gold'; there are: free, pro"),
        (["open", "b", "--tz", "Mars"], 2, "'Mars' is no time zone"),
        (["grant", "acme", "-5", "--meter", "m", "--ref", "r"], 2, "use adjust"),
        (["balance", "--ledger", "sqllite:///x"], 2, "did you mean 'sqlite'?"),
        (["balance", "--ledger", "postgresql://u:secret@127.0.0.1:1/x"], 1, "127.0.0.1:1/x"),
    ],
)
def test_mistakes(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    err = run(capsys, *arguments, code=code)
    assert err.startswith(f"penstock quota {arguments[0]}: ")
    assert message in err
    assert "secret" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["balanc"], "unknown verb 'balanc' (did you mean 'balance'?): use one of open, balance"),
        (["grant", "acme", "5.5", "--meter", "m", "--ref", "r"], "'5.5' is no whole number"),
        (["balance", "--jsn"], "did you mean '--json'?"),
        (["grant", "acme", "5"], "--meter, --ref"),
    ],
)
def test_bad_arguments(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["quota", *arguments])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_which_ledger(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_LEDGER")
    assert "which ledger? --ledger sqlite:///quota.db" in run(capsys, "balance", code=2)
    assert main(["quota"]) == 2


def test_a_ledger_is_used_while_others_use_it(capsys: pytest.CaptureFixture[str], url: str) -> None:
    with Ledger(url) as ledger:
        ledger.spend("acme", 5, meter="tokens")
        run(capsys, "grant", "acme", "7", "--meter", "tokens", "--ref", "a")
        assert ledger.balance("acme")["tokens"].available == 5_000_002
