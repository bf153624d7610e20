"""Runs that a test stops at a point in the model or in a tool, with a reader each; and checks of how they end."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from tests.clients.answer import is_terminal
from tests.clients.api import Reading
from tests.fault.accounts import account_of
from tests.fault.readers import run_of
from tests.integration.processes import GUARD_S, eventually
from tests.integration.stack import Stack
from tests.standin import Answer, hold, says

KINDS = ("first", "last", "tool")
TEXT = "Let me look. All done."


def what_the_model_says(kind: str, gate: str) -> list[Answer]:
    """It is held in its first answer, in its last one, in a tool; each run has a tool that must not act twice."""
    order = {"order": "a"}
    match kind:
        case "first":
            return [says("Let me ", hold(gate), "look. ").calls("charge", order), says("All done.")]
        case "last":
            return [says("Let me look. ").calls("charge", order), says("All ", hold(gate), "done.")]
        case _:
            return [says("Let me look. ").calls("wait", {"gate": gate}).calls("charge", order), says("All done.")]


@asynccontextmanager
async def held_runs(stack: Stack, gate: str, *, of_a_kind: int) -> AsyncIterator[list[Reading]]:
    """They go on when `let_go` opens the gate; each is read through the next one of the gateways."""
    async with AsyncExitStack() as readers:
        readings: dict[str, list[Reading]] = {kind: [] for kind in KINDS}
        for kind in KINDS:
            stack.standin.answers(*what_the_model_says(kind, gate), by="turn", contains=f"<{kind}>")
            for number in range(of_a_kind):
                api = stack.gateways[number % len(stack.gateways)].user("reader")
                call = api.streaming("mortal", f"<{kind}> {number} {gate}")
                readings[kind].append(await readers.enter_async_context(call))
        await stack.standin.gate(gate).reached(2 * of_a_kind, guard_s=GUARD_S)
        for reading in readings["tool"]:
            await eventually(lambda reading=reading: len(stack.effects(run_of(reading))) == 2, "tools at work")
        yield [reading for kind in KINDS for reading in readings[kind]]


def let_go(stack: Stack, gate: str) -> None:
    stack.standin.gate(gate).release()
    stack.open_gate(gate)


async def end_well(stack: Stack, readings: Sequence[Reading]) -> None:
    """Each run is completed, nothing happened twice, no death was counted, and its reader has what is stored."""
    api = stack.gateway.user("reader")
    for reading in readings:
        await reading.rest(guard_s=GUARD_S)
        assert reading.events[-1].type == "result"
        assert sum(map(is_terminal, reading.events)) == 1
        account = await account_of(stack, api, run_of(reading))
        assert reading.text == account.text == TEXT
        assert account.miscounted() == []
        assert account.deaths == []
