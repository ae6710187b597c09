"""`penstock proxy` as a process: TLS to clients, metrics and health, and SIGHUP."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.cli import main
from running.e2e.gateways import make_certificates
from running.e2e.running import PATIENCE, running_app
from stores.redis_server import wait_until

RULES = "domain: web\ndescriptors: [{key: path, value: /limited, limits: 2/hour}]"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def app() -> Iterator[int]:
    with running_app() as port:
        yield port


@pytest.fixture
def folder(tmp_path: Path, certificates: Path) -> Path:
    (tmp_path / "rules.yaml").write_text(RULES)
    for name in ("pem", "key"):
        shutil.copy(certificates / f"server.{name}", tmp_path / f"mine.{name}")
    return tmp_path


class Proxy:
    def __init__(self, process: subprocess.Popen[str], line: str) -> None:
        self.process = process
        match = re.match(r"penstock proxy: (\S+) -> \S+, 1 rule(?:, metrics on (\S+))?\n", line)
        assert match, line
        self.url, self.metrics = match[1], f"http://{match[2]}"


@contextlib.contextmanager
def proxy(folder: Path, app: int, *options: str) -> Iterator[Proxy]:
    command = [
        sys.executable, "-m", "penstock", "proxy", "--upstream", f"http://127.0.0.1:{app}",
        "--rules", str(folder / "rules.yaml"), "--listen", "127.0.0.1:0", *options,
    ]  # fmt: skip
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        with process:
            try:
                assert process.stdout is not None
                yield Proxy(process, process.stdout.readline())
            finally:
                process.terminate()
                process.communicate()


def tls_options(folder: Path) -> list[str]:
    return ["--tls-cert", str(folder / "mine.pem"), "--tls-key", str(folder / "mine.key")]


def client(url: str, certificates: Path, name: str | None = None) -> httpx.Client:
    tls = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    if name is not None:
        tls.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
    return httpx.Client(base_url=url, verify=tls, trust_env=False, timeout=PATIENCE)


def test_tls_to_clients(folder: Path, app: int, certificates: Path) -> None:
    with (
        proxy(folder, app, *tls_options(folder)) as running,
        client(running.url, certificates) as asking,
    ):
        assert running.url.startswith("https://")
        answers = [asking.get("/limited") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[0].json()["headers"]["X-Forwarded-Proto"] == "https"


def test_clients_without_a_certificate_of_the_authority(
    folder: Path, app: int, certificates: Path
) -> None:
    more = ["--tls-client-ca", str(certificates / "ca.pem")]
    with proxy(folder, app, *tls_options(folder), *more) as running:
        with client(running.url, certificates, "client") as asking:
            assert asking.get("/").status_code == 200
        for stranger in (None, "stranger"):
            asking = client(running.url, certificates, stranger)
            with asking, pytest.raises(httpx.TransportError):
                asking.get("/")


def test_metrics_and_health(folder: Path, app: int) -> None:
    with proxy(folder, app, "--metrics", "127.0.0.1:0") as running:
        for _ in range(3):
            httpx.get(f"{running.url}/limited", trust_env=False)
        text = httpx.get(f"{running.metrics}/metrics", trust_env=False).text
        refused = (
            r'^penstock_decisions_total\{.*outcome="refused".*rule="web/path=%2Flimited"\} 1\.0$'
        )
        assert re.search(refused, text, re.MULTILINE), text
        health = httpx.get(f"{running.metrics}/healthcheck", trust_env=False)
        assert (health.status_code, health.text) == (200, "OK")
        # Clients of the proxy do not get these: their requests go to the server.
        assert "penstock_decisions" not in httpx.get(f"{running.url}/metrics", trust_env=False).text


def test_sighup_reads_certificates_and_rules_again(
    folder: Path, app: int, certificates: Path
) -> None:
    with proxy(folder, app, *tls_options(folder), "--no-watch") as running:

        def shown() -> str:
            host, _, port = running.url.removeprefix("https://").rpartition(":")
            return ssl.get_server_certificate((host, int(port)))

        first = shown()
        for name in ("pem", "key"):
            shutil.copy(certificates / f"renewed.{name}", folder / f"mine.{name}")
        (folder / "rules.yaml").write_text(RULES.replace("/limited", "/other"))
        running.process.send_signal(signal.SIGHUP)
        wait_until(lambda: shown() != first, "the new certificate", PATIENCE)

        def is_limited() -> bool:
            with client(running.url, certificates) as asking:
                return asking.get("/other").status_code == 429

        wait_until(is_limited, "the new rules", PATIENCE)
        (folder / "rules.yaml").write_text("no rules")
        running.process.send_signal(signal.SIGHUP)
        log = folder / "log"
        wait_until(lambda: "rules were not reloaded" in log.read_text(), "a line", PATIENCE)
        assert is_limited()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tls-cert", "a"], "tls-cert and tls-key must be given together"),
        (["--tls-client-ca", "a"], "tls-client-ca needs tls-cert"),
        (["--tls-cert", "/none", "--tls-key", "/none"], "the certificate cannot be used"),
        (["--metrics", "nowhere"], "metrics is HOST:PORT"),
    ],
)
def test_wrong_options(
    folder: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = str(folder / "rules.yaml")
    arguments = ["proxy", "--upstream", "http://127.0.0.1:1", "--rules", rules, "--no-watch"]
    assert main([*arguments, "--listen", "127.0.0.1:0", *options]) == 2
    assert message in capsys.readouterr().err
