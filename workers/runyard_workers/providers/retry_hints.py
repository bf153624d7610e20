"""What the headers of a refusal say about trying again."""

import email.utils
import math
import time
from collections.abc import Mapping


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait before the next attempt; None: nothing readable is said.

    `retry-after-ms` is the more precise form that Anthropic's and OpenAI's SDKs know; `retry-after` has seconds or an
    HTTP date (https://www.rfc-editor.org/rfc/rfc9110#field.retry-after).
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    seconds = milliseconds / 1000 if milliseconds is not None else _number(headers.get("retry-after"))
    if seconds is None and (at := _time_of(headers.get("retry-after"))) is not None:
        seconds = at - time.time()
    return None if seconds is None else max(seconds, 0.0)


def says_whether_to_retry(headers: Mapping[str, str]) -> bool | None:
    """Anthropic's own word, which counts more than the status; None: it says nothing."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", ""))


def _time_of(date: str | None) -> float | None:
    """Epoch seconds; None: it is no date, or one of a year that the calendar does not have."""
    try:
        parsed = email.utils.parsedate_tz(date)
        return None if parsed is None else email.utils.mktime_tz(parsed)
    except (ValueError, OverflowError):
        return None


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None
