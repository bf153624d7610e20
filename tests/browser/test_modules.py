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

MARKUP = """async (text) => {
    const { blocksOf } = await import("/console/markdown/blocks.js");
    const { safeFragment } = await import("/console/markdown/safe.js");
    const place = document.createElement("div");
    for (const block of blocksOf(text)) place.append(safeFragment(block.markup()));
    return place.innerHTML.trim();
}"""

STANDING = """async (given) => {
    const { standingOf } = await import("/console/conversation/standing.js");
    const { inputsOf } = await import("/console/conversation/waiting.js");
    const state = { run: null, live: null, groups: [], frames: {}, outcomes: {}, stopping: null, ...given };
    const { opening, waiting } = inputsOf(state);
    return [standingOf(state), opening?.id ?? null, waiting.map(({ id, receipt }) => `${id} ${receipt}`)];
}"""

TURN = """async ([rows, frames]) => {
    const { NOTHING_SEEN, reduce } = await import("/console/conversation/frames.js");
    const { turnParts } = await import("/console/conversation/turn.js");
    return turnParts(rows, frames.reduce(reduce, NOTHING_SEEN));
}"""

SENT = """async (units) => {
    const { Api } = await import("/console/wire/api.js");
    const { fetch } = window;
    let sent;
    window.fetch = async (_, { body }) => { sent = body; return new Response("{}"); };
    await new Api(() => null, () => {}).sendInput("run_1", String.fromCharCode(...units), "key");
    window.fetch = fetch;
    return sent;
}"""

