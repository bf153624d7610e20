"""What a person sees of a stream."""

from types import SimpleNamespace
from typing import Any

import pytest

from runyard.cli.gateways import tell
from runyard.cli.screen import Answer, Lines, noted, summary
from runyard.cli.tables import printable
from runyard.client import Result
from runyard.client.events import ServerEvent
from runyard.client.frames import Frame, frame_of
from runyard.client.progress import Progress


def frames(*given: tuple[str | None, str]) -> list[Frame]:
    return [frame_of(ServerEvent(name=name, id=str(seq), data=data)) for seq, (name, data) in enumerate(given, 1)]


def shown(screen: Answer | Lines, given: list[Frame]) -> None:
    progress = Progress()
    for frame in given:
        progress.take(frame)
        screen.show(frame, SimpleNamespace(text=progress.text))  # type: ignore[arg-type]


MODEL = '{"seq":2,"role":"assistant"}'
RESULT = '{"status":"completed"}'


def test_a_terminal_shows_each_word_and_each_thing_on_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    call = '{"id":"t","name":"look","input":{"at":1}%s}'
    shown(
        Answer(live=True, thinking=False),
        frames(
            ("thinking", "hm"),
            (None, "I "),
            (None, "look."),
            ("tool_start", call % ""),
            ("tool", call % ',"isError":true,"durationMs":5'),
            (None, "Done\x07."),
            ("result", RESULT),
        ),
    )
    assert capsys.readouterr() == (
        "I look.\nDone\N{REPLACEMENT CHARACTER}.\n",
        '> look {"at":1}\n< look failed, 5 ms\n',
    )


def test_a_terminal_is_told_what_is_withdrawn(capsys: pytest.CaptureFixture[str]) -> None:
    shown(
        Answer(live=True, thinking=False),
        frames(
            (None, "Kept. "),
            (None, "Wrong."),
            ("rewind", '{"toSeq":1,"length":6}'),
            (None, "Right."),
            ("result", RESULT),
        ),
    )
    assert capsys.readouterr() == ("Kept. Wrong.\nRight.\n", "[withdrawn: the last words above]\n")


def test_text_that_is_told_again_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    reset = ("rewind", '{"toSeq":0,"length":0}')
    shown(
        Answer(live=True, thinking=False),
        frames((None, "one "), (None, "two "), reset, (None, "one "), (None, "two three"), ("result", RESULT)),
    )
    assert capsys.readouterr() == ("one two three\n", "")


def test_what_is_withdrawn_for_good_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    shown(
        Answer(live=True, thinking=False),
        frames((None, "half"), ("rewind", '{"toSeq":0,"length":0}'), ("result", RESULT)),
    )
    assert capsys.readouterr() == ("half\n", "[withdrawn: the last words above]\n")


def test_what_is_beside_the_answer_has_lines_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    shown(
        Answer(live=True, thinking=True),
        frames(
            ("thinking", "hm, "),
            ("thinking", "so"),
            (None, "I look"),
            ("tool_start", '{"id":"t","name":"look","input":{}}'),
            ("output", '{"id":"t","text":"half "}'),
            ("output", '{"id":"t","text":"a line"}'),
            ("output", '{"id":"u","text":"another tool\\n"}'),
            ("output", '{"id":"t","text":"more\\u0007"}'),
            ("tool", '{"id":"t","name":"look","input":{},"isError":false,"durationMs":5}'),
            ("thinking", "well"),
            ("result", RESULT),
        ),
    )
    assert capsys.readouterr() == (
        "I look\n",
        "hm, so\n> look {}\nhalf a line\nanother tool\nmore\N{REPLACEMENT CHARACTER}\n< look 5 ms\nwell\n",
    )


def test_a_pipe_gets_what_is_committed(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Answer(live=False, thinking=True)
    shown(screen, frames(("thinking", "hm"), (None, "one"), (None, "\x1b[1m")))
    assert capsys.readouterr() == ("", "hm")
    shown(screen, frames((None, "one"), ("message", MODEL), (None, "two"), ("message", MODEL), ("result", RESULT)))
    assert capsys.readouterr().out == "one\ntwo\n"


def test_json_is_a_line_a_frame(capsys: pytest.CaptureFixture[str]) -> None:
    shown(Lines(), frames((None, "a\nb"), ("progress", '{"x":1}')))
    assert capsys.readouterr().out.splitlines() == [
        '{"seq":1,"event":null,"data":"a\\nb"}',
        '{"seq":2,"event":"progress","data":{"x":1}}',
    ]


@pytest.mark.parametrize(
    ("event", "data", "note"),
    [
        ("status", '{"status":"running"}', None),
        ("status", '{"status":"queued","position":3}', "* waiting for a worker, number 3 in line"),
        ("status", '{"status":"queued"}', "* waiting for a worker"),
        (
            "status",
            '{"status":"queued","position":1,"waitReason":"user_limit"}',
            "* waiting for a worker, number 1 in line: the user's limit of runs at once is reached",
        ),
        ("status", '{"status":"queued","waitReason":"of_a_later_version"}', "* waiting for a worker"),
        ("status", '{"status":"retrying","waitMs":1500}', "* the model is asked again in 1.5 s"),
        ("status", '{"status":"running","trimmed":{"fromSeq":3,"toSeq":9}}', "* frames 3 to 9 are no longer kept"),
        ("queued", '{"runId":"run_1","queued":1}', "* the run is at work, and reads this at its next step"),
        ("steered", '{"inputIds":["in_1"]}', "* what was sent meanwhile is read"),
        ("output", '{"id":"t","text":"x"}', None),
        ("progress", '{"done":0.5}', '* progress {"done":0.5}'),
        ("progress", f'"{"x" * 200}"', f"* progress {'x' * 99}\N{HORIZONTAL ELLIPSIS}"),
    ],
)
def test_notes(event: str, data: str, note: str | None) -> None:
    (frame,) = frames((event, data))
    assert noted(frame) == note


def test_how_it_ended() -> None:
    told: dict[str, Any] = {
        "runId": "run_1",
        "status": "completed",
        "steps": 2,
        "usage": {"input_tokens": 9, "output_tokens": 3},
    }
    assert summary(Result.model_validate(told)) == "completed: 2 steps, 9 tokens in, 3 out (run_1)"
    error = {"code": "RUN_TIMEOUT", "message": "silent"}
    failed = Result.model_validate({"runId": "run_1", "status": "failed", "error": error})
    assert summary(failed) == "failed: silent (RUN_TIMEOUT): 0 steps (run_1)"


def test_a_terminal_obeys_nobody_else(capsys: pytest.CaptureFixture[str]) -> None:
    tell("dropped: \x1b]0;x\x07")
    assert capsys.readouterr().err.count("\N{REPLACEMENT CHARACTER}") == 2
    assert printable("a\x1b]0;x\x07b\r\n\tc\x9b").split("\N{REPLACEMENT CHARACTER}") == ["a", "]0;x", "b", "\n\tc", ""]
