"""``manage.py check`` on ``settings.PENSTOCK``."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core.checks import run_checks
from django.test import modify_settings, override_settings

from integrations.django.site import MIDDLEWARE, site
from penstock.integrations.django.apps import check_settings

INSTALLED = {"append": "penstock.integrations.django"}


def problems(options: Any, **more: Any) -> list[tuple[str, str]]:
    with site([], options, **more):
        return [(each.id, f"{each.msg} {each.hint}") for each in check_settings()]


@pytest.mark.parametrize(
    "options", [{"limit": "100/minute"}, {"limit": ["1/second", "9/day"]}, {"trusted": []}, None]
)
def test_settings_that_are_right(options: Any) -> None:
    assert problems(options) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"limit": "100/fortnight"}, "PENSTOCK: .*fortnight"),
        ({"limt": "100/minute"}, "did you mean 'limit'?"),
        ({"limit": "1/minute", "key": "no.such.function"}, "No module named 'no'"),
        ({"limit": "1/minute", "key": "user"}, "write key=by_user"),
        ({"gate": "no-such-file.yaml", "watch": True}, "no-such-file.yaml"),
        ({"limit": "1/minute", "trusted": "10.0.0.0/8"}, "trusted is a list"),
        ({"limit": "1/minute", "enabled": "no"}, "enabled is True or False"),
        ("100/minute", "PENSTOCK is a dict"),
    ],
)
def test_settings_that_are_wrong(options: Any, words: str) -> None:
    ((number, text),) = problems(options)
    assert number == "penstock.E002"
    assert re.search(words, text)


def test_a_middleware_without_a_setting() -> None:
    with site([]), override_settings(MIDDLEWARE=[MIDDLEWARE], PENSTOCK=None):
        (found,) = check_settings()
    assert found.id == "penstock.E001"
    assert "PENSTOCK = {'limit': '100/minute'}" in str(found.hint)


def test_a_setting_without_the_middleware() -> None:
    with site([]), override_settings(PENSTOCK={"limit": "1/minute"}):
        (found,) = check_settings()
        assert found.id == "penstock.W001"
        assert MIDDLEWARE in str(found.hint)
    with site([]), override_settings(PENSTOCK={"trusted": ["10.0.0.0/8"]}):
        assert check_settings() == []  # only for the limits of views


def test_django_finds_the_check() -> None:
    with modify_settings(INSTALLED_APPS=INSTALLED), site([], {"limit": "100/fortnight"}):
        assert "penstock.E002" in [each.id for each in run_checks()]
