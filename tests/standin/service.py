"""Answers one request of the Messages API: key, judge, script."""

import hashlib
import secrets
import time
import traceback
from asyncio import CancelledError
from collections.abc import Collection

import orjson

from tests.standin.http import Exchange
from tests.standin.play import BrokenOff, Player
from tests.standin.record import Ending, Request
from tests.standin.rules import InvalidTranscript, strict_json, validate
from tests.standin.rules.versions import VERSIONS
from tests.standin.state import COUNT_TOKENS, MESSAGES, State

LIMIT_BYTES = 32 * 1024 * 1024  # https://docs.claude.com/en/api/overview


class Service:
    def __init__(self, state: State, bad_keys: Collection[str]) -> None:
        self._state = state
        self._bad_keys = frozenset(bad_keys)

    async def answer(self, exchange: Exchange) -> None:
        request = _read(exchange)
        state = self._state
        state.arrived(request)
        player = Player(exchange=exchange, request=request, gates=state.gates, ledger=state.ledger)
        ending = Ending.COMPLETE
        try:
            await self._serve(exchange, request, player)
        except BrokenOff:
            ending = Ending.CUT
        except CancelledError:
            ending = Ending.ABORTED if state.stopping else Ending.CLIENT_CLOSED
            raise
        except Exception:  # noqa: BLE001  # a script that cannot be played must fail its test, not leave it waiting
            ending = Ending.ABORTED
            state.unexpected.append(f"request {request.number} could not be answered: {traceback.format_exc()}")
            await exchange.close()
        finally:
            request.bytes_sent = exchange.bytes_sent
            request.end(ending, time.time())

    async def _serve(self, exchange: Exchange, request: Request, player: Player) -> None:
        if request.path not in (MESSAGES, COUNT_TOKENS):
            player.fail(404)
        elif exchange.method != "POST":
            player.fail(405)
        elif fault := self._unauthorised(exchange):
            status, error_type, message = fault
            player.fail(status, error_type, message)
        elif len(exchange.body) > LIMIT_BYTES:
            player.fail(413)
        elif refusal := request.refusal or self._judge(request):
            request.refusal = refusal
            self._state.unexpected.append(f"request {request.number} was refused: {refusal}")
            player.fail(400, message=refusal)
        elif request.path == COUNT_TOKENS:
            # Some count that grows with the text: nobody may rely on which.
            player.respond({"input_tokens": len(orjson.dumps(request.body)) // 4})
        elif (script := self._state.choose(request)) is not None:
            await player.play(script)
        else:
            self._state.unexpected.append(f"request {request.number} found no script")
            player.fail(400, message="stand-in: no script is left for this request")

    def _unauthorised(self, exchange: Exchange) -> tuple[int, str, str] | None:
        key = _key(exchange)
        if not key:
            return 401, "authentication_error", "x-api-key header is required"
        if key in self._bad_keys:
            return 401, "authentication_error", "invalid x-api-key"
        version = exchange.headers.get("anthropic-version")
        if version is None:
            return 400, "invalid_request_error", "anthropic-version: header is required"
        if version not in VERSIONS:
            return 400, "invalid_request_error", f"anthropic-version: {version!r} is not a valid version"
        return None

    def _judge(self, request: Request) -> str | None:
        try:
            validate(
                request.body,
                sent=self._state.ledger,
                strict=self._state.strict,
                counting=request.path == COUNT_TOKENS,
                version=request.headers["anthropic-version"],
            )
        except InvalidTranscript as refusal:
            return refusal.message
        return None


def _key(exchange: Exchange) -> str:
    """The API takes a key either way; the 2.x SDKs send it as a bearer token."""
    bearer = exchange.headers.get("authorization", "").removeprefix("Bearer ")
    return exchange.headers.get("x-api-key") or bearer


def _read(exchange: Exchange) -> Request:
    key = _key(exchange)
    request = Request(
        path=exchange.path,
        headers={name: value for name, value in exchange.headers.items() if name not in {"x-api-key", "authorization"}},
        key_digest=hashlib.sha256(key.encode()).hexdigest()[:16] if key else None,
        request_id=f"req_{secrets.token_hex(12)}",
        received_at=time.time(),
    )
    try:
        request.body = strict_json.parse(bytes(exchange.body))
    except InvalidTranscript as refusal:
        request.refusal = refusal.message
    return request
