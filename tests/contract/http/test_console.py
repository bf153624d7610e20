"""The console's files over HTTP: what is served and what never is, its headers, its caching, its vendored modules."""

import hashlib
import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

import pytest
from starlette.routing import Router
from starlette.testclient import TestClient

from runyard_gateway.failures import Failures
from runyard_gateway.routes.console import console

FOLDER = files("runyard_gateway") / "console"
ROW = re.compile(r"^\| `(?P<file>[^`]+)` \| [^|]+ \d+\.\d+\.\d+ \|.*\| `(?P<sha256>[0-9a-f]{64})` \|$", re.MULTILINE)
IMPORT = re.compile(r"""(?:\bfrom|\bimport)\s*\(?\s*["']([^"']+)["']""")


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(Failures(Router(routes=console(), redirect_slashes=False)))


def test_the_page_is_served(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for path in re.findall(r'(?:href|src)="([^"]+)"', page.text):
        asset = client.get(f"/{path}")
        assert asset.status_code == 200, path
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", page.text), "the policy allows none inline"


@pytest.mark.parametrize("path", ["/", "/console/main.js", "/console/vendor/preact.mjs", "/console/styles/theme.css"])
def test_every_answer_has_the_policy(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    directives = dict(part.partition(" ")[::2] for part in headers["content-security-policy"].split("; "))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"] == directives["connect-src"] == directives["style-src"] == "'self'"
    assert directives["frame-ancestors"] == directives["base-uri"] == directives["form-action"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_modules_have_the_type_that_browsers_insist_on(client: TestClient) -> None:
    for path in ("main.js", "vendor/preact.mjs"):
        assert client.get(f"/console/{path}").headers["content-type"] == "text/javascript; charset=utf-8"


def test_what_a_browser_has_is_not_sent_again(client: TestClient) -> None:
    first = client.get("/console/main.js")
    assert first.headers["cache-control"] == "no-cache"
    etag = first.headers["etag"]
    for known in (etag, f'"other", W/{etag}', "*"):
        again = client.get("/console/main.js", headers={"If-None-Match": known})
        assert again.status_code == 304
        assert again.content == b""
        assert again.headers["etag"] == etag
        assert "content-security-policy" in again.headers
    assert client.get("/console/main.js", headers={"If-None-Match": '"other"'}).status_code == 200
    assert client.head("/console/main.js").headers["content-length"] == str(len(first.content))


@pytest.mark.parametrize(
    "path",
    [
        "/console",
        "/console/",
        "/console/nothing.js",
        "/console/index.html",
        "/console/vendor",
        "/console/vendor/VENDORED.md",
        "/console/vendor/licenses/htm.txt",
        "/console/../routes/console.py",
        "/console/%2e%2e/routes/console.py",
        "/console/..%2f..%2fpyproject.toml",
        "/console//etc/passwd",
        "/console/vendor/..%5c..%5capp.py",
    ],
)
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "NOT_FOUND"


def test_nothing_is_written_to_it(client: TestClient) -> None:
    assert client.post("/").status_code == 405
    assert client.put("/console/main.js").status_code == 405


def test_the_table_of_vendored_modules_is_true() -> None:
    vendor = FOLDER / "vendor"
    told = {row["file"]: row["sha256"] for row in ROW.finditer((vendor / "VENDORED.md").read_text())}
    found = {entry.name: entry for entry in vendor.iterdir() if entry.name.endswith(".mjs")}
    assert told.keys() == found.keys()
    for name, entry in found.items():
        assert hashlib.sha256(entry.read_bytes()).hexdigest() == told[name], name


def test_modules_import_each_other_by_relative_paths_that_are_served(client: TestClient) -> None:
    seen: set[str] = set()
    waiting = ["/console/main.js"]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        source = client.get(path)
        assert source.status_code == 200, path
        for name in IMPORT.findall(source.text) if "/vendor/" not in path else []:
            assert name.startswith("."), f"{path} imports {name}"
            waiting.append(str(source.url.join(name).path))
    own = {path.removeprefix("/console/") for path in seen if "/vendor/" not in path}
    assert own == {path for path in _paths(FOLDER) if path.endswith(".js")}, "a module that nobody imports"


def _paths(folder: Traversable, prefix: str = "") -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _paths(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}"
