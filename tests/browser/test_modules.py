"""The page's pure parts, each alone, in the browser that runs them."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from playwright.async_api import Browser, Page
from tests.integration.stack import Stack

pytestmark = pytest.mark.anyio

Frame = tuple[int | None, str, Any]
"""Number, event, data: a string, or what becomes JSON."""

PARSE = """async (pieces) => {
    const { EventStreamParser } = await import("/console/wire/sse.js");
    const parser = new EventStreamParser();
    const events = pieces.flatMap((piece) => parser.feed(new Uint8Array(piece)));
    return { events, lastEventId: parser.lastEventId, retryMs: parser.retryMs };
}"""

REDUCE = """async (frames) => {
    const { NOTHING_SEEN, reduce } = await import("/console/conversation/frames.js");
    try {
        return frames.reduce(reduce, NOTHING_SEEN);
    } catch (error) {
        return { code: error.code, message: error.message };
    }
}"""

TURN = """async ([rows, frames]) => {
    const { NOTHING_SEEN, reduce } = await import("/console/conversation/frames.js");
    const { turnParts } = await import("/console/conversation/turn.js");
    return turnParts(rows, frames.reduce(reduce, NOTHING_SEEN));
}"""


@pytest.fixture(scope="module")
async def page(sqlite_stack: Stack, chromium: Browser) -> AsyncIterator[Page]:
    """A place that the modules are served from; nothing in it changes."""
    gateway = sqlite_stack.gateway
    page = await chromium.new_page()
    await page.goto(f"http://{gateway.host}:{gateway.port}/healthz")
    yield page
    await page.close()


async def parsed(page: Page, *pieces: bytes) -> dict[str, Any]:
    found: dict[str, Any] = await page.evaluate(PARSE, [list(piece) for piece in pieces])
    return found


def wired(frames: Sequence[Frame]) -> list[dict[str, Any]]:
    return [
        {
            "id": None if seq is None else str(seq),
            "event": event,
            "data": data if isinstance(data, str) and event != "text" else json.dumps(data),
        }
        for seq, event, data in frames
    ]


async def reduced(page: Page, *frames: Frame) -> dict[str, Any]:
    state: dict[str, Any] = await page.evaluate(REDUCE, wired(frames))
    return state


def said(parts: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Each part's kind and what it says, or whose it is."""
    return [(part["kind"], part.get("text") or part.get("id") or part.get("name") or "") for part in parts]


STREAM = (
    b"\xef\xbb\xbf: comment\nretry: 1500\n\n"
    b"id: 1\ndata: one\n\n"
    b"id: 2\r\nevent: thinking\r\ndata: two\r\ndata:  lines\r\n\r\n"
    b"id: 3\revent: message\rdata\r\r"
    b"data: \xe2\x80\xa8\xc2\x85\x0b\n\n"
    b"event: nothing\n\n"
    b"id: a\x00b\ndata:after\nunknown: field\n\n"
    b"id: 4\n\n"
    b"data: half"
)
EVENTS = [
    {"id": "1", "event": "", "data": "one"},
    {"id": "2", "event": "thinking", "data": "two\n lines"},
    {"id": "3", "event": "message", "data": ""},
    {"id": None, "event": "", "data": "\u2028\x85\x0b"},
    {"id": None, "event": "", "data": "after"},
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(STREAM)])
async def test_events_are_read_as_the_specification_says(page: Page, size: int) -> None:
    pieces = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
    found = await parsed(page, *pieces)
    assert found == {"events": EVENTS, "lastEventId": "4", "retryMs": 1500}


async def test_text_and_thinking_grow(page: Page) -> None:
    state = await reduced(
        page,
        (1, "status", {"status": "running"}),
        (2, "thinking", "Let "),
        (3, "thinking", "me."),
        (4, "", "One, "),
        (5, "text", "two\r\n"),
        (6, "", "three"),
    )
    assert state["status"] == "running"
    assert said(state["parts"]) == [("thinking", "Let me."), ("text", "One, two\r\nthree")]


async def test_a_rewind_withdraws_text_thinking_and_open_calls(page: Page) -> None:
    call = {"name": "note", "input": {}}
    state = await reduced(
        page,
        (1, "", "Kept 🙂, "),
        (2, "", "all. "),
        (3, "message", {"seq": 2, "role": "assistant"}),
        (4, "tool_start", {"id": "done", **call}),
        (5, "tool_start", {"id": "open", **call}),
        (6, "noted", {"by": "nobody in particular"}),
        (7, "tool", {"id": "done", **call, "isError": False, "durationMs": 3}),
        (8, "thinking", "lost"),
        (9, "", "lost"),
        (10, "rewind", {"toSeq": 2, "length": 13}),
    )
    assert said(state["parts"]) == [("text", "Kept 🙂, all. "), ("call", "done"), ("event", "noted")]
    assert state["rewinds"] == 1


