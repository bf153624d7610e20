"""What a run has left when it has ended: its transcript, the effects of its tools, the deaths of its workers."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.clients.api import Api
from tests.integration.stack import Stack

from runyard.blocks import CANCELLED

INTERRUPTED = "tool execution was interrupted; it may have acted"
ONCE = frozenset({"charge", "wait", "book", "pay"})
"""The tools that must not happen twice."""


Started = Mapping[str, Any]
"""The answer to a call that was accepted."""


class Result(NamedTuple):
    content: str
    is_error: bool


@dataclass(frozen=True, kw_only=True)
class Once:
    """A call of a tool that must not happen twice, and how often it acted."""

    tool: str
    times: int
    is_interrupted: bool
    is_cancelled: bool

    @property
    def is_repeated(self) -> bool:
        return self.times > 1

    @property
    def is_lost(self) -> bool:
        """Its result says that it has acted."""
        return self.times == 0 and not self.is_interrupted and not self.is_cancelled


@dataclass(frozen=True, kw_only=True)
class Account:
    rows: list[dict[str, Any]]
    effects: list[list[str]]
    """One list of words for each, the tool's name first."""
    deaths: list[list[str]]

    @property
    def text(self) -> str:
        """What a reader must have in hand at the end."""
        return "".join(block["text"] for block in self._blocks("assistant") if block["type"] == "text")

    def calls(self) -> dict[str, str]:
        """The tools' names by the ids of their calls, in order."""
        return {block["id"]: block["name"] for block in self._blocks("assistant") if block["type"] == "tool_use"}

    def result(self, tool: str) -> Result:
        """What the model was told of the last call of it."""
        results = {block["tool_use_id"]: block for block in self._blocks("user") if block["type"] == "tool_result"}
        last = [results[call_id] for call_id, name in self.calls().items() if name == tool][-1]
        return Result(last["content"], last.get("is_error", False))

    def count(self, effect: str) -> int:
        return sum(words[0] == effect for words in self.effects)

    def once(self) -> list[Once]:
        """The calls of the tools that must not happen twice, in order."""
        told = {block.get("tool_use_id"): block.get("content") for block in self._blocks("user")}
        return [
            Once(
                tool=name,
                times=sum(words[0] == name and call_id in words for words in self.effects),
                is_interrupted=told[call_id] == INTERRUPTED,
                is_cancelled=told[call_id] == CANCELLED,
            )
            for call_id, name in self.calls().items()
            if name in ONCE
        ]

    def miscounted(self) -> list[str]:
        """Tools of calls that acted twice, or never though their result does not say that they were interrupted."""
        return [call.tool for call in self.once() if call.is_repeated or call.is_lost]

    def _blocks(self, role: str) -> list[dict[str, Any]]:
        contents = [row["content"] for row in self.rows if row["role"] == role]
        return [block for content in contents if isinstance(content, list) for block in content]


async def account_of(stack: Stack, api: Api, run_id: str) -> Account:
    """Of a run that has ended.

    Raises:
        InvalidTranscript: the model's API would refuse to go on with it.
    """
    rows = await api.messages(run_id)
    stack.standin.validate_transcript([{"role": row["role"], "content": row["content"]} for row in rows])
    ((deaths,),) = stack.execute("SELECT deaths FROM agent_invocations WHERE run_id = :run", run=run_id)
    return Account(
        rows=rows,
        effects=[effect.split() for effect in stack.effects(run_id)],
        deaths=json.loads(deaths) if isinstance(deaths, str) else deaths,
    )


def claims(stack: Stack, runs: Iterable[Started]) -> list[int]:
    """How often each was claimed."""
    generations = dict(stack.execute("SELECT id, generation FROM agent_runs"))
    return [generations[run["runId"]] for run in runs]
