"""The page at `/docs` over HTTP: its policy, its vendored files, and nothing else."""

import hashlib
import re
from importlib.resources import files

import pytest
from starlette.routing import Router
from starlette.testclient import TestClient
from tests.contract.http.test_console import ROW

from runyard_gateway.app import operations
from runyard_gateway.failures import Failures
from runyard_gateway.routes.documentation import documentation

FOLDER = files("runyard_gateway") / "reference"


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(Failures(Router(routes=documentation(operations()), redirect_slashes=False)))


def test_the_page_has_all_that_it_loads(client: TestClient) -> None:
    page = client.get("/docs")
    assert page.status_code == 200
    loaded = [path for path in re.findall(r'(?:href|src)="([^"]+)"', page.text) if not path.startswith("console/")]
    assert len(loaded) == 4
    for path in loaded:
        assert client.get(f"/{path}").status_code == 200, path
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", page.text), "the policy allows none inline"


@pytest.mark.parametrize("path", ["/docs", "/docs/reference.js", "/docs/vendor/swagger-ui.css"])
def test_every_answer_has_the_policy(client: TestClient, path: str) -> None:
    policy = client.get(path).headers["content-security-policy"]
    directives = dict(part.partition(" ")[::2] for part in policy.split("; "))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"] == directives["connect-src"] == directives["style-src"] == "'self'"
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    "path",
    [
        "/docs/",
        "/docs/index.html",
        "/docs/vendor/VENDORED.md",
        "/docs/vendor/licenses/swagger-ui.txt",
        "/docs/../app.py",
    ],
)
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(path).json()["error"]["code"] == "NOT_FOUND"


def test_the_table_of_vendored_files_is_true() -> None:
    vendor = FOLDER / "vendor"
    table = (vendor / "VENDORED.md").read_text()
    told = {row["file"]: row["sha256"] for row in ROW.finditer(table)}
    found = {entry.name: entry for entry in vendor.iterdir() if entry.name.endswith((".js", ".css"))}
    assert told.keys() == found.keys()
    for name, entry in found.items():
        assert hashlib.sha256(entry.read_bytes()).hexdigest() == told[name], name
    licences = {entry.name for entry in (vendor / "licenses").iterdir()}
    assert licences == set(re.findall(r"licenses/([\w.-]+\.txt)", table))
