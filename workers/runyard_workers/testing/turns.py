"""Makes of a test's call the turn that a gateway would accept."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypedDict

import orjson

from runyard.clock import now_ms
from runyard.db.records import Run
from runyard.db.scope import Scope
from runyard.errors import InputRequired
from runyard.history import HistoryMessage, check_user_blocks
from runyard.ids import new_input_id, new_invocation_id, new_request_id, new_run_id, new_stream_id
from runyard.lifecycle.new_turn import NewTurn
from runyard.priorities import Priority
from runyard.text import clean_json
from runyard_workers.testing.results import RunResult

USER, TENANT = "dev", "default"
"""As under `runyard dev`."""

Input = str | list[dict[str, Any]]


class CallOptions(TypedDict, total=False):
    """For whom a call is made, and what tools find in their context."""

    user_id: str
    tenant_id: str
    roles: Collection[str]
    context: Mapping[str, Any]
    metadata: Mapping[str, Any]
    title: str


class RunOptions(CallOptions, total=False):
    """`agent`: which one, where the harness has several. `continues`: an earlier run, or its id; `session_id` names one
    as well. `history`: what was said elsewhere before. The others are those of the HTTP API.
    """

    agent: str
    continues: RunResult | str
    session_id: str
    history: Sequence[Mapping[str, Any]]
    if_busy: Literal["steer", "reject", "cancel"]
    model: str
    max_steps: int
    max_tokens: int


def agents_turn(agent: str, queue: str, said: Input, options: RunOptions) -> NewTurn:
    """The turn that a call on an agent would begin.

    Raises:
        InputRequired, InvalidArgs: no caller may say this.
    """
    if not said or (isinstance(said, str) and not said.strip()):
        raise InputRequired("input is required")
    content = clean_json(said)
    if not isinstance(content, str):
        check_user_blocks(content, "input")
    earlier = options.get("continues")
    history = options.get("history")
    names = {"max_steps": "maxSteps", "max_tokens": "maxTokens", "model": "model"}
    return replace(
        _turn(agent, queue, content, options, earlier.run if isinstance(earlier, RunResult) else None),
        options={wire: options[name] for name, wire in names.items() if name in options},  # type: ignore[literal-required]
        continues=earlier.run_id if isinstance(earlier, RunResult) else earlier,
        session_id=options.get("session_id"),
        if_busy=options.get("if_busy", "steer"),
        history=None if history is None else tuple(_message(message) for message in history),
    )


def functions_turn(function: str, queue: str, arguments: Mapping[str, Any], options: CallOptions) -> NewTurn:
    return _turn(function, queue, orjson.dumps(clean_json(dict(arguments))).decode(), options, None)


def _turn(agent: str, queue: str, content: Input, options: CallOptions, earlier: Run | None) -> NewTurn:
    """`earlier`: the run that is continued, whose user calls again unless the options name another."""
    tenant_id = options.get("tenant_id", TENANT if earlier is None else earlier.tenant_id)
    user_id = options.get("user_id", USER if earlier is None else earlier.user_id)
    return NewTurn(
        tenant_id=tenant_id,
        user_id=user_id,
        scope=Scope.of_user(tenant_id, user_id),
        agent=agent,
        queue=queue,
        priority=Priority.INTERACTIVE,  # a harness has a slot for every call
        content=content,
        roles=tuple(sorted(options.get("roles", ()))),
        options={},
        run_id=new_run_id(),
        invocation_id=new_invocation_id(),
        input_id=new_input_id(),
        stream_id=new_stream_id(),
        request_id=new_request_id(),
        at=now_ms(),
        title=options.get("title"),
        metadata=_json(options.get("metadata")),
        context=_json(options.get("context")),
    )


def _message(message: Mapping[str, Any]) -> HistoryMessage:
    return HistoryMessage(role=message["role"], content=clean_json(message["content"]))


def _json(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if values is None else clean_json(dict(values))
