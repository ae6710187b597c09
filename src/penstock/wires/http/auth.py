"""/v1/auth: forward auth: may this request of a proxy go ahead?

nginx (``auth_request``), Traefik (``forwardAuth``) and Caddy (``forward_auth``) send a request
without its body and continue if the response is 2xx. The original request is described in
headers, which are accepted from trusted proxies only. Rules decide by the dimensions of a request,
as in middleware.

These headers are ``X-Original-...`` (nginx, by convention) or ``X-Forwarded-...`` (the others). A
proxy that writes the one kind passes on the other as the client sent it: a request with both is
rejected, or a client could choose what the rules see.

nginx only knows 401 and 403 as refusals: use ``/v1/auth?refuse=403`` for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

from penstock.async_gate import AnyGate
from penstock.errors import PenstockError
from penstock.integrations.deciding.dead_rules import DeadRule, dead_rules
from penstock.integrations.deciding.descriptors import Descriptors, Dimension
from penstock.integrations.deciding.dimensions import PROXY_DIMENSIONS, family
from penstock.integrations.deciding.identity import Trust
from penstock.integrations.deciding.paths import decoded, plain_raw
from penstock.integrations.deciding.request import Request
from penstock.integrations.deciding.responses import fields, refusal
from penstock.rules.aliases import ADDRESSES, names_of
from penstock.rules.deciding.verdict import DENIED, Verdict
from penstock.service.service import Service
from penstock.wires.http.check_response import error_response
from penstock.wires.http.messages import HttpRequest, HttpResponse, as_error

ORIGINAL, FORWARDED = "x-original-", "x-forwarded-"
REFUSALS = (401, 403, 429)


class ForwardedRequest(Request):
    """The original request of a proxy. ``native`` is the request to /v1/auth.

    Its path cannot be changed here. If servers could read the path in several ways, and rules
    use it, the response is 400: see `penstock.integrations.deciding.paths`. Raises
    `PenstockError` if the headers are ambiguous.
    """

    def __init__(self, native: HttpRequest, trust: Trust) -> None:
        self.native = native
        self.trust = trust
        kinds = [
            kind
            for kind in (ORIGINAL, FORWARDED)
            if any(native.header(kind + name) is not None for name in ("method", "uri"))
        ]
        if len(kinds) > 1:
            raise PenstockError(
                "X-Original-... and X-Forwarded-... both describe the request: make the proxy"
                " clear those that it does not set"
            )
        self._prefix = kinds[0] if kinds else FORWARDED
        for name in ("method", "uri", "host"):
            if len([key for key, _ in native.headers if key == self._prefix + name]) > 1:
                raise PenstockError(
                    f"{self._prefix}{name} came twice: make the proxy set it, not append to it"
                )
        # In upper case, as servers use it.
        self.method = (native.header(self._prefix + "method") or native.method).upper()
        self._raw_path = (native.header(self._prefix + "uri") or "/").partition("?")[0]
        self.path = decoded(self._raw_path)

    @property
    def rule_path(self) -> str:
        return plain_raw(self._raw_path)

    @property
    def peer(self) -> str | None:
        peer: str | None = self.native.peer
        return peer

    def header(self, name: str) -> str | None:
        value: str | None = self.native.header(name.lower())
        return value

    def first(self, name: str) -> str | None:
        wanted = name.lower()
        return next((value for key, value in self.native.headers if key == wanted), None)

    @property
    def host(self) -> str | None:
        native: HttpRequest = self.native
        return native.header(self._prefix + "host") or native.header("host")


class AuthApi:
    """The handler of /v1/auth."""

    def __init__(
        self,
        service: Service,
        gate: AnyGate,
        trust: Trust,
        dimensions: Mapping[str, Dimension[Request]] | None = None,
    ) -> None:
        self._service = service
        self._gate = gate
        self._trust = trust
        self._descriptors: dict[str | None, Descriptors[Request]] = {}
        self._dimensions = proxy_dimensions(dimensions)
        for name in ADDRESSES:
            gate.group(name)

    def __call__(self, native: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        if not self._trust.trusts(native.peer):
            return as_error(403, "this endpoint is for trusted proxies: see --trusted")
        try:
            domain, refuse = _options(native.query)
            request = ForwardedRequest(native, self._trust)
            descriptors = self._of(domain).of(request)
            if not descriptors:
                self._service.count_unmatched(domain)
                return HttpResponse(200)
            verdict = self._service.check(domain, descriptors, 1)
        except PenstockError as error:
            return error_response(error)
        if isinstance(verdict, Verdict):
            return self._respond(verdict, request, refuse)
        return self._later(verdict, request, refuse)

    async def _later(
        self, waiting: Awaitable[Verdict], request: Request, refuse: int
    ) -> HttpResponse:
        try:
            return self._respond(await waiting, request, refuse)
        except PenstockError as error:
            return error_response(error)

    def _respond(self, verdict: Verdict, request: Request, refuse: int) -> HttpResponse:
        decisions = verdict.named_decisions()
        now = self._service.now()
        if verdict.allowed:
            return HttpResponse(200, headers=fields(decisions, now))
        denied = any(s.reason == DENIED and not s.allowed for s in verdict.statuses)
        answer = refusal(decisions, now, accept=request.header("accept") or "", denied=denied)
        headers = [header for header in answer.headers if header[0] != "Content-Type"]
        # For proxies that get 403 and want to send 429.
        headers.append(("X-Penstock-Status", str(answer.status)))
        status = answer.status if answer.status == 403 else refuse
        return HttpResponse(status, answer.body, headers, dict(answer.headers)["Content-Type"])

    def dead_rules(self, everywhere: bool = False) -> list[DeadRule]:
        """The rules that do not apply here: of domains that were asked for, or of all."""
        asked = set() if everywhere else {*self._descriptors}
        if None in asked:
            asked.update(self._gate.rules.domains)  # there is one
        return [
            rule
            for rule in dead_rules(self._gate.rules, is_known(self._dimensions))
            if everywhere or rule.domain in asked
        ]

    def _of(self, domain: str | None) -> Descriptors[Request]:
        descriptors = self._descriptors.get(domain)
        if descriptors is None:
            domains: Any = self._gate.rules.domains
            if domain is not None and domain not in domains:
                raise PenstockError(f"the rules have no domain {domain!r:.100}")
            if domain is None and len(domains) != 1:
                raise PenstockError("the rules have several domains: use /v1/auth?domain=...")
            descriptors = Descriptors(self._gate, self._dimensions, family, domain, strict=False)
            self._descriptors[domain] = descriptors
        return descriptors


def proxy_dimensions(
    more: Mapping[str, Dimension[Request]] | None,
) -> Mapping[str, Dimension[Request]]:
    """The dimensions of a request that a proxy describes, with further ones."""
    return {**PROXY_DIMENSIONS, **(more or {})}


def is_known(dimensions: Mapping[str, Dimension[Request]]) -> Callable[[str], bool]:
    """Whether a key is one of these dimensions, under any name, or of a family."""

    def knows(key: str) -> bool:
        return any(name in dimensions for name in names_of(key)) or family(key) is not None

    return knows


def _options(query: str) -> tuple[str | None, int]:
    """The domain, and the status of a refusal, from the URL configured in the proxy."""
    if not query:
        return None, 429
    options = parse_qs(query, keep_blank_values=True)
    refuse = options.get("refuse", ["429"])[-1]
    if refuse not in {str(status) for status in REFUSALS}:
        raise PenstockError(f"refuse must be 401, 403 or 429, not {refuse!r:.100}")
    return options.get("domain", [None])[-1], int(refuse)
