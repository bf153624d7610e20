"""Workers of two adjacent versions share a database that the new one has migrated: they take over from each other.

From the old to the new by the hundred: `test_rolling_deploy.py`. Here back, as when a deploy is taken back half way.
"""

from contextlib import AsyncExitStack

import pytest
from tests.fault.accounts import account_of
from tests.fault.conftest import on_redis
from tests.fault.crew import Crew
from tests.fault.readers import is_whole, run_of
from tests.integration.processes import eventually
from tests.integration.stack import Stack
from tests.previous import PreviousVersion
from tests.standin import hold, says

pytestmark = [pytest.mark.anyio, on_redis]

TEXT = "Let me look. All done."
ONE = {"RUNYARD_WORKER_SLOTS": "1", "RUNYARD_DRAIN_S": "0"}
"""With its run it is full: the next one goes to the new version. Told to leave, it gives it back where it stands."""


async def test_they_take_over_from_each_other(stack: Stack, crew: Crew, previous: PreviousVersion, unique: str) -> None:
    stack.standin.answers(
        says("Let me look. ").calls("charge", {"order": "a"}), says("All ", hold(unique), "done."), by="turn"
    )
    api = stack.gateway.user()
    async with AsyncExitStack() as readers:
        [old] = await crew.join(of=previous, **ONE)
        begun_old = await readers.enter_async_context(api.streaming("mortal"))
        await eventually(lambda: crew.held_by(old) == {run_of(begun_old)}, "run at the old version's worker")
        [new] = await crew.join()
        begun_new = await readers.enter_async_context(api.streaming("mortal"))
        await stack.standin.gate(unique).reached(2)
        both = {run_of(begun_old), run_of(begun_new)}
        await crew.retire(old)
        await eventually(lambda: crew.held_by(new) == both, "both at the new version's worker")
        [older] = await crew.join(of=previous)
        await stack.standin.gate(unique).reached(3)
        crew.kill(new)
        await eventually(lambda: crew.held_by(older) == both, "both at a worker of the old version")
        stack.standin.gate(unique).release()
        for reading in (begun_old, begun_new):
            await reading.rest()
            account = await account_of(stack, api, run_of(reading))
            assert is_whole(reading)
            assert reading.text == account.text == TEXT
            assert account.miscounted() == []
            assert account.deaths == [[]]
