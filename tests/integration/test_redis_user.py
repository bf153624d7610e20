"""A Redis user with the rights that the page on connections names, and no others, is enough for a whole system."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis
from tests.fault.soundness import assert_sound
from tests.integration.stack import Stack, sqlite_and_valkey, starting_stack
from tests.standin import says
from typer.testing import CliRunner

from runyard.cli.command import app

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[2] / "docs/connections.md"


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    """Frames and broker are one Redis, as that user; its first user is for the test."""
    (rights,) = re.findall(r"`ACL SETUSER runyard on >PASSWORD ([^`]+)`", PAGE.read_text())
    with sqlite_and_valkey(tmp_path) as backing, redis.Redis.from_url(backing.redis_url) as admin:
        admin.execute_command("ACL", "SETUSER", "runyard", "on", ">secret", *rights.split())
        url = f"{backing.redis_url}{'&' if '?' in backing.redis_url else '?'}username=runyard&password=secret"
        async with starting_stack(replace(backing, redis_url=url, broker_url=url), tmp_path) as stack:
            yield stack
        assert admin.execute_command("ACL", "LOG") == [], "nothing was refused"


async def test_what_the_page_names_is_enough(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.standin.answers(says("Short."))
    api = stack.gateway.user()
    async with api.streaming("talker") as reading:
        await reading.rest()
    assert reading.text == "Short."
    queued = await api.start("unserved")
    assert (await api.post(f"/v1/runs/{queued['runId']}/cancel")).status_code == 200
    assert (await api.post(f"/v1/streams/{reading.stream_id}/tickets")).status_code == 201
    await assert_sound(stack, since_ms=0)
    assert (await api.call("DELETE", f"/v1/runs/{queued['runId']}")).status_code == 204
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    for arguments in (["fsck"], ["queues"], ["queues", "dead", "list"]):
        done = await asyncio.to_thread(CliRunner().invoke, app, arguments)
        assert (done.exit_code, done.exception) == (0, None), done.output
