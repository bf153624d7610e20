"""Runs that are interrupted at every point of their work, and go on with another worker as if nothing had been.

Of each of them: no request that the Messages API would refuse, nothing that acts twice, a reader whose text equals the
rows, all that was paid for counted.
"""

import contextlib
import itertools
import secrets
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from tests.contract.execution.interruptions import Interruption, Kind, Stage, play, settled
from tests.contract.execution.worker import empty
from tests.databases import POSTGRES, SQLITE
from tests.fakes.databases import FaultyDatabase
from tests.fakes.provider import Script, turn
from tests.fakes.rows import text, thinking, tool_use
from tests.hypothesis_profiles import is_long, search
from tests.redis_servers import redis_server

from runyard.blocks import text_of
from runyard.errors import ProviderError, ProviderUnavailable
from runyard.runs import CallState, FinishReason, RunStatus
from runyard.streams.connect import connect
from runyard_workers import closer, commits, output, runner
from runyard_workers.providers.model import Activity, TextDelta, ThinkingDelta, Turn, Usage, UsageSoFar
from runyard_workers.stream_writer import StreamWriter

pytestmark = pytest.mark.anyio

on_sqlite = pytest.mark.parametrize("lasting_database_url", [SQLITE], indirect=True)
on_postgres = pytest.mark.parametrize("lasting_database_url", [POSTGRES], indirect=True)

USAGE = Usage(input_tokens=20, output_tokens=8)
OVERLOADED = ProviderUnavailable("the provider answered 529: Overloaded", status=529, type="overloaded_error")
UNKNOWN_MODEL = ProviderError("the provider answered 404: no such model", status=404, type="not_found_error")

Attempts = Sequence[Script]
NewStage = Callable[[Sequence[Attempts]], Stage]


@pytest.fixture
async def new_stage(
    lasting_database_url: str, monkeypatch: pytest.MonkeyPatch, plain_logs: None
) -> AsyncIterator[NewStage]:
    """A stage with an empty database and a stream of its own, for each example."""
    for module, name, seconds in (
        (commits, "BACKOFF_FIRST_S", 0.001),
        (closer, "MARK_S", 0.001),
        (closer, "RETRY_S", 0.01),
        (output, "FLUSH_BEFORE_COMMIT_S", 0.05),
        (runner, "LEAVE_POLL_S", 0.005),
    ):
        monkeypatch.setattr(module, name, seconds)
    monkeypatch.setattr(StreamWriter.opened, "__defaults__", (0.05,))
    client, prefix = connect(redis_server()), f"test-{secrets.token_hex(6)}"
    database = FaultyDatabase(lasting_database_url, pool_size=4)

    def new_stage(attempts: Sequence[Attempts]) -> Stage:
        return Stage(database=database, redis=client, prefix=prefix, attempts=attempts)

    yield new_stage
    await database.write(empty)
    await database.close()
    if keys := [key async for key in client.scan_iter(f"{prefix}:*", count=1000)]:
        await client.delete(*keys)
    await client.aclose()


# Turns ------------------------------------------------------------------------------------------------------


def says(number: int, *words: str, before: Sequence[Any] = (), reason: str = "end_turn") -> Script:
    """`before`: blocks in front of the text."""
    deltas = [f"{number}: ", *words]
    thoughts = [ThinkingDelta(block["thinking"]) for block in before if block["type"] == "thinking"]
    return [
        UsageSoFar(Usage(input_tokens=20), "claude-sonnet-4-5"),
        Activity(ping=True),
        *thoughts,
        *map(TextDelta, deltas),
        turn(*before, text("".join(deltas)), stop_reason=reason, usage=USAGE),
    ]


def calls(number: int, *names: str, before: Sequence[Any] = (), cut: bool = False) -> Script:
    """Asks for tools at the same time. `cut`: the output limit has cut the last one's input."""
    asked = [tool_use(f"toolu_{number}_{at}", name) for at, name in enumerate(names)]
    words = f"{number}: let me see. "
    broken = {asked[-1]["id"]: "its input was cut off"} if cut else {}
    return [
        *(ThinkingDelta(block["thinking"]) for block in before),
        TextDelta(words),
        turn(
            *before,
            text(words),
            *asked,
            stop_reason="max_tokens" if cut else "tool_use",
            usage=USAGE,
            broken_inputs=broken,
        ),
    ]


