"""What waited as one user turn, with the results of a batch or without."""

from typing import Any

import pytest
from tests.fakes.rows import steering

from runyard.db.inputs import user_content

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
    assert user_content([], [steering(f"in_{at}", content) for at, content in enumerate(contents)]) == turn


def test_behind_results_each_input_is_a_block_of_its_own() -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "found"}
    inputs = [steering("in_1", "one"), steering("in_2", [IMAGE]), steering("in_3", "two")]
    blocks = [{"type": "text", "text": "one"}, IMAGE, {"type": "text", "text": "two"}]
    assert user_content([result], inputs) == [result, *blocks]
    assert user_content([result], []) == [result]
