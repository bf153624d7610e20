"""Values come back as they were stored, on both databases alike.

The gateway refuses calls with what no store can hold. A worker runs the cleaner (`runyard.text`) once over the turns of
the model and the results of its tools, before the store, the stream and the model see them. Behind these nothing is
refused: there is no NUL, and numbers fit.
"""

import json
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.store.states import (
    AT,
    CALLS,
    OWNER,
    TOTALS,
    accepted,
    assistant_turn,
    claimed,
    completed,
    finished,
    held,
    new_turn,
    registered,
    settle,
)

from runyard.db import reads
from runyard.db.boundaries import append_results
from runyard.db.engine import Database, sync_engine
from runyard.db.tables import Json
from runyard.db.turns import append_turn, load_calls, load_messages, start_calls
from runyard.lifecycle.accept import accept_turn
from runyard.runs import RunEvent
from runyard.text import clean_json, clean_text

pytestmark = pytest.mark.anyio

TRICKY: dict[str, dict[str, Any]] = {
    "order": {"zebra": 1, "apple": 2, "mango": {"b": 1, "a": 2}},
    "integers": {"big": 2**63 - 1, "bigger": 2**64 - 1, "low": -(2**63), "beyond a double": 2**53 + 1},
    "floats": {"third": 1 / 3, "tiny": 5e-324, "huge": 1.7976931348623157e308, "whole": 1.0, "minus": -0.0},
    "nothing": {"empty": {}, "none": None, "list": [], "": "", "true": True, "false": False},
    "escapes": {"text": '\\u0000 and \\ and " and / and \x7f and \x01\t\r\n'},
    "unicode": {"text": "naïve 🐦 \N{LINE SEPARATOR} \N{NEXT LINE} \N{REPLACEMENT CHARACTER} \ufffe 日本 \U0010ffff"},
    "long": {"signature": "EqQBCkgIARABGAIiQL+/==", "data": "x" * 200_000},
    "likeness": {"looks like": ["1", "1.0", "null", "true", "{}", "[1]", "2025-01-01", "NaN"]},
}


@pytest.mark.parametrize("value", TRICKY.values(), ids=TRICKY)
async def test_json_comes_back_as_it_went(database: Database, database_url: str, value: Any) -> None:
    """In every column that holds JSON: the same values, of the same types, with their keys in the same order."""
    turn = new_turn(metadata=value, options=value, content=[value])
    await database.write(accept_turn, turn)
    claim = await claimed(database, registered(database_url))
    await database.write(append_turn, held(claim), assistant_turn(content=[value]), CALLS, TOTALS, at=AT)
    await database.write(start_calls, held(claim), 2, starting=[], finished=[finished(0, [value])], at=AT)
    await database.write(append_results, held(claim), 2, finished=[], results=[value], at=AT)
    failed = completed(event=RunEvent.FAIL, result=value, error=value)
    await database.write(settle, held(claim), failed, at=AT)

    found = await database.read(reads.run_of, claim.run.id, OWNER)
    assert found is not None
    run, invocation, _ = found
    rows = await database.read(load_messages, run.id)
    [call, _] = await database.read(load_calls, run.id, 2)
    for stored in (run.metadata, run.error, invocation.options, invocation.result, invocation.error):
        assert written(stored) == written(value)
    for stored in (claim.folded[0].content, *(row.content for row in rows), call.content):
        assert written(stored) == written([value])


@pytest.mark.parametrize(
    "text", [pytest.param("", id="empty"), "null", "5", "1e3", '"', "{}", " \n ", "a\r\nb", "naïve 🐦"]
)
async def test_text_content_stays_text(database: Database, database_url: str, text: str) -> None:
    """On SQLite a column of JSON prefers numbers: a text that looks like one must not become one."""
    await accepted(database, content=text, title=text)
    claim = await claimed(database, registered(database_url))
    assert (claim.folded[0].content, claim.run.title) == (text, text)
    assert (await database.read(load_messages, claim.run.id))[0].content == text


DIRTY = "a\x00b\ud800c"
CLEAN = "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"


async def test_text_from_outside_is_refused_nowhere_once_it_is_clean(database: Database, database_url: str) -> None:
    blocks = clean_json([{"type": "text", "text": DIRTY, DIRTY: [DIRTY, float("nan"), 10**30]}])
    expected = [{"type": "text", "text": CLEAN, CLEAN: [CLEAN, None, str(10**30)]}]
    text = clean_text(DIRTY)
    turn = new_turn(
        title=text,
        session_id=text,
        content=blocks,
        metadata=clean_json({DIRTY: DIRTY}),
        options=clean_json({"a": DIRTY}),
    )
    run_id = (await database.write(accept_turn, turn)).run_id
    claim = await claimed(database, registered(database_url))
    await database.write(append_turn, held(claim), assistant_turn(content=blocks), CALLS, TOTALS, at=AT)
    await database.write(start_calls, held(claim), 2, starting=[], finished=[finished(0, text)], at=AT)
    await database.write(append_results, held(claim), 2, finished=[finished(1, blocks)], results=blocks, at=AT)
    error = {"code": "PROVIDER_ERROR", "message": text}
    await database.write(settle, held(claim), completed(event=RunEvent.FAIL, error=error), at=AT)

    found = await database.read(reads.run_of, run_id, OWNER)
    assert found is not None
    assert (found[0].title, found[0].session_id, found[0].metadata) == (CLEAN, CLEAN, {CLEAN: CLEAN})
    assert found[0].error == {"code": "PROVIDER_ERROR", "message": CLEAN}
    assert [row.content for row in await database.read(load_messages, run_id)] == [expected, expected, expected]
    assert [call.content for call in await database.read(load_calls, run_id, 2)] == [CLEAN, expected]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('abc\x7fé"\\', max_size=3), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.fixed_dictionaries({"value": json_values}), min_size=1, max_size=8))
def test_any_json_comes_back_as_it_went(database_url: str, values: list[dict[str, Any]]) -> None:
    engine = sync_engine(database_url)
    try:
        with engine.connect() as connection:
            table = sa.Table("scratch", sa.MetaData(), sa.Column("position", sa.Integer), sa.Column("value", Json))
            table.create(connection)
            connection.execute(sa.insert(table), [{"position": at, "value": value} for at, value in enumerate(values)])
            stored = connection.execute(sa.select(table.c.value).order_by(table.c.position)).scalars().all()
            connection.rollback()
    finally:
        engine.dispose()
    assert [written(value) for value in stored] == [written(value) for value in values]


def written(value: Any) -> str:
    """JSON as text: unlike ==, it tells 1 from 1.0 and True, and one order of keys from another."""
    return json.dumps(value)
