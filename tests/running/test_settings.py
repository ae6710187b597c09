"""Settings: from flags, the environment and a file, in this order."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from penstock.running.settings import Settings, SettingsError, address_of
from penstock.running.settings_sources import add_flags, flag_of, load, reference

ROOT = Path(__file__).parents[2]


def parsed(*arguments: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return vars(parser.parse_args(arguments))


def test_a_flag_goes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "penstock.yaml"
    file.write_text("workers: 2\nhttp: 0.0.0.0:1\nrules: [a.yaml, b]\nwatch: off\ngrpc: off\n")
    environment = {"PENSTOCK_HTTP": "0.0.0.0:2", "PENSTOCK_WORKERS": "3", "OTHER": "x"}
    settings = load(parsed("--config", str(file), "--workers", "4"), environment)
    assert (settings.workers, settings.http, settings.rules) == (4, "0.0.0.0:2", ("a.yaml", "b"))
    assert (settings.watch, settings.grpc) == (False, "off")
    assert load({}, {}) == Settings()
    assert load({}, {**environment, "PENSTOCK_CONFIG": str(file)}).grpc == "off"


def test_every_option_has_a_flag_and_a_variable() -> None:
    flags = parsed()
    assert flags == {"config": None}, "what is not given is left to the others"
    for each in fields(Settings):
        value = getattr(Settings(), each.name)
        if isinstance(value, bool):
            text = "no" if value else "yes"
            # What some of them need.
            token = {"PENSTOCK_ADMIN_TOKEN_FILE": "x", "PENSTOCK_STORE": "redis://localhost"}
            variable = {f"PENSTOCK_{each.name.upper()}": text}
            assert getattr(load({}, {**token, **variable}), each.name) is not value
            no = "--no-" + flag_of(each)[2:] if value else flag_of(each)
            assert getattr(load(parsed(no), token), each.name) is not value


def test_lists_may_be_given_again_or_with_commas() -> None:
    assert load(parsed("--rules", "a", "--rules", "b,c"), {}).rules == ("a", "b,c")
    assert load({}, {"PENSTOCK_TRUSTED": "10.0.0.0/8, unix"}).trusted == ("10.0.0.0/8", "unix")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"PENSTOCK_WORKERS": "many"}, "PENSTOCK_WORKERS: not a number: 'many'"),
        ({"PENSTOCK_WORKERS": "0"}, "workers is from 1 to 512"),
        ({"PENSTOCK_WATCH": "perhaps"}, "PENSTOCK_WATCH: not a switch"),
        ({"PENSTOCK_HTTP": "8080"}, "http is HOST:PORT, unix:PATH or off"),
        ({"PENSTOCK_HTTP": "a:99999"}, "http is HOST:PORT"),
        ({"PENSTOCK_WIRE": "carrier pigeon"}, "wire is one of auto, nghttp2, grpcio"),
        ({"PENSTOCK_WORKERS": "2", "PENSTOCK_STORE": "memory"}, "not shared between workers"),
        ({"PENSTOCK_LEASE_REPLICAS": "1"}, "lease_replicas is for leases: use it with --leased"),
        ({"PENSTOCK_LEASE_REPLICAS": "-1"}, "lease_replicas is at least 0, not -1"),
        ({"PENSTOCK_STORE": "leased+memory:"}, "leased needs a store in Redis .* not 'leased.me"),
        ({"PENSTOCK_LEASED": "yes"}, "leased needs a store in Redis .* not 'auto'"),
        (
            {"PENSTOCK_LEASED": "yes", "PENSTOCK_STORE": "shared:/tmp/x"},
            "leased needs a store in Redis .* not 'shared:/tmp/x'",
        ),
        ({"PENSTOCK_TLS_CERT": "a"}, "must be set together"),
        ({"PENSTOCK_TLS_CLIENT_CA": "a"}, "needs tls_cert"),
        ({"PENSTOCK_HTTP_TLS_CERT": "a"}, "http_tls_cert and http_tls_key must be set together"),
        ({"PENSTOCK_ADMIN_TLS_CLIENT_CA": "a"}, "admin_tls_client_ca needs admin_tls_cert"),
        ({"PENSTOCK_DIMENSION": "user"}, "dimension is NAME=SOURCE"),
        ({"PENSTOCK_STATSD": "nowhere"}, "statsd is HOST:PORT"),
        ({"PENSTOCK_HTTP": "off", "PENSTOCK_GRPC": "off"}, "nothing to serve"),
        ({"PENSTOCK_TRUSTED": "everybody"}, "trusted names networks"),
        ({"PENSTOCK_DRAIN": "a while"}, "drain"),
        ({"PENSTOCK_ON_FAILURE": "panic"}, "on_failure is one of"),
        ({"PENSTOCK_LOG_LEVEL": "loud"}, "log_level is one of"),
        ({"PENSTOCK_ADMIN_TOKEN_ALWAYS": "yes"}, "needs admin_token_file"),
        ({"PENSTOCK_ACCESS_SAMPLE": "0"}, "access_sample is above 0"),
        ({"PENSTOCK_SHARE": "half"}, "PENSTOCK_SHARE: not a fraction"),
    ],
)
def test_what_is_wrong_is_said_with_its_source(values: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load({}, values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workers: [1]\n", "penstock.yaml: workers: not a number"),
        ("wrokers: 1\n", "unknown option 'wrokers'; known are rules, store"),
        ("- 1\n", "a mapping of options"),
        ("a: [\n", "penstock.yaml"),
        ("http: 8080\n", "http is a text"),
    ],
)
def test_a_wrong_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "penstock.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=message):
        load({"config": str(file)}, {})
    with pytest.raises(SettingsError, match="No such file"):
        load({"config": str(tmp_path / "none")}, {})


def test_addresses() -> None:
    assert address_of("127.0.0.1:80", "http") == ("127.0.0.1", 80)
    assert address_of("[::1]:80", "http") == ("::1", 80)
    assert address_of(":80", "http") == ("", 80)
    assert address_of("unix:/run/p.sock", "http") == "/run/p.sock"
    assert address_of("unix:///run/p.sock", "http") == "/run/p.sock"
    assert address_of("off", "http") is None


def test_the_reference_page_has_the_table_of_all_options() -> None:
    page = (ROOT / "docs/reference/service.md").read_text()
    assert reference() in page, "run: python tools/reference.py"
