"""A function as the tool that its run calls. The call always ends with an `Outcome`."""

import functools
import math
from dataclasses import dataclass, fields
from typing import Any

from runyard.authoring.context import RunContext
from runyard.authoring.errors import InvalidToolInput, Refused
from runyard.authoring.functions import Function
from runyard.authoring.issues import as_text
from runyard.authoring.tools import Tool
from runyard.blocks import CANCELLED
from runyard.errors import FunctionFailed, InvalidArgs, RunTimeout, RunyardError
from runyard.text import clean_text, truncate_bytes
from runyard_workers.author_code import (
    FailedError,
    NotBegunError,
    TimedOutError,
    log_failure,
    run_author_code,
    unless_cancelled,
)
from runyard_workers.functions.outcome import Outcome, error_dict, output_of
from runyard_workers.functions.output import FunctionOutput
from runyard_workers.results import RESULT_LIMIT_BYTES, ToolResult, describe_exception, error_result
from runyard_workers.threads import ToolThreads


@dataclass(frozen=True, kw_only=True, eq=False)
class FunctionCall(Tool[..., Any]):
    """Accepts any input, and checks it as part of the call."""

    def arguments(self, input: Any) -> dict[str, Any]:  # noqa: A002 - as `Tool.arguments`
        return {"input": input}


def function_call(function: Function[..., Any], output: FunctionOutput, threads: ToolThreads) -> FunctionCall:
    async def call(context: RunContext, input: Any) -> ToolResult:  # noqa: A002 - as `Tool.arguments`
        value, error = None, None
        try:
            value = output_of(await _returned(function, input, context, threads))
        except (RunyardError, Refused) as ended:
            error = error_dict(ended)
        except NotBegunError:
            return error_result(CANCELLED)
        except TimedOutError:
            context.cancelled.set()
            error = error_dict(RunTimeout(f"the function timed out after {function.timeout_s:g} s"))
        assert output.answer is not None, "a context of the call was made"
        output.answer.shut()  # what comes later would be in the stream and in no row
        return Outcome(text=output.answer.text, output=value, error=error).to_result()

    own = {
        "handler": call,
        "is_async": True,
        "timeout_s": math.inf,  # the function's own counts from when it has a thread
        "context_parameter": "context",
    }
    return FunctionCall(**{field.name: getattr(function, field.name) for field in fields(Tool)} | own)


async def _returned(function: Function[..., Any], given: Any, context: RunContext, threads: ToolThreads) -> Any:
    """What the function returns for the given arguments.

    Raises:
        InvalidArgs, Refused, FunctionFailed, TimedOutError, NotBegunError: in place of a value.
    """
    try:
        arguments = function.arguments(given)
    except InvalidToolInput as error:
        raise InvalidArgs(as_text(error.issues), fields=sorted(filter(None, error.issues))) from error
    except BaseException as error:
        # pydantic lets most of what an author's validator raises through
        raise _failed(error, context) from error
    if function.context_parameter is not None:
        arguments[function.context_parameter] = context
    work = functools.partial(function.handler, **arguments)
    try:
        return await run_author_code(
            unless_cancelled(work, context),
            is_async=function.is_async,
            timeout_s=function.timeout_s,
            threads=threads,
        )
    except FailedError as failure:
        if isinstance(failure.error, Refused | NotBegunError):
            raise failure.error from None
        log_failure(context, function.name, failure.error)
        raise _failed(failure.error, context) from failure.error


def _failed(error: BaseException, context: RunContext) -> FunctionFailed:
    """Only the run's owner gets the exception's message: the caller of a public function may be anybody."""
    if not context.user_id:
        context.log.warning("function failed", exc_info=error)
        return FunctionFailed(f"the function failed ({type(error).__name__})")
    return FunctionFailed(truncate_bytes(clean_text(describe_exception(error)), RESULT_LIMIT_BYTES))