DURATION = """async (durationMs) => {
    const { durationWords } = await import("/console/views/words.js");
    return durationWords(durationMs);
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


RETRY = {"status": "retrying", "model": "m", "attempt": 2, "waitMs": 500}
ASKED = {"id": "a", "name": "note", "input": {}}


@pytest.mark.parametrize(
    "frame",
    [
        (9, "", "Now."),
        (9, "text", "Now\r"),
        (9, "thinking", "Hm."),
        (9, "tool_start", ASKED),
        (9, "tool", {**ASKED, "isError": True, "durationMs": 0}),
        (9, "message", {"seq": 2, "role": "assistant"}),
        (9, "progress", {}),
        (9, "status", {"status": "running"}),
    ],
)
async def test_a_retry_is_over_when_anything_follows(page: Page, frame: Frame) -> None:
    before = await reduced(page, (1, "status", {"status": "running"}), (2, "status", RETRY))
    assert before["status"] == "retrying"
    assert before["retry"] == {"model": "m", "attempt": 2, "waitMs": 500}
    after = await reduced(page, (1, "status", {"status": "running"}), (2, "status", RETRY), frame)
    assert (after["status"], after["retry"]) == ("running", None)


async def test_a_place_in_line_is_told_until_the_run_begins(page: Page) -> None:
    waits: list[Frame] = [(None, "status", {"status": "queued", "position": 3, "waitReason": "user_limit"})]
    state = await reduced(page, *waits)
    assert (state["status"], state["position"], state["waitReason"]) == ("queued", 3, "user_limit")
    assert (await reduced(page, *waits, (None, "status", {"status": "queued", "position": 2})))["waitReason"] is None
    begun = await reduced(page, *waits, (1, "status", {"status": "running"}))
    assert (begun["status"], begun["position"], begun["waitReason"]) == ("running", None, None)


async def test_a_retry_is_told_behind_the_rewind_that_it_begins_with(page: Page) -> None:
    frames: list[Frame] = [(1, "", "lost"), (2, "rewind", {"toSeq": 0, "length": 0}), (3, "status", RETRY)]
    state = await reduced(page, *frames)
    assert (state["status"], state["isWithdrawn"]) == ("retrying", True)
    again = await reduced(page, *frames, (4, "", "found"))
    assert (again["status"], again["isWithdrawn"]) == ("running", True)
    saved = await reduced(page, *frames, (4, "", "found"), (5, "message", {"seq": 2, "role": "assistant"}))
    assert not saved["isWithdrawn"]


async def test_only_a_rewind_that_takes_something_is_seen(page: Page) -> None:
    nothing = await reduced(page, (1, "", "kept"), (2, "rewind", {"toSeq": 1, "length": 4}))
    assert not nothing["isWithdrawn"]
    newcomer = await reduced(page, (1, "", "old"), (None, "rewind", {"toSeq": 0, "length": 0}))
    assert not newcomer["isWithdrawn"]


async def test_inputs_that_were_read_are_remembered(page: Page) -> None:
    state = await reduced(page, (1, "steered", {"inputIds": ["a", "b"]}), (2, "steered", {"inputIds": ["c"]}))
    assert state["steered"] == ["a", "b", "c"]


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


LINK = 'target="_blank" rel="noopener noreferrer nofollow"'


@pytest.mark.parametrize(
    ("text", "markup"),
    [
        ("*a* **b** `c` ~~d~~", "<p><em>a</em> <strong>b</strong> <code>c</code> <del>d</del></p>"),
        ("one\ntwo", "<p>one<br>two</p>"),
        ("3. three\n4. four", '<ol start="3">\n<li>three</li>\n<li>four</li>\n</ol>'),
        ("- [x] done", "<ul>\n<li>☑ done</li>\n</ul>"),
        ("```py\n<b>\n", "<pre><code>&lt;b&gt;\n</code></pre>"),
        ("[a](https://b.example)", f'<p><a href="https://b.example" {LINK}>a</a></p>'),
        ("[a][b]\n\n[b]: https://c.example", f'<p><a href="https://c.example" {LINK}>a</a></p>'),
        ("[a](javascript:alert(1))", f"<p><a {LINK}>a</a></p>"),
        ("[a](/v1/runs)", f"<p><a {LINK}>a</a></p>"),
        ("![a](https://b.example/c.png)", f'<p><a href="https://b.example/c.png" {LINK}>a</a></p>'),
        ("<b onclick=x>a</b>", "<p>&lt;b onclick=x&gt;a&lt;/b&gt;</p>"),
        ("<div>\na\n</div>", "<p>&lt;div&gt;\na\n&lt;/div&gt;</p>"),
    ],
)
async def test_markdown_becomes_markup_that_is_safe(page: Page, text: str, markup: str) -> None:
    assert await page.evaluate(MARKUP, text) == markup


async def test_columns_keep_their_side(page: Page) -> None:
    markup = await page.evaluate(MARKUP, "| a | b |\n|---|--:|\n| 1 | 2 |")
    assert '<td align="right">2</td>' in markup


def seen(status: str | None, *steered: str, outcome: Any = None) -> dict[str, Any]:
    return {"status": status, "steered": steered, "outcome": outcome}


def run_row(status: str, *pending: str, invocation: str = "now", stopping: bool = False) -> dict[str, Any]:
    inputs = [{"id": name} for name in pending]
    return {"invocationId": invocation, "status": status, "cancelRequested": stopping, "pendingInput": inputs}


LIVE = {"invocationId": "now"}
BEGUN = [{"invocationId": "now"}]
FAILED = {"unanswered": [{"id": "old"}]}


@pytest.mark.parametrize(
    ("state", "found"),
    [
        pytest.param({"run": run_row("completed")}, [None, None, []], id="settled"),
        pytest.param({"run": run_row("failed", "a")}, [None, None, ["a unanswered"]], id="failed"),
        pytest.param({"live": LIVE, "frames": {"now": seen(None)}}, ["queued", None, []], id="row not read yet"),
        pytest.param(
            {"run": run_row("queued", "a", "b"), "live": LIVE, "frames": {"now": seen(None)}},
            ["queued", "a", ["b queued"]],
            id="queued",
        ),
        pytest.param(
            {
                "run": run_row("queued", "old", "a"),
                "live": LIVE,
                "frames": {"before": seen("running", outcome=FAILED), "now": seen(None)},
            },
            ["queued", "a", ["old queued"]],
            id="behind one that failed here",
        ),
        pytest.param(
            {
                "run": run_row("queued", "old", "a"),
                "live": LIVE,
                "outcomes": {"before": FAILED},
                "frames": {"now": seen(None)},
            },
            ["queued", "a", ["old queued"]],
            id="behind one that failed elsewhere",
        ),
        pytest.param(
            {"run": run_row("running", "a"), "live": LIVE, "groups": BEGUN, "frames": {"now": seen("running")}},
            ["running", None, ["a queued"]],
            id="steered",
        ),
        pytest.param(
            {"run": run_row("running", "a"), "live": LIVE, "groups": BEGUN, "frames": {"now": seen("running", "a")}},
            ["running", None, ["a steered"]],
            id="read",
        ),
        pytest.param(
            {"run": run_row("queued", "a"), "live": LIVE, "groups": BEGUN, "frames": {"now": seen("running")}},
            ["between", None, ["a queued"]],
            id="between two workers",
        ),
        pytest.param(
            {"run": run_row("running", stopping=True), "live": LIVE, "frames": {"now": seen("retrying")}},
            ["stopping", None, []],
            id="stopped elsewhere",
        ),
        pytest.param(
            {"run": run_row("running"), "live": LIVE, "stopping": "now", "frames": {"now": seen("running")}},
            ["stopping", None, []],
            id="stopped here",
        ),
        pytest.param(
            {
                "run": run_row("running", invocation="before", stopping=True),
                "live": LIVE,
                "stopping": "before",
                "frames": {"now": seen("running")},
            },
            ["running", None, []],
            id="the one before was stopped",
        ),
        pytest.param(
            {
                "run": run_row("running", stopping=True),
                "live": LIVE,
                "frames": {"now": seen("running", outcome={"status": "cancelled"})},
            },
            ["cancelled", None, []],
            id="ended",
        ),
    ],
)
async def test_how_it_stands_is_told_by_rows_and_stream(page: Page, state: dict[str, Any], found: list[Any]) -> None:
    assert await page.evaluate(STANDING, state) == found


# What is sent --------------------------------------------------------------------------------------------------------


async def test_text_that_no_store_holds_is_not_sent(page: Page) -> None:
    """A text area may be left with half of a character; the gateway refuses it."""
    units = [ord("a"), 0, 0xD83D, ord("b"), 0xD83D, 0xDE42, 0xDC00]
    assert json.loads(await page.evaluate(SENT, units)) == {"input": "a\ufffd\ufffdb\N{SLIGHTLY SMILING FACE}\ufffd"}


# Words ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("duration_ms", "words"),
    [
        (999, "999 ms"),
        (1_000, "1 s"),
        (59_900, "59.9 s"),
        (60_000, "1 min 0 s"),
        (119_499, "1 min 59 s"),
        (119_500, "2 min 0 s"),
    ],
)
async def test_durations_have_no_sixtieth_second(page: Page, duration_ms: int, words: str) -> None:
    assert await page.evaluate(DURATION, duration_ms) == words
