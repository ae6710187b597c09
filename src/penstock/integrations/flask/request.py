"""Flask's request as a `Request`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, cast

import flask
from flask import current_app

from penstock.integrations.deciding.request import identity_of
from penstock.integrations.wsgi.request import WsgiRequest


class FlaskRequest(WsgiRequest):
    """``native`` is Flask's request; ``route`` is the rule, such as ``/users/<int:id>``."""

    native: flask.Request

    def __init__(self, scope: str) -> None:
        native = cast(Any, flask.request)._get_current_object()
        super().__init__(native.environ, native)
        self.scope = scope

    @property
    def user(self) -> str | None:
        """Flask-Login's user, or ``g.user``, or the server's ``REMOTE_USER``."""
        if hasattr(current_app, "login_manager"):
            return _logged_in(import_module("flask_login").current_user)
        return identity_of(flask.g.get("user")) or super().user

    @cached_property
    def cookies(self) -> Mapping[str, str]:
        """As the view reads them."""
        return self.native.cookies.to_dict()

    @property
    def route(self) -> str | None:
        rule = self.native.url_rule
        return None if rule is None else rule.rule


def _logged_in(user: Any) -> str | None:
    if not user or not user.is_authenticated:
        return None
    return str(user.get_id())