def searches(number: int) -> list[Script]:
    """A turn that its provider pauses in the middle of a search, and the rest of it."""
    search_id = f"srvtoolu_{number}"
    query = {"type": "server_tool_use", "id": search_id, "name": "web_search", "input": {"query": "swifts"}}
    words = f"{number}: searching. "
    paused = [TextDelta(words), turn(text(words), query, stop_reason="pause_turn", usage=USAGE)]
    found = {"type": "web_search_tool_result", "tool_use_id": search_id, "content": []}
    words = f"{number + 1}: found. "
    return [paused, [TextDelta(words), turn(found, text(words), usage=USAGE)]]


def thought(number: int) -> Any:
    return thinking(f"about {number}", f"c2ln{number:04}")


# What holds of each -----------------------------------------------------------------------------------------


async def check(stage: Stage) -> None:
    """Of a run that has ended, and of the turn that follows."""
    assert stage.complaints == []
    ended = await settled(stage)
    replace(ended, frames=stage.frames).check()  # as its reader has it
    if ended.frames and ended.frames[-1].is_terminal:  # as a reader gets it now, unless Redis forgot it after its end
        ended.check()
    answers = [row for row in ended.rows if row.role == "assistant"]
    assert stage.reader.text == "".join(text_of(row.content) for row in answers)
    assert len(stage.effects.paid) == len(set(stage.effects.paid)), "something acted twice"
    assert all(len(keys) == 1 for keys in stage.effects.fetched_for.values())
    check_answers(stage, ended.run.status, answers)
    assert {call.state for call in ended.calls} <= {CallState.FINISHED}
    assert len(ended.invocation.deaths) == stage.burials
    stored = sum(row.usage["input_tokens"] for row in answers)
    assert stored <= ended.invocation.usage.get("input_tokens", 0) == ended.run.usage.get("input_tokens", 0)
    texts = [text_of(row.content) for row in ended.rows if row.role == "user"]
    for words in stage.steering:
        assert sum(words in each for each in texts) <= 1
    earlier_status = ended.run.status
    await play(stage, [], ended.run.id)
    after = await settled(stage)
    assert stage.complaints == [], f"after {earlier_status}"
    assert after.run.status is RunStatus.COMPLETED
    texts = [text_of(row.content) for row in after.rows if row.role == "user"]
    for words in stage.steering:
        assert sum(words in each for each in texts) == 1, f"{words} was read by nobody, or twice"


def check_answers(stage: Stage, status: RunStatus, answers: Sequence[Any]) -> None:
    """The rows hold the scripted turns, one after the other; the last one may be cut by a cancel."""
    for number, row in enumerate(answers):
        content = last_of(stage, number)
        if row.stop_reason == FinishReason.CANCELLED:
            assert status is RunStatus.CANCELLED
            assert row is answers[-1]
            assert text_of(content).startswith(text_of(row.content))
        else:
            assert row.content == content


def last_of(stage: Stage, number: int) -> Any:
    if number >= len(stage.attempts):
        return [text(f"{number}: well.")]
    turn = stage.attempts[number][-1][-1]
    assert isinstance(turn, Turn)
    return turn.content


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(what)
        raise


# Every point of a run with a bit of everything --------------------------------------------------------------


def bit_of_everything() -> list[Attempts]:
    return [
        [calls(0, "pay", "fetch", before=[thought(0)])],
        [[*says(1, "half of ", "it")[:-1], OVERLOADED], says(1, "All ", "is well.")],
    ]


STRIDE = 6
"""A crash is tried at every point; in everyday runs all else at one of so many, which is another one for each kind."""

KINDS = [kind for kind in Kind if kind is not Kind.STEER]
RACES = [Kind.STOLEN, Kind.CANCEL, Kind.LOST_ANSWER]
"""Where a database with more than one writer could make a difference."""


