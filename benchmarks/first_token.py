"""How much later the first token comes than from the model itself, with one run at a time, on each stack."""

from benchmarks.floors.messages import bare_messages
from benchmarks.floors.model_calls import ModelCaller
from benchmarks.report import Figure, Floor, Section
from benchmarks.samples import median, percentile
from benchmarks.stacks import STACKS, OpenStack
from benchmarks.system import model_call, run, running
from benchmarks.targets import FIRST_TOKEN

DIRECTIVE = "standin[deltas=20]"
BLOCK = 20
BLOCKS, BLOCKS_QUICK = 6, 2


async def measure(*, quick: bool) -> Section:
    figures = [figure for stack in STACKS for figure in await _on(stack, BLOCKS_QUICK if quick else BLOCKS)]
    return Section(
        name="first-token",
        title="Time from POST to the first token, less the model's own; one run in flight",
        figures=figures,
    )


async def _on(open_stack: OpenStack, blocks: int) -> list[Figure]:
    ours: list[float] = []
    model: list[float] = []
    http_client: list[float] = []
    messages: list[float] = []
    with open_stack() as stack:
        async with running(stack) as system, bare_messages(stack.broker_url, stack.prefix) as bare:
            caller, model_caller = await system.caller(), await system.model_caller()
            httpx2_caller = ModelCaller(system.standin_url)
            for _ in range(blocks):
                messages += await bare.latencies_s(BLOCK)
                for _ in range(BLOCK):
                    model.append((await model_call(model_caller, DIRECTIVE)).first_s)
                    http_client.append(await httpx2_caller.first_text_s(DIRECTIVE))
                    ours.append((await run(caller, DIRECTIVE)).first_s)
            await httpx2_caller.close()
    own_ms = 1000 * median(model)
    floor = Floor(what="a bare dramatiq message, p50", value=1000 * median(messages))
    return [
        Figure(
            name=f"{stack.name}: added, p50",
            value=1000 * median(ours) - own_ms,
            unit="ms",
            floor=floor,
            targets=FIRST_TOKEN,
            note=f"the model's own {own_ms:.1f}; httpx2 alone adds {1000 * median(http_client) - own_ms:.1f}",
        ),
        Figure(
            name=f"{stack.name}: added, p95",
            value=1000 * percentile(ours, 95) - own_ms,
            unit="ms",
            floor=Floor(what="a bare dramatiq message, p95", value=1000 * percentile(messages, 95)),
        ),
    ]
