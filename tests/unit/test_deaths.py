"""When a run that kills its workers is no longer tried."""

import pytest

from runyard.db.deaths import DEATHS_MAX, TOOL_DEATHS_MAX, crash_reason


@pytest.mark.parametrize(
    "deaths",
    [
        [],
        [["search_docs"]] * (TOOL_DEATHS_MAX - 1),
        [["search_docs", "send_mail"], ["search_docs"], ["send_mail"], ["other"]],
        [[]] * (DEATHS_MAX - 1),
    ],
)
def test_an_invocation_is_tried_again(deaths: list[list[str]]) -> None:
    assert crash_reason(deaths) is None


def test_a_tool_that_kills_is_named() -> None:
    deaths = [["search_docs", "send_mail"], [], ["send_mail"], ["send_mail"]]
    assert crash_reason(deaths) == "3 workers died while the tool 'send_mail' ran"


def test_tools_that_ran_each_time_are_all_named() -> None:
    """One of them killed, and nobody knows which."""
    deaths = [["charge", "fetch", "send_mail"], ["fetch", "charge"], ["charge", "fetch"]]
    assert crash_reason(deaths) == "3 workers died while the tools 'charge' and 'fetch' ran"


def test_an_invocation_that_kills_is_given_up() -> None:
    assert crash_reason([[]] * DEATHS_MAX) == "10 workers died while they executed the run"
