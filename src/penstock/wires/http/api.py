"""The HTTP wire's paths, put together."""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.integrations.deciding.identity import Trust
from penstock.service import rls_json
from penstock.service.health import Health
from penstock.service.service import Service
from penstock.wires.http.auth import AuthApi
from penstock.wires.http.check import CheckApi
from penstock.wires.http.messages import HttpAnswer, HttpRequest, as_json, as_text
from penstock.wires.http.openapi import DOCUMENT
from penstock.wires.http.routes import Routes

INDEX = """\
Penstock: rate limits as a service.

POST /v1/check      {"domain": "api", "descriptors": [{"user": "42"}]}
POST /json          Envoy's RateLimitRequest as JSON
ANY  /v1/auth       forward auth for nginx, Traefik and Caddy
GET  /healthcheck   whether it serves
GET  /openapi.json  all of this, for programs
"""


def http_api(service: Service, health: Health, trust: Trust, *, refunds: bool = False) -> Routes:
    """All that port 8080 answers. With ``refunds``, whoever asks may give hits back."""

    def json_api(request: HttpRequest) -> HttpAnswer | Awaitable[HttpAnswer]:
        found = rls_json.respond(service, request.body, refunds=refunds)
        return _as_answer(found) if isinstance(found, tuple) else _later(found)

    def healthcheck(request: HttpRequest) -> HttpAnswer:
        part = health.part()
        return as_text("OK") if part.ok else as_text(part.reason or "not serving", 500)

    return Routes(
        {
            "/": {"GET": lambda request: as_text(INDEX)},
            "/v1/check": {"POST": CheckApi(service, refunds=refunds)},
            "/json": {"POST": json_api},
            "/v1/auth": {"*": AuthApi(service, service.gate, trust)},
            "/healthcheck": {"GET": healthcheck},
            "/openapi.json": {"GET": lambda request: as_json(DOCUMENT)},
        }
    )


async def _later(waiting: Awaitable[rls_json.Answered]) -> HttpAnswer:
    return _as_answer(await waiting)


def _as_answer(found: rls_json.Answered) -> HttpAnswer:
    return HttpAnswer(*found)
