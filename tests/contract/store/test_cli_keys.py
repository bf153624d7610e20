"""`runyard keys`, as an operator runs it, on both databases; and the gateway's part of it."""

import json

import pytest
from tests.integration.commands import Here
from tests.integration.stack import Stack

from runyard.cli import keys
from runyard.errors import StartError

pytestmark = pytest.mark.anyio


@pytest.fixture
def here(stack: Stack, capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(environment={"RUNYARD_DATABASE_URL": stack.backing.database_url}, capture=capsys)


async def printed(here: Here, *arguments: str) -> str:
    """What it printed; it has succeeded."""
    done = await here("keys", *arguments)
    assert (done.code, done.err) == (0, "")
    return done.out


def listed(name: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Of a key's line: name, key, tenants, when it was made, and when revoked, if it was."""
    keys.print_list()
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "KEY", "TENANTS", "CREATED", "REVOKED"]
    (line,) = [line for line in lines if line.startswith(name)]
    return line.split()


async def test_a_key_from_its_making_to_its_end(stack: Stack, here: Here, unique: str) -> None:
    key = (await printed(here, "create", unique, "--tenant", "acme", "--tenant", "initech")).strip()
    api = stack.gateway.bearer(key)
    assert (await api.get("/v1/runs", tenantId="initech")).status_code == 200
    shown = await printed(here, "list")
    assert f"ry_...{key[-4:]}  acme,initech" in shown
    assert key not in shown
    assert await printed(here, "revoke", unique) == ""
    while (response := await api.get("/v1/runs", tenantId="initech")).status_code == 200:
        pass  # until the gateway looks again; the test's own time limit ends it
    assert (response.status_code, response.json()["error"]["reason"]) == (401, "invalid")
    stored = json.dumps([list(row) for row in stack.execute("SELECT * FROM service_keys")], default=str)
    assert key not in stored
    assert key[3:] not in stored
    assert key[3:] not in stack.gateway.process.log.read_text()


@pytest.fixture
def database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNYARD_DATABASE_URL", database_url)


@pytest.mark.usefixtures("database")
def test_names_are_not_used_again(capsys: pytest.CaptureFixture[str]) -> None:
    first = keys.create("billing", ["acme", "acme", "initech"])
    assert listed("billing", capsys)[1:3] == [f"ry_...{first[-4:]}", "acme,initech"]
    for _ in range(2):
        with pytest.raises(StartError, match="there is a key of the name billing already"):
            keys.create("billing", ["acme"])
        keys.revoke("billing")
    before = listed("billing", capsys)
    assert len(before) == 5
    keys.revoke("billing")
    assert listed("billing", capsys) == before


@pytest.mark.usefixtures("database")
def test_what_cannot_be_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StartError, match="there is no key of the name nobody"):
        keys.revoke("nobody")
    for name, tenants in ((" ", ["acme"]), ("x", [""]), ("x\n", ["acme"]), ("x" * 257, ["acme"])):
        with pytest.raises(StartError, match="printable characters"):
            keys.create(name, tenants)
    keys.print_list()
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_database_that_was_not_migrated_is_told(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNYARD_DATABASE_URL", empty_database_url)
    with pytest.raises(StartError, match="run `runyard migrate`"):
        keys.create("billing", ["acme"])
