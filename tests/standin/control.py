"""The control routes, for tests and benchmarks in other processes.

POST /_standin/scripts          a plan: {"scripts": [...], "by": "queue" | "turn", "match": {"contains": "..."}}
POST /_standin/reset
GET  /_standin/requests         ?at_least=n waits for the n-th
GET  /_standin/requests/{n}     ?ended=1 waits for the end of its answer
GET  /_standin/gates/{name}     ?reached=n waits for the n-th arrival
POST /_standin/gates/{name}     {"release": true} or {"advance": n}
POST /_standin/validate         {"messages": [...]}: {"refusal": null | "..."}
GET  /_standin/counts           calls, calls per conversation, usage, what nobody expected
"""

from typing import Any
from urllib.parse import parse_qs, unquote

import orjson
from pydantic import ValidationError

from tests.standin.gates import Gate
from tests.standin.http import Exchange
from tests.standin.plans import Plan
from tests.standin.rules import InvalidTranscript, validate_transcript
from tests.standin.state import State

PREFIX = "/_standin/"


class Control:
    def __init__(self, state: State) -> None:
        self._state = state

    async def answer(self, exchange: Exchange) -> None:
        body = orjson.loads(exchange.body) if exchange.body else {}
        query = {name: values[-1] for name, values in parse_qs(exchange.query).items()}
        path = [unquote(part) for part in exchange.path.removeprefix(PREFIX).split("/")]
        try:
            status, answer = 200, await self._route(exchange.method, path, query, body)
        except (ValidationError, ValueError) as error:
            status, answer = 400, {"error": str(error)}
        except LookupError:
            status, answer = 404, {"error": f"{exchange.method} {exchange.path}"}
        except TimeoutError as error:
            status, answer = 504, {"error": str(error)}
        exchange.respond(status, {"content-type": "application/json"}, orjson.dumps(answer))

    async def _route(self, method: str, path: list[str], query: dict[str, str], body: Any) -> Any:
        state = self._state
        answer: Any = {}
        match method, path:
            case "POST", ["scripts"]:
                # As JSON, so that bytes and tuples are read from their JSON forms.
                state.choices.append(Plan.model_validate_json(orjson.dumps(body)).choice())
            case "POST", ["reset"]:
                state.reset()
            case "GET", ["requests"]:
                if at_least := int(query.get("at_least", 0)):
                    await state.request(at_least)
                answer = [request.to_json() for request in state.requests]
            case "GET", ["requests", number]:
                request = state.requests[int(number) - 1]
                if "ended" in query:
                    await request.ended()
                answer = request.to_json()
            case "GET" | "POST", ["gates", name]:
                answer = await self._gate(state.gates[name], method, query, body)
            case "POST", ["validate"]:
                answer = {"refusal": self._refusal(body["messages"])}
            case "GET", ["counts"]:
                answer = {
                    "calls": len(state.calls),
                    "conversations": {text: len(calls) for text, calls in state.conversations().items()},
                    "usage": state.usage(state.calls),
                    "unexpected": state.unexpected,
                }
            case _:
                raise LookupError
        return answer

    async def _gate(self, gate: Gate, method: str, query: dict[str, str], body: Any) -> dict[str, Any]:
        if method == "POST":
            match body:
                case {"release": True}:
                    gate.release()
                case {"advance": int(count)}:
                    gate.advance(count)
                case _:
                    raise ValueError('a gate takes {"release": true} or {"advance": n}')
        elif reached := int(query.get("reached", 0)):
            await gate.reached(reached)
        return {"arrivals": gate.arrivals, "holders": gate.holders, "open": gate.is_open}

    def _refusal(self, messages: Any) -> str | None:
        try:
            validate_transcript(messages, sent=self._state.ledger, strict=self._state.strict)
        except InvalidTranscript as refusal:
            return refusal.message
        return None