@pytest.mark.parametrize(
    ("to_seq", "length", "left"), [(0, 0, []), (1, 2, ["ab"]), (2, 4, ["abcd"]), (9, 6, ["abcdef"])]
)
async def test_a_rewind_cuts_between_the_frames_of_one_text(
    page: Page, to_seq: int, length: int, left: list[str]
) -> None:
    frames: list[Frame] = [(1, "", "ab"), (2, "", "cd"), (3, "", "ef")]
    state = await reduced(page, *frames, (4, "rewind", {"toSeq": to_seq, "length": length}))
    assert [part["text"] for part in state["parts"]] == left
    more = await reduced(page, *frames, (4, "rewind", {"toSeq": to_seq, "length": length}), (5, "", "!"), (6, "", "?"))
    assert "".join(part["text"] for part in more["parts"]) == "".join(left) + "!?"


async def test_a_rewind_that_contradicts_itself_is_refused(page: Page) -> None:
    state = await reduced(page, (1, "", "abc"), (2, "rewind", {"toSeq": 1, "length": 2}))
    assert state["code"] == "STREAM_BROKEN"


async def test_a_reset_begins_anew(page: Page) -> None:
    state = await reduced(
        page,
        (1, "", "some"),
        (None, "rewind", {"toSeq": 0, "length": 0}),
        (1_000_001, "", "all of it"),
        (1_000_002, "", ", and more"),
        (1_000_003, "rewind", {"toSeq": 1_000_001, "length": 9}),
    )
    assert said(state["parts"]) == [("text", "all of it")]


async def test_what_tools_tell_goes_to_the_only_one_that_runs(page: Page) -> None:
    call = {"name": "note", "input": {}}
    state = await reduced(
        page,
        (1, "tool_start", {"id": "a", **call}),
        (2, "progress", {"part": 1}),
        (3, "output", {"id": "a", "text": "x"}),
        (4, "tool_start", {"id": "b", **call}),
        (5, "progress", {"part": 2}),
        (6, "output", {"id": "b", "text": "y"}),
        (7, "tool", {"id": "refused", **call, "isError": True, "durationMs": 0}),
    )
    a, b, loose, refused = state["parts"]
    assert a["events"] == [{"name": "progress", "data": {"part": 1}}]
    assert (a["outputs"], b["outputs"]) == (["x"], ["y"])
    assert loose["data"] == {"part": 2}
    assert refused["answered"]
    assert refused["isError"]


async def test_the_end_is_kept(page: Page) -> None:
    completed = await reduced(page, (1, "result", {"status": "completed", "steps": 1}))
    assert completed["outcome"] == {"status": "completed", "steps": 1}
    failed = await reduced(page, (1, "error", {"error": {"code": "X", "message": "y", "status": "failed"}}))
    assert failed["outcome"] == {"status": "failed", "error": {"code": "X", "message": "y"}}


ROWS: list[dict[str, Any]] = [
    {"seq": 1, "role": "user", "content": "Go."},
    {
        "seq": 2,
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "text", "text": "I "},
            {"type": "text", "text": "note."},
            {"type": "tool_use", "id": "c1", "name": "note", "input": {"text": "x"}},
        ],
    },
    {
        "seq": 3,
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "noted", "is_error": False}],
    },
]
CALL = {"id": "c1", "name": "note", "input": {"text": "x"}}
FRAMES: list[Frame] = [
    (1, "message", {"seq": 1, "role": "user"}),
    (2, "thinking", "Hm."),
    (3, "", "I note."),
    (4, "message", {"seq": 2, "role": "assistant"}),
    (5, "tool_start", CALL),
    (6, "noted", {"text": "x"}),
    (7, "tool", {**CALL, "isError": False, "durationMs": 5}),
    (8, "message", {"seq": 3, "role": "user"}),
    (9, "thinking", "And now?"),
    (10, "", "Do"),
    (11, "", "ne."),
]
WHOLE = [("thinking", "Hm."), ("text", "I note."), ("call", "c1"), ("thinking", "And now?"), ("text", "Done.")]


@pytest.mark.parametrize("committed", [0, 1, 2, 3])
@pytest.mark.parametrize("seen", [1, 3, 4, 5, 7, 8, 11])
async def test_nothing_is_shown_twice_however_rows_and_frames_meet(page: Page, committed: int, seen: int) -> None:
    parts = await page.evaluate(TURN, [ROWS[:committed], wired(FRAMES[:seen])])
    shown = said(parts)
    expected = WHOLE[: {1: 0, 3: 2, 4: 2, 5: 3, 7: 3, 8: 3, 11: 5}[seen]]
    if committed >= 2 and seen < 5:
        expected = WHOLE[:3]  # the rows are ahead
    if committed:
        expected = [("input", "Go."), *expected]
    assert shown == expected
    for part in parts:
        if part["kind"] == "call" and seen >= 7:
            assert part["durationMs"] == 5
            assert part["events"] == [{"name": "noted", "data": {"text": "x"}}]
            assert (part["result"] is not None) == (committed == 3)
