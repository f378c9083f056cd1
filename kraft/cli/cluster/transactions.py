"""`kraft transactions`: shows transactions, and ends those that hang (Kafka: `kafka-transactions`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import Any, Final

import click
from msgspec.structs import replace

from kraft.cli.cluster.on_brokers import EXAMPLE, AnyCase, BrokerCluster, on_brokers
from kraft.cli.near import did_you_mean, unknown_topic
from kraft.cli.text import count, table
from kraft.client.groups import by_topic
from kraft.client.questions import ClusterView, Questions, TopicPartition
from kraft.client.transactions import (
    NO_TRANSACTION,
    STATES,
    Search,
    abort_transaction,
    describe_producers,
    describe_transaction,
    find_hanging,
    list_transactions,
    partitions_led_by,
    partitions_without_leader,
)
from kraft.config import UsageError
from kraft.config.errors import CommandFailed
from metadata_log.times import when_text
from transport.protocol.errors import Error
from transport.protocol.messages.describe_producers import ProducerState
from transport.protocol.messages.describe_transactions import TransactionState

NEVER_MS: Final = -1
_MINUTE_MS: Final = 60_000
_HINTS: Final = {
    Error.CLUSTER_AUTHORIZATION_FAILED: "The access rules do not permit that to this user: see `kraft acls list`.",
    Error.INVALID_PRODUCER_EPOCH: "The partition knows a newer epoch: the transaction is not that old one.",
    Error.LEADER_NOT_AVAILABLE: "No replica in sync runs: start the broker of one, see `kraft topics describe`.",
    Error.TRANSACTION_COORDINATOR_FENCED: "A newer coordinator has written a marker: give its --coordinator-epoch.",
    Error.UNKNOWN_TOPIC_OR_PARTITION: "See `kraft topics list`.",
}
topic_option = click.option("--topic", required=True, metavar="T", help="The topic.")
partition_option = click.option(
    "--partition", required=True, type=click.IntRange(0), metavar="N", help="Its partition."
)


@click.group(
    "transactions",
    short_help="List and describe transactions; end hanging ones.",
    epilog=f"Example: kraft transactions list {EXAMPLE}",
)
def transactions_command() -> None:
    """Look at transactions and end those that hang, like kafka-transactions, on this program's or Apache Kafka's
    brokers.
    """


@transactions_command.command(
    "list", short_help="All transactional ids.", epilog=f"Example: kraft transactions list --state Ongoing {EXAMPLE}"
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=AnyCase(STATES),
    metavar="STATE",
    help="Only in this state. May be repeated.",
)
@click.option("--older-than", type=click.IntRange(0), metavar="MS", help="Only transactions open for so long.")
@on_brokers
def list_command(states: tuple[str, ...], older_than: int | None, *, cluster: BrokerCluster) -> None:
    """List the transactional ids of all brokers with their coordinators and states."""
    listed = cluster.ask(
        partial(list_transactions, states=states, older_than_ms=NEVER_MS if older_than is None else older_than)
    )
    facts = [
        {
            "transactionalId": one.transactional_id,
            "coordinator": one.coordinator,
            "producerId": one.producer_id,
            "state": one.state,
        }
        for one in listed
    ]
    rows = [(one.transactional_id, one.coordinator, one.producer_id, one.state) for one in listed]
    lines = table(("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE"), rows) if rows else ["No transaction."]
    cluster.say({"transactions": facts}, lines)


@transactions_command.command(
    "describe",
    short_help="A transactional id at its coordinator.",
    epilog=f"Example: kraft transactions describe payments {EXAMPLE}",
)
@click.argument("transactional_id")
@on_brokers
def describe_command(transactional_id: str, *, cluster: BrokerCluster) -> None:
    """Describe TRANSACTIONAL_ID: producer, state, time-out, start, and the partitions in its transaction."""
    one = cluster.ask(partial(_described, transactional_id=transactional_id))
    start = None if one.transaction_start_time_ms == NEVER_MS else one.transaction_start_time_ms
    partitions = {topic.topic: topic.partitions for topic in one.topics}
    facts = {
        "transactionalId": one.transactional_id,
        "state": one.transaction_state,
        "producerId": one.producer_id,
        "producerEpoch": one.producer_epoch,
        "timeoutMs": one.transaction_timeout_ms,
        "startTimeMs": start,
        "partitions": partitions,
    }
    lines = [
        f"transactional id: {one.transactional_id}",
        f"state: {one.transaction_state}",
        f"producer: id {one.producer_id}, epoch {one.producer_epoch}",
        f"time-out: {one.transaction_timeout_ms} ms",
        f"start: {'-' if start is None else when_text(start)}",
        f"partitions: {' '.join(f'{topic}:{_numbers(some)}' for topic, some in partitions.items()) or '-'}",
    ]
    cluster.say(facts, lines)


def _numbers(some: Collection[int]) -> str:
    return ",".join(map(str, sorted(some)))


async def _described(ask: Questions, *, transactional_id: str) -> TransactionState:
    state = await describe_transaction(ask, transactional_id)
    if state is None:
        known = [one.transactional_id for one in await list_transactions(ask)]
        hint = did_you_mean(transactional_id, known) or "See `kraft transactions list`."
        raise CommandFailed(f"there is no transactional id {transactional_id}", hint=hint)
    return state


@transactions_command.command(
    "describe-producers",
    short_help="The producers of a partition.",
    epilog=f"Example: kraft transactions describe-producers --topic orders --partition 0 {EXAMPLE}",
)
@topic_option
@partition_option
@on_brokers
def describe_producers_command(topic: str, partition: int, *, cluster: BrokerCluster) -> None:
    """Show the producers that the leader of a partition remembers, with the first offset of an open transaction."""
    producers = cluster.ask(partial(_producers, partition=(topic, partition)))
    facts = [_producer_json(one) for one in producers]
    columns = ("PRODUCER-ID", "EPOCH", "COORDINATOR-EPOCH", "LAST-SEQUENCE", "LAST-TIME", "OPEN-SINCE-OFFSET")
    rows = [
        (
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.last_sequence,
            when_text(one.last_timestamp),
            "-" if one.current_txn_start_offset == NO_TRANSACTION else one.current_txn_start_offset,
        )
        for one in producers
    ]
    cluster.say({"producers": facts}, table(columns, rows) if rows else ["No producer."])


def _producer_json(one: ProducerState) -> dict[str, Any]:
    return {
        "producerId": one.producer_id,
        "producerEpoch": one.producer_epoch,
        "coordinatorEpoch": one.coordinator_epoch,
        "lastSequence": one.last_sequence,
        "lastTimestampMs": one.last_timestamp,
        "openSinceOffset": None if one.current_txn_start_offset == NO_TRANSACTION else one.current_txn_start_offset,
    }


async def _producers(ask: Questions, *, partition: TopicPartition) -> list[ProducerState]:
    _check_partition(await ask.cluster(), partition)
    error, producers = (await describe_producers(ask, [partition]))[partition]
    if error is not Error.NONE:
        raise CommandFailed(f"{partition[0]}-{partition[1]}: {error.name}", hint=_HINTS.get(error))
    return producers


def _check_partition(view: ClusterView, partition: TopicPartition) -> None:
    topic, number = partition
    if topic not in view.topics:
        raise unknown_topic(topic, view.topics, hint="See `kraft topics list`.")
    if number not in view.topics[topic].partitions:
        raise CommandFailed(
            f"{topic} has no partition {number}", hint=f"The last one is {len(view.topics[topic].partitions) - 1}."
        )


@transactions_command.command(
    "find-hanging",
    short_help="Transactions that no coordinator will end.",
    epilog=f"Example: kraft transactions find-hanging --topic orders {EXAMPLE}",
)
@click.option("--topic", metavar="T", help="Only this topic; without it, all.")
@click.option("--partition", type=click.IntRange(0), metavar="N", help="Only this partition of the topic.")
@click.option("--broker", type=int, metavar="ID", help="Only partitions that this broker leads.")
@click.option(
    "--max-transaction-timeout",
    default=15,
    show_default=True,
    type=click.IntRange(0),
    metavar="MINUTES",
    help="The longest that a transaction may take (transaction.max.timeout.ms of the brokers).",
)
@on_brokers
def find_hanging_command(
    topic: str | None,
    partition: int | None,
    broker: int | None,
    *,
    max_transaction_timeout: int,
    cluster: BrokerCluster,
) -> None:
    """Find transactions that are open in a partition for longer than any may be, and that their coordinator does not
    know. Readers of committed records wait for them; `kraft transactions abort` ends one. The exit code is 1 if there
    are any, if a partition without a leader was not checked, or if none was. Topics that the user may not describe are
    passed over in silence, as the brokers do not name them.
    """
    if partition is not None and topic is None:
        raise UsageError("a partition needs its topic", where="--partition", hint="Add --topic.")

    async def find(ask: Questions) -> Search:
        view = await ask.cluster()
        if topic is not None:
            _check_partition(view, (topic, partition or 0))
        if broker is not None and broker not in view.brokers:
            raise CommandFailed(
                f"there is no broker {broker}", hint=f"There are {', '.join(map(str, sorted(view.brokers)))}."
            )

        def wanted(every: Iterable[TopicPartition]) -> list[TopicPartition]:
            return [one for one in every if topic in {None, one[0]} and partition in {None, one[1]}]

        found = await find_hanging(ask, wanted(partitions_led_by(view, broker)), max_transaction_timeout * _MINUTE_MS)
        lost = wanted(partitions_without_leader(view)) if broker is None else ()
        return replace(found, unchecked=tuple(sorted((*lost, *found.unchecked))))

    found = cluster.ask(find)
    facts = {
        "hanging": [
            {"topic": one.topic, "partition": one.partition} | _producer_json(one.producer) for one in found.hanging
        ],
        "checked": found.checked,
        "unchecked": [{"topic": name, "partition": number} for name, number in found.unchecked],
    }
    cluster.say(facts, _search_lines(found))
    if found.hanging or found.unchecked or not found.checked:
        raise CommandFailed(exit_code=1)


def _none_found(found: Search) -> list[str]:
    """Brokers pass over the topics that a user may not describe, so that nobody knows whether these were all."""
    if found.checked:
        return [f"No hanging transaction in {count(found.checked, 'partition')} that this user may describe."]
    if found.unchecked:
        return []
    return ["Nothing was checked: there is no such partition, or none that this user may describe."]


def _search_lines(found: Search) -> list[str]:
    columns = ("TOPIC", "PARTITION", "PRODUCER-ID", "EPOCH", "COORDINATOR-EPOCH", "OPEN-SINCE-OFFSET", "LAST-TIME")
    rows = [
        (
            one.topic,
            one.partition,
            one.producer.producer_id,
            one.producer.producer_epoch,
            one.producer.coordinator_epoch,
            one.producer.current_txn_start_offset,
            when_text(one.producer.last_timestamp),
        )
        for one in found.hanging
    ]
    lines = list(table(columns, rows)) if rows else _none_found(found)
    if found.unchecked:
        names = " ".join(f"{name}:{_numbers(some)}" for name, some in by_topic(found.unchecked).items())
        lines.append(f"Not checked, for want of a leader: {names}")
    return lines


@transactions_command.command(
    "abort",
    short_help="End a hanging transaction.",
    epilog=f"Example: kraft transactions abort --topic orders --partition 0 --start-offset 1200 {EXAMPLE}",
)
@topic_option
@partition_option
@click.option("--start-offset", type=click.IntRange(0), metavar="N", help="The first offset of the transaction.")
@click.option("--producer-id", type=click.IntRange(0), metavar="N", help="Its producer, if the offset is not given.")
@click.option("--producer-epoch", type=click.IntRange(0), metavar="N", help="The epoch of the producer.")
@click.option("--coordinator-epoch", type=int, metavar="N", help="The epoch of its coordinator.")
@on_brokers
def abort_command(
    topic: str,
    partition: int,
    *,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
    cluster: BrokerCluster,
) -> None:
    """End a transaction that hangs in a partition by an abort marker. Its records never become visible to readers of
    committed records. A transaction that its coordinator knows must not be ended so: see find-hanging.
    """
    given = (producer_id, producer_epoch, coordinator_epoch)
    if (start_offset is None) is not all(one is not None for one in given) or (
        start_offset is not None and any(one is not None for one in given)
    ):
        raise UsageError(
            "give either --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch",
            where="kraft transactions abort",
            hint="See `kraft transactions find-hanging`.",
        )
    place = (topic, partition)

    async def abort(ask: Questions) -> tuple[int, int]:
        ids = [one for one in given if one is not None]
        if start_offset is not None:
            ids = await _open_at(ask, place, start_offset)
        else:
            _check_partition(await ask.cluster(), place)
        producer, epoch, coordinator = ids
        error = await abort_transaction(ask, place, producer, epoch, max(0, coordinator))
        if error is not Error.NONE:
            raise CommandFailed(f"{topic}-{partition}: {error.name}", hint=_HINTS.get(error))
        return producer, epoch

    producer, epoch = cluster.ask(abort)
    facts = {"topic": topic, "partition": partition, "producerId": producer, "producerEpoch": epoch}
    cluster.say({"aborted": facts}, [f"Aborted in {topic}-{partition}: producer id {producer}, epoch {epoch}"])


async def _open_at(ask: Questions, place: TopicPartition, start_offset: int) -> list[int]:
    """Producer id, epoch and coordinator's epoch of the transaction that begins at an offset."""
    producers = await _producers(ask, partition=place)
    open_ones = [one for one in producers if one.current_txn_start_offset != NO_TRANSACTION]
    for one in open_ones:
        if one.current_txn_start_offset == start_offset:
            return [one.producer_id, one.producer_epoch, one.coordinator_epoch]
    starts = ", ".join(str(one.current_txn_start_offset) for one in open_ones)
    raise CommandFailed(
        f"no open transaction of {place[0]}-{place[1]} begins at offset {start_offset}",
        hint=f"Open ones begin at {starts}." if starts else "None is open there.",
    )
