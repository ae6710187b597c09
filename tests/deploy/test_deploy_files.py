"""deploy/: what the files name exists, and each is valid for who reads it."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from penstock.metrics.families import FAMILIES, HISTOGRAM
from penstock.rules.reading.parse import load_files
from penstock.running.settings import Settings
from penstock.running.settings_sources import PREFIX, load

DEPLOY = Path(__file__).parents[2] / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
VARIABLES = {PREFIX + each.name.upper() for each in fields(Settings)} | {PREFIX + "CONFIG"}
SAMPLES = {
    sample
    for name, family in FAMILIES.items()
    for sample in (
        [f"{name}_bucket", f"{name}_sum", f"{name}_count"] if family.kind == HISTOGRAM else [name]
    )
}


def text(path: str) -> str:
    return (DEPLOY / path).read_text()


def documents(path: str) -> list[Any]:
    return list(yaml.safe_load_all(text(path)))


def labels_of(sample: str) -> set[str]:
    """Those that a sample can have, with what Prometheus adds."""
    family = FAMILIES.get(sample) or FAMILIES[sample.rpartition("_")[0]]
    return {*family.labels, "instance", "job", *(["le"] if sample.endswith("_bucket") else [])}


def check_query(expr: str) -> None:
    """Every metric is one of ours, with labels that it has."""
    names = set(re.findall(r"\bpenstock_\w+", expr))
    assert names <= SAMPLES, f"{names - SAMPLES} in {expr}"
    known = set().union(*(labels_of(name) for name in names)) if names else {"job"}
    for name, selector in re.findall(r"\b(penstock_\w+)\{([^}]*)\}", expr):
        asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
        assert asked <= labels_of(name), f"{asked - labels_of(name)} in {expr}"
    for by in re.findall(r"\bby \(([^)]*)\)", expr):
        asked = {label.strip() for label in by.split(",")}
        assert asked <= known, f"{asked - known} in {expr}"


# All of them -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_setting_that_a_file_names_exists(path: Path) -> None:
    found = set(re.findall(r"\bPENSTOCK_[A-Z_]+\b", path.read_text()))
    assert found - {"PENSTOCK_REQUIRE_COMPILED"} <= VARIABLES


def test_the_table_names_every_file() -> None:
    readme = text("README.md")
    beside = {"README.md", "Dockerfile.dockerignore"}
    for path in FILES:
        name = str(path.relative_to(DEPLOY))
        if path.name not in beside and not name.startswith("kubernetes/"):
            assert f"]({name})" in readme, name
    for target in re.findall(r"\]\(([^)]+)\)", readme):
        assert (DEPLOY / target).exists(), target


def test_the_rules_are_right() -> None:
    rules = load_files([DEPLOY / "rules"])
    assert set(rules.domains) == {"edge"}


# Prometheus and Grafana --------------------------------------------------------------------


def alerts() -> list[dict[str, Any]]:
    (found,) = documents("prometheus/alerts.yaml")
    assert set(found) == {"groups"}
    return [rule for group in found["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_asks_for_what_there_is(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    check_query(rule["expr"])
    assert rule["expr"].count("(") == rule["expr"].count(")")
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    assert rule["annotations"]["summary"]
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
    told = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
    kept = [set(re.split(r",\s*", by)) for by in re.findall(r"\bby \(([^)]*)\)", rule["expr"])]
    assert all(told <= each for each in kept), "a label that is summed away cannot be told"


def test_alerts_are_told_apart() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names)
    assert all(name.startswith("Penstock") for name in names)


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool here")
def test_promtool_finds_nothing_wrong() -> None:
    run(["promtool", "check", "rules", str(DEPLOY / "prometheus/alerts.yaml")])


def test_prometheus_scrapes_the_admin_port() -> None:
    (config,) = documents("prometheus/prometheus.yaml")
    assert config["rule_files"] == ["alerts.yaml"]
    (job,) = config["scrape_configs"]
    assert job["job_name"] == "penstock", "the alert PenstockDown goes by it"
    port = Settings().admin.rpartition(":")[2]
    assert job["static_configs"][0]["targets"] == [f"penstock:{port}"]


DASHBOARD_SCHEMA = {
    "type": "object",
    "required": ["title", "uid", "schemaVersion", "panels", "templating", "time"],
    "properties": {
        "uid": {"type": "string", "maxLength": 40},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "panels": {"type": "array", "minItems": 15, "items": {"$ref": "#/$defs/panel"}},
    },
    "$defs": {
        "panel": {
            "type": "object",
            "required": ["id", "type", "title", "gridPos"],
            "properties": {
                "id": {"type": "integer", "minimum": 1},
                "type": {
                    "enum": ["row", "timeseries", "stat", "table", "heatmap", "state-timeline"]
                },
                "gridPos": {
                    "type": "object",
                    "required": ["x", "y", "w", "h"],
                    "properties": {
                        "x": {"minimum": 0, "maximum": 23},
                        "w": {"minimum": 1, "maximum": 24},
                        "h": {"minimum": 1},
                    },
                },
                "targets": {
                    "type": "array",
                    "minItems": 1,
                    "items": {"type": "object", "required": ["expr", "refId", "datasource"]},
                },
            },
        }
    },
}


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text("grafana/penstock.json"))
    return found


def queries(dashboard: dict[str, Any]) -> Iterator[str]:
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]
    for annotation in dashboard["annotations"]["list"]:
        yield annotation["expr"]


def test_the_dashboard_asks_for_what_there_is(dashboard: dict[str, Any]) -> None:
    for expr in queries(dashboard):
        assert "penstock_" in expr
        check_query(expr)
        assert expr.count("(") == expr.count(")")


def test_the_dashboard_shows_what_it_should(dashboard: dict[str, Any]) -> None:
    whole = " ".join(queries(dashboard))
    for name, family in FAMILIES.items():
        shown = re.search(rf"\b{name}\b", whole) or f"{name}_bucket" in whole
        assert shown or name in ("penstock_info", "penstock_process_start_time_seconds",
                                 "penstock_store_downs_total"), name  # fmt: skip
        assert family.name == name
    for outcome in ("refused", "near_limit", "shadowed"):
        assert f'outcome="{outcome}"' in whole


def test_the_dashboard_is_well_formed(dashboard: dict[str, Any]) -> None:
    jsonschema.validate(dashboard, DASHBOARD_SCHEMA)
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$(\w+)", " ".join(queries(dashboard)))) - {
        "__rate_interval",
        "__interval",
    }
    assert used <= variables
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, f"{panel['title']} lies over another"
        taken |= cells
        for target in panel.get("targets", []):
            assert target["datasource"]["uid"] == "${datasource}"


# Kubernetes --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> dict[tuple[str, str], Any]:
    (kustomization,) = documents("kubernetes/kustomization.yaml")
    listed = kustomization["resources"]
    there = {path.name for path in (DEPLOY / "kubernetes").iterdir()} - {"kustomization.yaml"}
    assert set(listed) == there
    found = [each for name in listed for each in documents(f"kubernetes/{name}")]
    assert all({"apiVersion", "kind", "metadata"} <= set(each) for each in found)
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def test_the_names_in_the_manifests_fit_together(cluster: dict[tuple[str, str], Any]) -> None:
    deployment = cluster["Deployment", "penstock"]["spec"]
    pod = deployment["template"]
    (container,) = pod["spec"]["containers"]
    labels = pod["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"].items() <= labels.items()
    disruption = cluster["PodDisruptionBudget", "penstock"]["spec"]
    assert disruption["selector"]["matchLabels"].items() <= labels.items()
    assert disruption["minAvailable"] < deployment["replicas"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    for name in ("penstock", "penstock-admin"):
        service = cluster["Service", name]["spec"]
        assert service["selector"].items() <= labels.items()
        for port in service["ports"]:
            assert ports[port["targetPort"]] == port["port"]
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    assert {each["name"] for each in container["volumeMounts"]} == set(volumes)
    assert ("ConfigMap", volumes["rules"]["configMap"]["name"]) in cluster
    for source in container["envFrom"]:
        assert ("ConfigMap", source["configMapRef"]["name"]) in cluster
    secret = volumes["admin"]["secret"]["secretName"]
    assert f"create secret generic {secret} " in text("kubernetes/kustomization.yaml")


def test_the_settings_in_the_cluster_are_what_the_pod_has(
    cluster: dict[tuple[str, str], Any],
) -> None:
    given = cluster["ConfigMap", "penstock-settings"]["data"]
    assert all(isinstance(value, str) for value in given.values())
    settings = load({}, given)
    pod = cluster["Deployment", "penstock"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    for name in ("http", "grpc", "admin"):
        assert getattr(settings, name) == f"0.0.0.0:{ports[name]}"
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert settings.rules == (mounts["rules"],)
    assert settings.admin_token_file == f"{mounts['admin']}/token"
    # What is changed at one pod reaches the others, and its cache is on a disk that can be written.
    assert settings.control == settings.store
    assert settings.control_cache.startswith(f"{mounts['state']}/")
    assert settings.share == 1 / cluster["Deployment", "penstock"]["spec"]["replicas"]
    assert pod["terminationGracePeriodSeconds"] > settings.drain_seconds + 5


def test_the_probes_ask_what_answers(cluster: dict[tuple[str, str], Any]) -> None:
    pod = cluster["Deployment", "penstock"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["startupProbe"]["httpGet"] == {"path": "/healthcheck", "port": "http"}
    assert container["readinessProbe"]["grpc"] == {"port": 8081, "service": "ratelimit"}
    context = container["securityContext"]
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert f"--uid {pod['securityContext']['runAsUser']} " in text("docker/Dockerfile")


def test_the_rules_in_the_cluster_are_right(
    cluster: dict[tuple[str, str], Any], tmp_path: Path
) -> None:
    for name, content in cluster["ConfigMap", "penstock-rules"]["data"].items():
        (tmp_path / name).write_text(content)
    assert set(load_files([tmp_path]).domains) == {"edge"}


# systemd, Docker, Envoy, Traefik -----------------------------------------------------------


def unit() -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]  # keep capitals
    found.read_string(text("systemd/penstock.service"))
    return found


def test_the_unit_starts_what_there_is() -> None:
    assert unit()["Service"]["ExecStart"].endswith("/penstock serve")
    given = dict(re.findall(r"^Environment=(\w+)=(.*)$", text("systemd/penstock.service"), re.M))
    settings = load({}, given)
    assert settings.workers == 2
    stop = int(unit()["Service"]["TimeoutStopSec"].removesuffix("s"))
    assert stop > settings.drain_seconds
    state = unit()["Service"]["StateDirectory"]
    assert settings.store.startswith(f"shared:/var/lib/{state}/")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    made = tmp_path / "penstock.service"
    content = text("systemd/penstock.service")
    made.write_text(content.replace("/opt/penstock/bin/penstock", shutil.which("true") or ""))
    done = run(["systemd-analyze", "verify", "--man=no", str(made)])
    assert "penstock.service" not in done.stderr, done.stderr


def test_the_image_is_built_from_what_there_is() -> None:
    root = DEPLOY.parent
    content = text("docker/Dockerfile").replace("\\\n", " ")
    for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", content, re.M):
        for source in sources.split():
            assert (root / source).exists(), source
    checked = re.findall(r"-c 'import (\S+)'", content)
    assert checked
    for module in checked:
        path = root / "src" / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or path.with_suffix(".pyx").exists(), module
    kept = text("docker/Dockerfile.dockerignore")
    for source in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src", "deploy/rules"):
        assert f"!{source}\n" in kept
    given = dict(re.findall(r"\b(PENSTOCK_[A-Z_]+)=(\S+)", content.partition("FROM python")[2]))
    given.pop("PENSTOCK_REQUIRE_COMPILED")
    settings = load({}, given)
    ports = {settings.http.rpartition(":")[2], settings.grpc.rpartition(":")[2]}
    (exposed,) = re.findall(r"^EXPOSE (.*)$", content, re.M)
    assert set(exposed.split()) == ports
    users = re.findall(r"^USER (\d+)$", content, re.M)
    assert users
    assert users[-1] != "0"
    (health,) = re.findall(r"^HEALTHCHECK .*CMD (\[.*\])$", content, re.M)
    code = json.loads(health)[-1]
    compile(code, "health", "exec")
    assert "/healthcheck" in code


def test_envoy_asks_for_what_the_rules_know() -> None:
    (config,) = documents("envoy/envoy.yaml")
    whole = json.dumps(config)
    resources = config["static_resources"]
    clusters = {cluster["name"]: cluster for cluster in resources["clusters"]}
    manager = resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    limiting = manager["http_filters"][0]["typed_config"]
    (domain,) = load_files([DEPLOY / "rules"]).domains.values()
    assert limiting["domain"] == domain.name
    assert limiting["failure_mode_deny"] is False
    service = limiting["rate_limit_service"]["grpc_service"]["envoy_grpc"]["cluster_name"]
    address = json.dumps(clusters[service]["load_assignment"])
    assert Settings().grpc.rpartition(":")[2] in address
    keys = {step.key for step in domain.steps}
    assert keys == {"remote_address", *re.findall(r'"descriptor_key": "(\w+)"', whole)}


@pytest.mark.parametrize(
    ("file", "rule"), [("rlqs.yaml", "DENY_ALL"), ("rlqs-soft.yaml", "ALLOW_ALL")]
)
def test_envoys_quotas_are_hard_or_soft(file: str, rule: str) -> None:
    """And never a token bucket without an assignment: it crashes Envoy."""
    (config,) = documents(f"envoy/{file}")
    resources = config["static_resources"]
    manager = resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    limiting = manager["http_filters"][0]["typed_config"]
    (domain,) = load_files([DEPLOY / "rules"]).domains.values()
    assert limiting["domain"] == domain.name
    (cluster,) = [each for each in resources["clusters"] if each["name"] == "penstock"]
    assert Settings().grpc.rpartition(":")[2] in json.dumps(cluster["load_assignment"])
    matchers = limiting["bucket_matchers"]
    (matcher,) = matchers["matcher_list"]["matchers"]
    for match in (matcher["on_match"], matchers["on_no_match"]):
        bucket = match["action"]["typed_config"]
        fallback = {"fallback_rate_limit": {"blanket_rule": rule}}
        assert bucket["no_assignment_behavior"] == fallback
        expired = {"expired_assignment_behavior_timeout": "60s", **fallback}
        assert bucket["expired_assignment_behavior"] == expired
        assert set(bucket["bucket_id_builder"]["bucket_id_builder"]) <= {
            step.key for step in domain.steps
        }


def test_traefik_asks_the_port_of_http() -> None:
    (config,) = documents("traefik/dynamic.yaml")
    auth = config["http"]["middlewares"]["penstock"]["forwardAuth"]
    port = Settings().http.rpartition(":")[2]
    assert auth["address"] == f"http://penstock:{port}/v1/auth"
    assert auth["trustForwardHeader"] is False
    for router in config["http"]["routers"].values():
        assert router["service"] in config["http"]["services"]
        assert set(router["middlewares"]) <= set(config["http"]["middlewares"])


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done
