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
from penstock.wires.http.release import ReleaseApi
from penstock.wires.http.routes import Routes

INDEX = """\
Penstock: rate limits as a service.

POST /v1/check      {"domain": "api", "descriptors": [{"user": "42"}]}
POST /v1/release    {"lease": "..."}, for rules with concurrency
POST /json          Envoy's RateLimitRequest as JSON
ANY  /v1/auth       forward auth for nginx, Traefik and Caddy
GET  /healthcheck   whether the service is healthy
GET  /openapi.json  the OpenAPI document
"""


def http_api(
    service: Service,
    health: Health,
    trust: Trust,
    *,
    refunds: bool = False,
    auth: AuthApi | None = None,
) -> Routes:
    """All paths of port 8080.

    With ``refunds``, clients may give hits back. ``auth`` is the handler of /v1/auth, if it is not
    the usual one.
    """
    auth = auth or AuthApi(service, service.gate, trust)

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
            "/v1/release": {"POST": ReleaseApi(service)},
            "/json": {"*": json_api},  # as in Envoy's service
            "/v1/auth": {"*": auth},
            "/healthcheck": {"GET": healthcheck},
            "/openapi.json": {"GET": lambda request: as_json(DOCUMENT)},
        }
    )


async def _later(waiting: Awaitable[rls_json.StatusAndBody]) -> HttpResponse:
    return HttpResponse(*await waiting)
