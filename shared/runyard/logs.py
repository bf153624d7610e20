"""One log for a process: structlog's events and the libraries' records leave through one handler, on stderr."""

import json
import logging
import sys
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

QUIET_LIBRARIES = ("aiosqlite", "alembic", "asyncio", "dramatiq", "httpx2", "opentelemetry", "sqlalchemy", "uvicorn")
"""Their own info records tell of each connection and each request; ours tell of each change of state."""

SILENT_LIBRARIES = ("opentelemetry.trace", "pika")
"""The first writes into its warnings what is wrong with the trace headers that anybody may send. The other raises what
it logs, after telling it four times with tracebacks."""

OURS = ("agent", "runyard", "runyard_agents", "runyard_gateway", "runyard_workers")
"""Whose debug records are shown, those of agent files and of `RunContext.log` ("agent") among them. Libraries write
requests into theirs, prompts and all: none is ever shown."""

_process: dict[str, str] = {}


def identify(**names: str) -> None:
    """Fields of every JSON line of this process from now on, unless a line sets them itself."""
    _process.update(names)


def configure(role: str, level: str, *, json: bool) -> None:
    """Set up the process's logging; called by the command or an entry point. A second call replaces the first.

    `role` ("gateway", "worker") is in every JSON line; console lines leave it out, since `runyard dev` begins each line
    with it. `level` is one of "debug", "info", "warning", "error"; "debug" applies to `OURS` only. `json`: one object a
    line, for machines; otherwise columns and plain tracebacks, for people.
    """
    _process.clear()
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso" if json else "%H:%M:%S", utc=json),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *common,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,  # module-level loggers follow a later configure
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *(_for_machines(role) if json else _for_a_person()),
            ],
            foreign_pre_chain=[*common, structlog.stdlib.add_logger_name],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    wanted = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(max(logging.INFO, wanted))
    for name in OURS:
        logging.getLogger(name).setLevel(wanted)
    for name in QUIET_LIBRARIES:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    for name in SILENT_LIBRARIES:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _for_machines(role: str) -> list[Processor]:
    def add_role(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {"role": role, **_process, **event}

    return [add_role, structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_json)]


def _json(event: EventDict, **_options: Any) -> str:
    """One line of strict JSON, whatever authors' code gave for a field."""
    try:
        return _dumped(event)
    except Exception:  # noqa: BLE001 - an author's __repr__ may raise anything
        return _dumped({name: _readable(value) for name, value in event.items()})


def _readable(value: Any) -> Any:
    try:
        _dumped(value)
    except Exception:  # noqa: BLE001 - see above
        try:
            return repr(value)
        except Exception:  # noqa: BLE001
            return type(value).__name__
    return value


def _dumped(value: Any) -> str:
    return json.dumps(value, default=repr, allow_nan=False)


def _for_a_person() -> list[Processor]:
    return [structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)]
