"""Token counts and their price, from the provider's events to every place that tells them."""

import json

import pytest
from tests.integration.stack import ALLOWED_MODEL, Stack
from tests.standin import says

pytestmark = pytest.mark.anyio

START = {"input_tokens": 27, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 100, "output_tokens": 1}
COUNTED = {"input_tokens": 27, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 100, "output_tokens": 47}
# claude-sonnet-4-5, in dollars for a million tokens: input 3, read from the cache 0.30, output 15.
PRICE = {"amount": 0.000816, "currency": "USD", "unpriced": False}
TWICE = {"amount": 0.001632, "currency": "USD", "unpriced": False}

DELTAS = {
    "repeated": ({"input_tokens": 27, "cache_read_input_tokens": 100, "output_tokens": 20}, {"output_tokens": 47}),
    "null": ({"input_tokens": None, "cache_read_input_tokens": None, "output_tokens": 47},),
    "absent": ({"output_tokens": 20}, {"output_tokens": 47}),
}


@pytest.mark.parametrize("deltas", DELTAS.values(), ids=DELTAS.keys())
async def test_cumulative_counts_are_counted_once(stack: Stack, deltas: tuple[dict[str, int | None], ...]) -> None:
    stack.standin.answers(says("paid").uses(*deltas, start=START))
    api = stack.gateway.user()
    async with api.streaming("talker") as reading:
        events = await reading.rest()
    result = json.loads(events[-1].data)
    invocation = await api.settled(result["invocationId"])
    run = (await api.get(f"/v1/runs/{result['runId']}")).json()
    for told in (result, invocation, run):
        assert told["usage"] == COUNTED
        assert told["cost"] == PRICE
    (step,) = invocation["stepRecords"]
    assert step["usage"] == COUNTED
    _, answer = await api.messages(result["runId"])
    assert answer["usage"] == COUNTED


async def test_steps_add_up_and_calls_add_up_on_the_run(stack: Stack) -> None:
    step = says("x").uses({"output_tokens": 47}, start=START)
    stack.standin.answers(
        says("Looking.").calls("look_up", {"order": "1"}).uses({"output_tokens": 47}, start=START), step, step
    )
    api = stack.gateway.user()
    first = await api.run("clerk")
    assert first["usage"] == {name: 2 * count for name, count in COUNTED.items()}
    assert first["cost"] == TWICE
    second = await api.run("clerk", runId=first["runId"])
    assert second["usage"] == COUNTED
    assert second["cost"] == PRICE
    run = (await api.get(f"/v1/runs/{first['runId']}")).json()
    assert run["usage"] == {name: 3 * count for name, count in COUNTED.items()}
    assert run["cost"]["amount"] == 0.002448
    assert run["steps"] == 3


async def test_a_model_without_a_known_price_is_unpriced(stack: Stack) -> None:
    stack.standin.answers(says("who knows").costs(10, 20))
    api = stack.gateway.user()
    result = await api.run("talker", model=ALLOWED_MODEL)
    assert result["cost"] == {"amount": 0.0, "currency": "USD", "unpriced": True}
    assert result["model"] == ALLOWED_MODEL
