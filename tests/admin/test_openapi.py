"""The document says what there is, and what is answered is as it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from admin.conftest import Site
from admin.test_audit import CHANGES
from admin.test_endpoints import BAD
from penstock.admin.endpoints import ENDPOINTS, TEXT, Endpoint
from penstock.admin.handlers import Handlers
from penstock.admin.openapi import document
from penstock.admin.queries import Queries
from penstock.admin.schemas import SCHEMAS

DOCUMENT = document()


def validate(answer: Any, method: str, path: str, status: int) -> None:
    operation = DOCUMENT["paths"][path][method.lower()]
    assert str(status) in operation["responses"], f"{method} {path} has no {status}"
    content = operation["responses"][str(status)]["content"]
    if "application/json" not in content:
        return
    schema = {**content["application/json"]["schema"], "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(schema).validate(answer)


async def test_it_is_served(site: Site) -> None:
    response = await site.ask("GET", "/openapi.json")
    assert response.json() == DOCUMENT
    assert response.headers["content-type"] == "application/json"


async def test_every_path_of_it_is_there_and_no_other(site: Site) -> None:
    paths = {
        (method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods
    }
    assert paths == set(site.api._endpoints)
    for path, methods in DOCUMENT["paths"].items():
        response = await site.ask("TRACE", path)
        assert response.status_code == 405
        allowed = set(response.headers["allow"].split(", ")) - {"HEAD"}
        assert allowed == {method.upper() for method in methods}
    for method, path in paths:
        assert (await site.ask(method, path)).status_code not in (404, 405)


@pytest.mark.parametrize("name", DOCUMENT["components"]["schemas"])
def test_every_schema_is_one_and_is_used(name: str) -> None:
    schema = DOCUMENT["components"]["schemas"][name]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert f"'#/components/schemas/{name}'" in str(DOCUMENT["paths"])


def test_every_endpoint_has_a_handler_and_every_handler_an_endpoint() -> None:
    own = {name for each in (Queries, Handlers) for name in vars(each) if not name.startswith("_")}
    own |= {"session", "log_in", "log_out"}  # AdminApi answers these itself
    assert own == {each.does for each in ENDPOINTS}
    assert len({each.does for each in ENDPOINTS}) == len(ENDPOINTS)


LOOKS = [each for each in ENDPOINTS if each.action is None and each.method == "GET"]


@pytest.mark.parametrize("endpoint", LOOKS, ids=lambda each: each.path)
async def test_what_is_looked_at_is_as_it_says(site: Site, endpoint: Endpoint) -> None:
    for _, method, path, body, _, _ in CHANGES[:2] + CHANGES[4:5] + CHANGES[7:8] + CHANGES[9:10]:
        assert (await site.ask(method, path, body)).status_code == 200
    query = "?descriptor=user=42&descriptor=x=1" if endpoint.path == "/v1/counters" else ""
    for up in (True, False):
        site.up["store"] = up
        response = await site.ask("GET", endpoint.path + query)
        is_text = endpoint.answers == TEXT
        assert response.headers["content-type"].startswith("text/plain") == is_text
        validate(None if is_text else response.json(), "GET", endpoint.path, response.status_code)


async def test_what_is_changed_is_as_it_says(site: Site) -> None:
    for _, method, path, body, _, _ in CHANGES:
        response = await site.ask(method, path, body)
        plain = path.partition("?")[0]
        validate(response.json(), method, plain, response.status_code)
        asks = DOCUMENT["paths"][plain][method.lower()].get("requestBody")
        if asks is not None:
            schema = asks["content"]["application/json"]["schema"]
            jsonschema.Draft202012Validator(
                {**schema, "components": DOCUMENT["components"]}
            ).validate(body)


async def test_errors_are_as_it_says(site: Site) -> None:
    for method, path, body, _, _ in BAD:
        plain = path.partition("?")[0]
        if method.lower() in DOCUMENT["paths"].get(plain, {}):
            response = await site.ask(method, path, body)
            validate(response.json(), method, plain, response.status_code)
    for each in ENDPOINTS:
        denied = await site.ask(each.method, each.path, headers={"Host": "evil.example"})
        validate(denied.json(), each.method, each.path, denied.status_code)


def test_a_body_that_we_refuse_by_its_shape_is_refused_by_the_schema() -> None:
    """Our own reading of the schema is no stricter than what the document says."""
    by_shape = ("is a text", "lacks '", " has '", "is empty", "is one of", "is a list")
    for method, path, body, status, error in BAD:
        plain = path.partition("?")[0]
        operation = DOCUMENT["paths"].get(plain, {}).get(method.lower(), {})
        if "requestBody" not in operation or isinstance(body, bytes) or body is None:
            continue
        name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        schema = {**SCHEMAS[name.rpartition("/")[2]], "components": DOCUMENT["components"]}
        valid = jsonschema.Draft202012Validator(schema).is_valid(body)
        if status == 400 and any(part in error for part in by_shape):
            assert not valid, (method, path, body)


def test_the_page_lists_every_endpoint_and_action() -> None:
    page = Path(__file__).parents[2].joinpath("docs/reference/admin.md").read_text()
    listed = set(re.findall(r"^\| `(GET|PUT|POST|DELETE) (/\S*)` \|", page, re.M))
    assert listed == {(each.method, each.path) for each in ENDPOINTS}
    for each in ENDPOINTS:
        assert each.action is None or f"`{each.action}`" in page
