from typing import Any

import pytest

from runyard.db.inputs import join_inputs

IMAGE = {"type": "image", "source": {"type": "url", "url": "https://images.example/swift.png"}}


@pytest.mark.parametrize(
    ("contents", "turn"),
    [
        (["one"], "one"),
        (["one", "two", "three"], "one\n\ntwo\n\nthree"),
        ([[IMAGE]], [IMAGE]),
        ([[IMAGE, {"type": "text", "text": "this"}], "and that"],
         [IMAGE, {"type": "text", "text": "this"}, {"type": "text", "text": "and that"}]),
        (["one", [IMAGE], "two"], [{"type": "text", "text": "one"}, IMAGE, {"type": "text", "text": "two"}]),
    ],
)  # fmt: skip
def test_inputs_that_waited_become_one_turn(contents: list[Any], turn: Any) -> None:
    assert join_inputs(contents) == turn