def points(kind: Kind) -> Iterator[int]:
    if is_long() or kind is Kind.CRASH:
        return itertools.count(1)
    return itertools.count(1 + zlib.crc32(kind.encode()) % STRIDE, STRIDE)


@pytest.mark.timeout(0)  # a long search takes its time, and each run of it has a guard
@on_sqlite
@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_run_that_is_interrupted_at_any_point(new_stage: NewStage, kind: Kind) -> None:
    await try_all(new_stage, kind)


@pytest.mark.timeout(0)
@on_postgres
@pytest.mark.parametrize("kind", RACES, ids=str)
async def test_a_run_on_postgres_that_is_interrupted_at_any_point(new_stage: NewStage, kind: Kind) -> None:
    await try_all(new_stage, kind)


async def try_all(new_stage: NewStage, kind: Kind) -> None:
    for at in points(kind):
        stage = new_stage(bit_of_everything())
        interruption = Interruption(kind=kind, at=at)
        lives = await play(stage, [interruption])
        with told(f"{interruption}: {lives[0].trail[at - 1 : at]}"):
            await check(stage)
        if lives[0].points < at:
            break
    assert at > 30


# Random turns, random points --------------------------------------------------------------------------------


@st.composite
def scripts(draw: st.DrawFn) -> list[Attempts]:
    """Up to four steps, then an answer; each may fail before it succeeds, with something shown or nothing."""
    attempts: list[Attempts] = []
    for _ in range(draw(st.integers(0, 4))):
        number = len(attempts)
        before = [thought(number)] if draw(st.booleans()) else []
        kind = draw(st.sampled_from(["calls", "calls", "cut", "search"]))
        if kind == "search":
            attempts += [[part] for part in searches(number)]
            continue
        names = draw(st.lists(st.sampled_from(["pay", "fetch", "tidy", "unknown"]), min_size=1, max_size=3))
        script = calls(number, *names, before=before, cut=kind == "cut")
        attempts.append([*draw(failures(script)), script])
    number = len(attempts)
    reason = draw(st.sampled_from(["end_turn", "end_turn", "max_tokens", "refusal"]))
    script = says(number, "that ", "is all", reason=reason)
    attempts.append([*draw(failures(script)), script])
    return attempts


@st.composite
def failures(draw: st.DrawFn, script: Script) -> list[Script]:
    """Beginnings of a turn that end in an error; after one that is not retried the next model is asked."""
    if draw(st.integers(0, 3)):
        return []
    errors = draw(st.lists(st.sampled_from([OVERLOADED, OVERLOADED, UNKNOWN_MODEL]), min_size=1, max_size=3))
    if errors.count(UNKNOWN_MODEL) > 1:  # there is one model to fall back to
        return []
    return [[*script[: draw(st.integers(0, len(script) - 1))], error] for error in errors]


interruptions = st.lists(
    st.builds(Interruption, kind=st.sampled_from(Kind), at=st.integers(1, 90)), min_size=1, max_size=4
)


@pytest.mark.timeout(0)
@on_sqlite
@hypothesis.given(attempts=scripts(), interruptions=interruptions)
@search(examples=30)
async def test_any_run_that_is_interrupted_anywhere(
    new_stage: NewStage, attempts: list[Attempts], interruptions: list[Interruption]
) -> None:
    await survives(new_stage(attempts), interruptions)


@pytest.mark.timeout(0)
@on_postgres
@hypothesis.given(attempts=scripts(), interruptions=interruptions)
@search(examples=8)
async def test_any_run_on_postgres_that_is_interrupted_anywhere(
    new_stage: NewStage, attempts: list[Attempts], interruptions: list[Interruption]
) -> None:
    await survives(new_stage(attempts), interruptions)


async def survives(stage: Stage, interruptions: Sequence[Interruption]) -> None:
    lives = await play(stage, interruptions)
    for interruption, life in zip(interruptions, lives, strict=False):
        hypothesis.note(f"{interruption}: {life.trail[interruption.at - 1 : interruption.at]}")
    await check(stage)
