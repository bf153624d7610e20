"""What `runyard fsck` prints, and that its page knows every code."""

import re
from pathlib import Path

from runyard.fsck.findings import Code, Finding

PAGE = (Path(__file__).parents[2] / "docs/fsck.md").read_text()


def test_the_documented_codes_are_the_declared_ones() -> None:
    assert re.findall(r"^\| `([a-z]+-[a-z]+|totals)` \|", PAGE, re.MULTILINE) == list(Code)


def test_a_finding_as_a_line_and_as_an_object() -> None:
    finding = Finding(code=Code.STREAM_OPEN, run_id="run_1", stream_id="st_1", detail="it is settled")
    assert finding.to_line() == "stream-open run_1 st_1: it is settled"
    assert finding.to_dict() == {
        "code": "stream-open",
        "runId": "run_1",
        "streamId": "st_1",
        "detail": "it is settled",
    }


def test_a_place_is_the_same_whatever_the_figures() -> None:
    one, other = (Finding(code=Code.STREAM_TEXT, run_id="run_1", detail=detail) for detail in ("3 of 4", "5 of 6"))
    assert one.place == other.place
    assert one.place != Finding(code=Code.STREAM_TEXT, run_id="run_2", detail="3 of 4").place
