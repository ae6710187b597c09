"""Options from the environment, and variables that are misspelt."""

from __future__ import annotations

import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.urls import path
from flask import Flask
from starlette.testclient import TestClient
from werkzeug.test import Client

from integrations.django.site import Asker, site
from penstock import AsyncGate, Gate, MemoryStore, SharedMemoryStore
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.deciding import environment, notices
from penstock.integrations.deciding.environment import VARIABLES, with_environment
from penstock.integrations.django import limit as django_limit
from penstock.integrations.flask import Penstock
from penstock.integrations.wsgi import PenstockWSGI
from penstock.running.settings import Settings

RULES = "domain: web\ndescriptors: [{key: path, limits: 1/minute}]\n"


@pytest.fixture(autouse=True)
def nothing_logged_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_logged", set())
    environment._store.cache_clear()


@pytest.fixture
def setenv(monkeypatch: pytest.MonkeyPatch) -> Any:
    def set_all(**variables: str) -> None:
        for name, text in variables.items():
            monkeypatch.setenv(f"PENSTOCK_{name}", text)

    return set_all


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def hello_wsgi(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return [b"hello"]


def read(**options: Any) -> dict[str, Any]:
    return with_environment({"from_env": True, **options})


# Which options ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "text", "option"),
    [
        ("LIMIT", "5/minute", {"limit": "5/minute"}),
        ("LIMIT", "5/minute; 100/day", {"limit": ["5/minute", "100/day"]}),
        ("RULES", "rules.yaml", {"gate": "rules.yaml"}),
        ("STORE", "memory", {}),
        ("TRUSTED", "10.0.0.0/8, unix", {"trusted": ["10.0.0.0/8", "unix"]}),
        ("HOPS", "2", {"hops": 2}),
        ("FORWARDED", "forwarded", {"forwarded": "forwarded"}),
        ("EXEMPT", "/health,/static/*", {"exempt": ["/health", "/static/*"]}),
        ("SHADOW", "1", {"shadow": True}),
        ("ON_FAILURE", "closed", {"on_failure": "closed"}),
        ("FIELDS", "ietf", {"fields": "ietf"}),
    ],
)
def test_a_variable_is_an_option(
    setenv: Any, variable: str, text: str, option: dict[str, Any]
) -> None:
    setenv(**{variable: text})
    assert read() == option
    assert with_environment({}) == {}  # only if it is asked for


def test_variables_for_rules(setenv: Any) -> None:
    setenv(DOMAIN="web", WATCH="true")
    assert read() == {}
    setenv(RULES="rules.yaml")
    assert read() == {"gate": "rules.yaml", "domain": "web", "watch": True}


def test_a_store_by_its_name(setenv: Any, tmp_path: Path) -> None:
    setenv(STORE=f"shared:{tmp_path / 'limits'}")
    first, second = read()["store"], read()["store"]
    assert isinstance(first, SharedMemoryStore)
    assert first is second  # however many limits are counted there


def test_a_store_in_redis(setenv: Any) -> None:
    from penstock.stores.redis import RedisStore

    setenv(STORE="redis://localhost:6379/0")
    store = read()["store"]
    assert isinstance(store, RedisStore)
    store.close()


@pytest.mark.parametrize(
    ("given", "variables", "options"),
    [
        ({"limit": "1/minute"}, {"LIMIT": "2/minute"}, {"limit": "1/minute"}),
        ({"limit": "1/minute"}, {"RULES": "rules.yaml"}, {"limit": "1/minute"}),
        ({"gate": "a.yaml"}, {"LIMIT": "1/minute"}, {"gate": "a.yaml"}),
        ({"hops": 1}, {"TRUSTED": "10.0.0.0/8"}, {"hops": 1}),
        ({"trusted": []}, {"HOPS": "2", "FORWARDED": "forwarded"}, {"trusted": []}),
        ({"shadow": False}, {"SHADOW": "1", "FIELDS": "ietf"}, {"shadow": False, "fields": "ietf"}),
        ({"store": None}, {"FIELDS": "ietf"}, {"fields": "ietf"}),
    ],
)
def test_what_is_given_takes_precedence(
    setenv: Any, given: dict[str, Any], variables: dict[str, str], options: dict[str, Any]
) -> None:
    setenv(**variables)
    assert read(**given) == options


def test_a_gate_has_its_own_store(setenv: Any) -> None:
    setenv(STORE="shared:/nowhere/at/all", WATCH="1", FIELDS="ietf")
    gate = Gate.from_rules(RULES)
    assert read(gate=gate) == {"gate": gate, "fields": "ietf"}


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"LIMIT": "5 bananas"}, "PENSTOCK_LIMIT: .*bananas"),
        ({"LIMIT": ""}, "PENSTOCK_LIMIT: "),
        ({"LIMIT": "1/minute", "RULES": "r.yaml"}, "PENSTOCK_LIMIT and PENSTOCK_RULES are both"),
        ({"RULES": " "}, "PENSTOCK_RULES is empty"),
        ({"HOPS": "two"}, "PENSTOCK_HOPS is a whole number, such as 1, not 'two'"),
        ({"SHADOW": "on"}, "PENSTOCK_SHADOW is 1, 0, true or false, not 'on'"),
        ({"STORE": "redis"}, "PENSTOCK_STORE: the store's URL is incomplete after 'redis'"),
        ({"STORE": "shared:"}, "PENSTOCK_STORE: the store's URL is incomplete after 'shared'"),
        ({"STORE": "http://x"}, "PENSTOCK_STORE: "),
    ],
)
def test_wrong_variables(setenv: Any, variables: dict[str, str], words: str) -> None:
    setenv(**variables)
    with pytest.raises(ValueError, match=words):
        read()


