"""Dead letters on both brokers: what there are, put back, dropped; and `runyard queues dead` as an operator runs it."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
from pika.exceptions import ChannelClosedByBroker
from tests.contract.queue.listening import listening, sent
from tests.contract.queue.queue_sides import Broker, RabbitmqSide, RedisSide, on_rabbitmq, on_redis
from tests.contract.queue.test_consuming import a_message, settled
from tests.contract.store.states import registered
from typer.testing import CliRunner

from runyard.cli import dead as command
from runyard.cli.command import app
from runyard.clock import now_ms
from runyard.errors import StartError
from runyard.queue import broker as brokers
from runyard.queue import dead
from runyard.queue.dead import DeadLetters, dead_letters
from runyard.queue.links import BrokerAwayError
from runyard.queue.redis_broker import WakingRedisBroker

pytestmark = [pytest.mark.anyio, pytest.mark.services, pytest.mark.usefixtures("impatient")]

DAY_MS = 86_400_000
STRANGE = {"actor_name": "somebody_elses"}


@contextmanager
def letters_of(broker: Broker) -> Iterator[DeadLetters]:
    with dead_letters(broker.url, prefix=broker.prefix) as letters:
        yield letters


async def died(broker: Broker, *bodies: bytes) -> None:
    """A worker met these, one after the other, and could use none of them."""
    async with listening(broker.url, broker.prefix, slots=2) as worker:
        await sent(broker.url, broker.prefix)
        await worker.has_woken(1)
        for count, body in enumerate(bodies, broker.side.dead() + 1):
            broker.side.put(body)
            await settled(broker, dead=count)


async def test_they_are_told_the_oldest_first(broker: Broker) -> None:
    began_ms = now_ms()
    await died(broker, a_message(broker, **STRANGE, kwargs={"run_id": "run_7"}), b"no message $ID", b"no message $ID")
    with letters_of(broker) as letters:
        first, *others = letters.listed("default")
        assert (first.queue, first.actor, first.run_id) == ("default", "somebody_elses", "run_7")
        for other in others:
            assert (other.actor, other.run_id) == (None, None)
            assert other.size_bytes >= len(b"no message ")
        for letter in (first, *others):
            assert letter.since_ms is not None
            assert began_ms - 1_000 <= letter.since_ms <= now_ms() + 1_000  # RabbitMQ tells whole seconds
        assert [letter.id for letter in letters.listed("default")] == [first.id, *(other.id for other in others)]
    assert broker.side.dead() == 3


async def test_a_wake_up_whose_claim_failed_is_put_back_and_wakes_a_worker(broker: Broker) -> None:
    def fail() -> None:
        raise RuntimeError("the claim broke")

    async with listening(broker.url, broker.prefix, slots=3, claim=fail):
        await sent(broker.url, broker.prefix, 2)
        await settled(broker, dead=2)
    async with listening(broker.url, broker.prefix, slots=3) as worker:
        with letters_of(broker) as letters:
            assert {letter.actor for letter in letters.listed("default")} == {"wake"}
            assert letters.requeue("default", None) == 2
        await worker.has_woken(2)
        await settled(broker)


async def test_what_cannot_be_read_is_not_put_back(broker: Broker) -> None:
    await died(broker, b"no message $ID", a_message(broker, **STRANGE))
    with letters_of(broker) as letters:
        assert letters.requeue("default", None) == 1
        (left,) = letters.listed("default")
        assert left.actor is None
        assert letters.requeue("default", [left.id]) == 0
    await settled(broker, ready=1, dead=1)


async def test_those_that_are_named_are_meant_and_no_others(broker: Broker) -> None:
    await died(broker, *(a_message(broker, **STRANGE, message_id=f"m-{number}") for number in range(4)))
    with letters_of(broker) as letters:
        first, second, third, fourth = [letter.id for letter in letters.listed("default")]
        assert letters.drop("default", [second, "unknown"]) == 1
        assert letters.requeue("default", [third, second]) == 1
        assert [letter.id for letter in letters.listed("default")] == [first, fourth]
    await settled(broker, ready=1, dead=2)


async def test_all_means_all_however_many(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead, "LISTED_MAX", 2)
    bodies = [a_message(broker, **STRANGE), b"no message $ID", b"nor this $ID", *[a_message(broker, **STRANGE)] * 3]
    await died(broker, *bodies)
    with letters_of(broker) as letters:
        assert len(letters.listed("default")) == 2
        assert letters.requeue("default", None) == 4
        assert letters.drop("default", None) == 2
    await settled(broker, ready=4)


async def test_all_are_those_that_there_are_also_while_they_die_again(broker: Broker) -> None:
    bodies = [a_message(broker, **STRANGE)] * 5
    await died(broker, *bodies)
    async with listening(broker.url, broker.prefix, slots=2):
        with letters_of(broker) as letters:
            assert await asyncio.to_thread(letters.requeue, "default", None) == len(bodies)
        await settled(broker, dead=len(bodies))


async def test_a_queue_that_is_not_there_holds_nothing(broker: Broker) -> None:
    with letters_of(broker) as letters:
        assert letters.listed("elsewhere") == []
        assert letters.requeue("elsewhere", None) == letters.drop("elsewhere", None) == 0
        assert letters.listed("default") == []


@on_redis
async def test_redis_lets_go_of_them_after_seven_days(broker: Broker) -> None:
    await died(broker, b"old $ID", b"young $ID")
    assert isinstance(broker.side, RedisSide)
    with letters_of(broker) as letters:
        old, young = [letter.id for letter in letters.listed("default")]
        key = f"{broker.side.namespace}:{broker.side.name}.XQ"
        broker.side.client.zadd(key, {old: now_ms() - 7 * DAY_MS - 1_000, young: now_ms() - 7 * DAY_MS + 60_000})
        sender = brokers.connect(broker.url, prefix=broker.prefix)
        assert isinstance(sender, WakingRedisBroker)
        sender.maintenance_chance = 1_000_000  # in a million: with every command
        sender.do_qsize(broker.side.name)
        sender.close()
        assert [letter.id for letter in letters.listed("default")] == [young]
    assert broker.side.client.hlen(f"{key}.msgs") == 1


@on_rabbitmq
async def test_rabbitmq_lets_go_of_them_after_seven_days(broker: Broker) -> None:
    """An argument of the queue: whoever declares it with another one is refused."""
    await died(broker, b"no message")
    assert isinstance(broker.side, RabbitmqSide)
    for days, refused in ((7, False), (6, True)):
        channel = broker.side.connection.channel()
        arguments = {"x-message-ttl": days * DAY_MS}
        with pytest.raises(ChannelClosedByBroker) if refused else nullcontext():
            channel.queue_declare(f"{broker.side.name}.XQ", durable=True, arguments=arguments)


def test_a_broker_that_is_away_is_told(broker: Broker) -> None:
    broker.relay.refuse()
    with pytest.raises(BrokerAwayError, match="the broker cannot be asked"), letters_of(broker) as letters:
        letters.listed("default")


@pytest.fixture
def environment(broker: Broker, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's."""
    values = {
        "RUNYARD_DATABASE_URL": database_url,
        "RUNYARD_BROKER_URL": broker.url,
        "RUNYARD_PREFIX": broker.prefix,
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_an_operator_looks_puts_back_and_drops(broker: Broker, environment: None) -> None:
    async def run(*arguments: str) -> str:
        done = await asyncio.to_thread(CliRunner().invoke, app, ["queues", "dead", *arguments])
        assert (done.exit_code, done.stderr) == (0, "")
        return done.stdout

    await died(broker, a_message(broker, **STRANGE, kwargs={"run_id": "run_7"}), b"no message $ID")
    first, second = [json.loads(line) for line in (await run("list", "--queue", "default", "--json")).splitlines()]
    assert (first["queue"], first["actor"], first["runId"], second["actor"]) == (
        *("default", "somebody_elses", "run_7"),
        None,
    )
    assert await run("requeue", "default", first["id"]) == "1 put back into default, 1 left\n"
    assert await run("drop", "default", "--all") == "1 dropped from default, 0 left\n"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_the_list_is_of_the_queues_that_the_database_knows(
    broker: Broker, environment: None, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await died(broker, a_message(broker, **STRANGE, kwargs={"run_id": "run_7"}), b"no message $ID")
    capsys.readouterr()  # what the worker logged
    await asyncio.to_thread(command.print_list, [], as_json=False)
    assert capsys.readouterr().out.split() == [*("QUEUE", "ID", "DEAD", "FOR", "WHAT")]
    registered(database_url, queues=("default", "bulk"))
    await asyncio.to_thread(command.print_list, [], as_json=False)
    _head, readable, unreadable = capsys.readouterr().out.splitlines()
    assert readable.endswith("'somebody_elses' of 'run_7'")
    assert "cannot be read, " in unreadable


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("ids", [[], ["some", "--all"]])
def test_which_are_meant_must_be_said(environment: None, ids: list[str]) -> None:
    for act in (command.requeue, command.drop):
        with pytest.raises(StartError, match="--all"):
            act("default", ids[:1], every=bool(ids))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_broker_that_is_away_is_told_in_one_line(broker: Broker, environment: None) -> None:
    broker.relay.refuse()
    with pytest.raises(StartError, match=r"^the broker cannot be asked: \w+ \(RUNYARD_BROKER_URL\)$"):
        command.print_list(["default"], as_json=True)
