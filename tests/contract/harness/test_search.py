"""Whatever happens at whichever moments, a run in the harness ends, and what is left of it fits together."""

import asyncio
from typing import Literal

import hypothesis
from hypothesis import strategies as st
from tests.hypothesis_profiles import search
from tests.standin import validate_transcript

from runyard import RunContext, agent, tool
from runyard.blocks import text_of
from runyard.db.deaths import TOOL_DEATHS_MAX
from runyard.testing import RunResult, harness
from runyard.transcript import request_messages

TOOLS = ("pay", "fetch", "tidy")
Act = Literal["crash", "cancel", "steer", "hand_over"]

turns = st.lists(st.tuples(st.sampled_from(["", "I see. "]), st.lists(st.sampled_from(TOOLS), min_size=1, max_size=3)))
subjects = st.one_of(
    st.fixed_dictionaries({"tool": st.sampled_from(TOOLS), "nth": st.integers(1, 2)}),
    st.fixed_dictionaries({"step": st.integers(1, 3)}),
)
moments = st.tuples(
    st.sampled_from(["before", "after"]), subjects, st.sampled_from(["crash", "cancel", "steer", "hand_over"])
)


async def played(script: list[tuple[str, list[str]]], happening: list[tuple[str, dict[str, object], Act]]) -> RunResult:
    paid: list[str | None] = []

    @tool
    async def pay(ctx: RunContext) -> str:
        paid.append(ctx.idempotency_key)
        await ctx.stream.event("paying", {})
        return "paid"

    @tool(idempotent=True)
    def fetch(ctx: RunContext) -> str:
        ctx.stream.write("fetching")
        return "fetched"

    @tool(idempotent=True, exclusive=True)
    async def tidy() -> str:
        return "tidied"

    async with harness(agent(tools=[pay, fetch, tidy])) as h:
        h.check = lambda: None  # type: ignore[method-assign]  # what is left of the script depends on what happens
        for text, names in script:
            turn = h.model.says(text) if text else h.model
            for name in names:
                turn = turn.calls(name)
        for number in range(len(happening) + 1):
            h.model.says(f"Answer {number}.")
        for when, subject, act in happening:
            moment = getattr(h, when)(**subject)
            moment.steer("and more") if act == "steer" else getattr(moment, act)()
        result = await h.run("go")
    assert len(paid) == len(set(paid))
    return result


@hypothesis.given(script=turns.map(lambda script: script[:3]), happening=st.lists(moments, max_size=3))
@search(examples=30)
def test_whatever_happens_the_run_ends_and_fits_together(
    script: list[tuple[str, list[str]]], happening: list[tuple[str, dict[str, object], Act]]
) -> None:
    result = asyncio.run(played(script, happening))
    acts = [act for _, _, act in happening]
    match result.status:
        case "cancelled":
            assert "cancel" in acts
        case "failed":
            assert result.error is not None
            assert (result.error["code"], acts) == ("RUN_CRASHED", ["crash"] * TOOL_DEATHS_MAX)
        case status:
            assert status == "completed"
    validate_transcript(request_messages(result.rows))
    assert result.shown == "".join(text_of(row.content) for row in result.rows if row.role == "assistant")
    assert result.frames[-1].event in ("result", "error")
