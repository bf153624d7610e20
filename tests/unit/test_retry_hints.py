"""What a refusal's headers say about asking again."""

import email.utils
import time

import pytest

from runyard_workers.providers.retry_hints import retry_after_s, says_whether_to_retry


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after-ms": "20", "retry-after": "7"}, 0.02),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Fri, 31 Dec 99999 23:59:59 GMT"}, None),
        ({"retry-after": f"Fri, 31 Dec {'9' * 25} 23:59:59 GMT"}, None),
    ],
)
def test_the_wait_that_is_asked_for(headers: dict[str, str], wait_s: float | None) -> None:
    assert retry_after_s(headers) == wait_s


def test_a_date_is_a_wait_until_then() -> None:
    wait_s = retry_after_s({"retry-after": email.utils.formatdate(time.time() + 3600, usegmt=True)})
    assert wait_s is not None
    assert 3000 < wait_s <= 3600


@pytest.mark.parametrize(("word", "told"), [("true", True), ("false", False), ("perhaps", None), ("", None)])
def test_the_providers_own_word(word: str, told: bool | None) -> None:
    assert says_whether_to_retry({"x-should-retry": word}) is told