def test_from_env_is_no_text() -> None:
    with pytest.raises(TypeError, match="from_env is True or False"):
        read(from_env="1")


# In every framework ----------------------------------------------------------------------------


def test_in_asgi(setenv: Any) -> None:
    setenv(LIMIT="1/minute", EXEMPT="/health")
    client = TestClient(PenstockMiddleware(hello, from_env=True))
    statuses = [client.get(path).status_code for path in ("/", "/", "/health")]
    assert statuses == [200, 429, 200]


def test_in_wsgi_with_rules(setenv: Any, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    setenv(RULES=str(tmp_path / "rules.yaml"))
    client = Client(PenstockWSGI(hello_wsgi, from_env=True))
    assert [client.get(path).status_code for path in ("/", "/", "/a")] == [200, 429, 200]


def test_in_flask_views_inherit(setenv: Any) -> None:
    setenv(LIMIT="2/minute", TRUSTED="127.0.0.1")
    app = Flask("shop")
    penstock = Penstock(app, from_env=True)
    app.add_url_rule("/", "home", lambda: "hello")
    app.add_url_rule("/one", "one", penstock.limit("1/minute")(lambda: "one"))
    client = app.test_client()
    assert [client.get("/").status_code for _ in range(3)] == [200, 200, 429]
    hosts = [{"X-Forwarded-For": f"192.0.2.{last}"} for last in (1, 2, 1)]
    assert [client.get("/one", headers=each).status_code for each in hosts] == [200, 200, 429]


def test_in_django_views_inherit(setenv: Any) -> None:
    setenv(LIMIT="2/minute", FIELDS="ietf")
    options = {"from_env": True}
    with site([], options):
        view = django_limit("1/minute")(lambda request: HttpResponse("one"))
    home = path("", lambda request: HttpResponse("hello"))
    with site([home, path("one", view)], options):
        asker = Asker(False)
        assert asker.statuses("/", "/", "/") == [200, 200, 429]
    with site([path("one", view)]):
        headers = dict(Asker(False).ask("/one").headers)
    assert "RateLimit" in headers
    assert "X-RateLimit-Limit" not in headers


def test_in_django_a_wrong_variable_is_a_wrong_setting(setenv: Any) -> None:
    setenv(HOPS="two")
    with site([], {"from_env": True}), pytest.raises(ImproperlyConfigured, match="PENSTOCK_HOPS"):
        Asker(False).ask()


# Misspelt --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("PENSTOCK_ENABLE", "PENSTOCK_ENABLED"),
        ("PENSTOCK_LIMITS", "PENSTOCK_LIMIT"),
        ("PENSTOCK_RULE", "PENSTOCK_RULES"),
        ("PENSTOCK_STOER", "PENSTOCK_STORE"),
        ("PENSTOCK_TRUST", "PENSTOCK_TRUSTED"),
        ("PENSTOCK_ONFAILURE", "PENSTOCK_ON_FAILURE"),
    ],
)
def test_a_misspelt_variable_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wrong: str, right: str
) -> None:
    monkeypatch.setenv(wrong, "1")
    for _ in range(2):
        PenstockMiddleware(hello, limit="1/minute")
        PenstockWSGI(hello_wsgi, limit="1/minute")
    (record,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert (
        record.getMessage() == f"the environment variable {wrong} is unknown: did you mean {right}?"
    )


def test_variables_of_others_are_not_misspelt(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = {f"PENSTOCK_{each.name.upper()}" for each in fields(Settings)}
    names |= {"PENSTOCK_CONFIG", "PENSTOCK_PURE", "PENSTOCK_ADMIN_TOKEN"}
    # Kubernetes sets these in every pod if a service is called penstock.
    names |= {"PENSTOCK_PORT", "PENSTOCK_SERVICE_HOST", "PENSTOCK_SERVICE_PORT"}
    names |= {"PENSTOCK_PORT_8080_TCP", "PENSTOCK_PORT_8080_TCP_ADDR", "PENSTOCK_SERVICE_PORT_HTTP"}
    for name in names - VARIABLES:
        monkeypatch.setenv(name, "1")
    PenstockMiddleware(hello, limit="1/minute", store=MemoryStore())
    assert caplog.records == []


def test_variables_of_the_service_are_no_options(setenv: Any) -> None:
    setenv(RULES="no-such-file.yaml", STORE="auto", SHADOW="on")
    client = TestClient(PenstockMiddleware(hello, limit="1/minute"))
    assert [client.get("/").status_code for _ in range(2)] == [200, 429]
    assert isinstance(AsyncGate.from_rules(RULES).store, MemoryStore)
