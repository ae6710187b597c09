"""The paths of the HTTP wire."""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.integrations.deciding.identity import Trust
from penstock.service import rls_json
from penstock.service.health import Health
from penstock.service.service import Service
from penstock.wires.http.auth import AuthApi
from penstock.wires.http.check import CheckApi
from penstock.wires.http.messages import HttpRequest, HttpResponse, as_json, as_text
from penstock.wires.http.openapi import DOCUMENT
from penstock.wires.http.routes import Routes

INDEX = """\
Penstock: rate limits as a service.

POST /v1/check      {"domain": "api", "descriptors": [{"user": "42"}]}
POST /json          Envoy's RateLimitRequest as JSON
ANY  /v1/auth       forward auth for nginx, Traefik and Caddy
GET  /healthcheck   whether the service is healthy
GET  /openapi.json  the OpenAPI document
"""


def http_api(service: Service, health: Health, trust: Trust, *, refunds: bool = False) -> Routes:
    """All paths of port 8080. With ``refunds``, clients may give hits back."""

    def json_api(request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        response = rls_json.respond(service, request.body, refunds=refunds)
        return HttpResponse(*response) if isinstance(response, tuple) else _later(response)

    def healthcheck(request: HttpRequest) -> HttpResponse:
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


async def _later(waiting: Awaitable[rls_json.Answered]) -> HttpResponse:
    return HttpResponse(*await waiting)
