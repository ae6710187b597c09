"""/v1/auth: may this request of a proxy go ahead? Forward auth, as proxies call it.

nginx (``auth_request``), Traefik (``forwardAuth``) and Caddy (``forward_auth``) send a request
without its body and go on if the answer is 2xx. What they ask about is in headers, which are
believed from trusted proxies only. Rules decide by the dimensions of a request, as they do
for middleware.

They say by ``X-Original-...`` (nginx, by convention) or ``X-Forwarded-...`` (the others) what
was asked. Whoever writes the one passes the other on as the client sent it: a request with
both is refused, or a client could choose what the rules see.

nginx knows 401 and 403 as refusals, and nothing else: for it, ``/v1/auth?refuse=403``.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any
from urllib.parse import parse_qs

from penstock.async_gate import AnyGate
from penstock.errors import PenstockError
from penstock.integrations.deciding.descriptors import ADDRESS, Descriptors
from penstock.integrations.deciding.dimensions import DIMENSIONS, family
from penstock.integrations.deciding.http import fields, refusal
from penstock.integrations.deciding.identity import Trust
from penstock.integrations.deciding.paths import decoded, plain_raw
from penstock.integrations.deciding.request import Request
from penstock.rules.deciding.verdict import DENIED, Verdict
from penstock.service.service import Service
from penstock.wires.http.check import error_of
from penstock.wires.http.messages import HttpAnswer, HttpRequest, as_error

ORIGINAL, FORWARDED = "x-original-", "x-forwarded-"
REFUSALS = (401, 403, 429)


class ForwardedRequest(Request):
    """The request that a proxy asks about. ``native`` is the one that it asked with.

    Its path cannot be changed from here. Where servers could read it in several ways, and
    rules ask for it, the answer is 400: see `penstock.integrations.deciding.paths`. Raises
    `PenstockError` if nobody knows who said what.
    """

    def __init__(self, asked: HttpRequest, trust: Trust) -> None:
        self.native = asked
        self.trust = trust
        told = [
            kind
            for kind in (ORIGINAL, FORWARDED)
            if any(asked.header(kind + name) is not None for name in ("method", "uri"))
        ]
        if len(told) > 1:
            raise PenstockError(
                "X-Original-... and X-Forwarded-... both say what was asked: let the proxy"
                " clear those that it does not write"
            )
        self._said = told[0] if told else FORWARDED
        for name in ("method", "uri", "host"):
            if len([key for key, _ in asked.headers if key == self._said + name]) > 1:
                raise PenstockError(
                    f"{self._said}{name} came twice: let the proxy set it, and not add to it"
                )
        # In upper case, as servers go by it.
        self.method = (asked.header(self._said + "method") or asked.method).upper()
        self._raw_path = (asked.header(self._said + "uri") or "/").partition("?")[0]
        self.path = decoded(self._raw_path)

    @property
    def rule_path(self) -> str:
        return plain_raw(self._raw_path)

    @property
    def peer(self) -> str | None:
        peer: str | None = self.native.peer
        return peer

    def header(self, name: str) -> str | None:
        found: str | None = self.native.header(name.lower())
        return found

    def first(self, name: str) -> str | None:
        wanted = name.lower()
        return next((value for key, value in self.native.headers if key == wanted), None)

    @property
    def host(self) -> str | None:
        asked: HttpRequest = self.native
        return asked.header(self._said + "host") or asked.header("host")


class AuthApi:
    """The handler."""

    def __init__(self, service: Service, gate: AnyGate, trust: Trust) -> None:
        self._service = service
        self._gate = gate
        self._trust = trust
        self._descriptors: dict[str | None, Descriptors[Request]] = {}
        gate.group(ADDRESS)

    def __call__(self, asked: HttpRequest) -> HttpAnswer | Awaitable[HttpAnswer]:
        if not self._trust.trusts(asked.peer):
            return as_error(403, "this endpoint is for trusted proxies: see --trusted")
        try:
            domain, refuse = _options(asked.query)
            request = ForwardedRequest(asked, self._trust)
            descriptors = self._of(domain).of(request)
            if not descriptors:
                return HttpAnswer(200)
            found = self._service.check(domain, descriptors, 1)
        except PenstockError as error:
            return error_of(error)
        if isinstance(found, Verdict):
            return self._answer(found, request, refuse)
        return self._later(found, request, refuse)

    async def _later(
        self, waiting: Awaitable[Verdict], request: Request, refuse: int
    ) -> HttpAnswer:
        try:
            return self._answer(await waiting, request, refuse)
        except PenstockError as error:
            return error_of(error)

    def _answer(self, verdict: Verdict, request: Request, refuse: int) -> HttpAnswer:
        told = verdict.told()
        now = self._service.now()
        if verdict.allowed:
            return HttpAnswer(200, headers=fields(told, now))
        denied = any(s.reason == DENIED and not s.allowed for s in verdict.statuses)
        made = refusal(told, now, accept=request.header("accept") or "", denied=denied)
        headers = [header for header in made.headers if header[0] != "Content-Type"]
        # For those who are told 403 and want to say 429.
        headers.append(("X-Penstock-Status", str(made.status)))
        status = made.status if made.status == 403 else refuse
        return HttpAnswer(status, made.body, headers, dict(made.headers)["Content-Type"])

    def _of(self, domain: str | None) -> Descriptors[Request]:
        found = self._descriptors.get(domain)
        if found is None:
            domains: Any = self._gate.rules.domains
            if domain is not None and domain not in domains:
                raise PenstockError(f"the rules have no domain {domain!r:.100}")
            if domain is None and len(domains) != 1:
                raise PenstockError("which domain? The rules have several: /v1/auth?domain=...")
            found = Descriptors(self._gate, DIMENSIONS, family, domain, strict=False)
            self._descriptors[domain] = found
        return found


def _options(query: str) -> tuple[str | None, int]:
    """The domain, and the status of a refusal, from the URL that the proxy was given."""
    if not query:
        return None, 429
    given = parse_qs(query, keep_blank_values=True)
    refuse = given.get("refuse", ["429"])[-1]
    if refuse not in {str(status) for status in REFUSALS}:
        raise PenstockError(f"refuse is 401, 403 or 429, not {refuse!r:.100}")
    return given.get("domain", [None])[-1], int(refuse)
