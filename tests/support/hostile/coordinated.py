"""A broker in memory that coordinates groups and transactions which are there, and what a request costs each turn.

A stranger's request is refused before any work, so that each of these names a group, a member or a transactional id
that exists (`known`, by the names of fields). A turn is one call of the broker.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator, Iterator
from random import Random
from typing import Any, Final

from kraft.config.group_settings import GroupConfig
from kraft.coordinators.apis import ROWS
from kraft.wire import Answer, Outcome, Send
from metadata_log.errors import LimitExceeded
from metadata_log.records.metadata import FeatureLevelRecord
from metadata_log.serde import Message
from metadata_log.serde.codec import decode_within
from metadata_log.types import Uuid
from support.broker.request_brokers import Brokers, NewTopic, due_of, epoch_of, topic_id, wire_request
from support.hostile.amplified import Amplified, Known, amplified
from transport.protocol.apis import Api, ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.broker_listener import AT_BROKERS, broker_request_limit
from transport.protocol.errors import Error
from transport.protocol.headers import decode_request_header
from transport.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from transport.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from transport.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from transport.protocol.messages.init_producer_id import InitProducerIdRequest
from transport.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from transport.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from transport.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

BROKER: Final = 101
OTHERS: Final = (ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID, ApiKey.WRITE_TXN_MARKERS)
"""The APIs of coordinators that are in the first table of a broker."""
APIS: Final = tuple(AT_BROKERS[key] for key in sorted((*ROWS, *OTHERS)))
MEMBER: Final = str(topic_id(7))
ORDERS: Final = topic_id(3)
Turn = Callable[[], None]
Asking = Generator[Message, Any, Known]


class Coordinator:
    """The broker, and the answers by the ids of the requests."""

    def __init__(self) -> None:
        topics = [
            NewTopic("__consumer_offsets", topic_id(1), ((BROKER,),), {"cleanup.policy": "compact"}),
            NewTopic("__transaction_state", topic_id(2), ((BROKER,),), {"cleanup.policy": "compact"}),
            NewTopic("orders", ORDERS, ((BROKER,),) * 3),
        ]
        self.brokers = Brokers(topics, groups=GroupConfig(initial_rebalance_delay_ms=0))
        self.brokers.change(
            FeatureLevelRecord(name="group.version", feature_level=1),
            FeatureLevelRecord(name="transaction.version", feature_level=2),
        )
        self.requests = self.brokers.requests[BROKER]
        self.answers: dict[int, Any] = {}
        self._last_id = 0
        self.settle()

    def _take(self, outcomes: list[Outcome]) -> None:
        for one in outcomes:
            assert isinstance(one, Answer), one
            self.answers[one.request_id] = one.message

    def _poll(self) -> None:
        brokers, requests = self.brokers, self.requests
        requests.use(brokers.image)
        requests.broker_epoch = epoch_of(BROKER)
        for one in list(due_of(requests, brokers.now_ms)):
            if not isinstance(one, Send):
                self._take([one])
            elif one.target is None:
                block = AllocateProducerIdsResponse(producer_id_start=1000, producer_id_len=1000)
                requests.on_reply(one.reply_to.key, block, brokers.now_ms)

    def settle(self) -> None:
        """Do all that is due, and give out producer ids."""
        for turn in self.due():
            turn()

    def due(self) -> Iterator[Turn]:
        """The turns of what is due within a short time, to be made by the caller."""
        brokers, requests = self.brokers, self.requests
        end_ms = brokers.now_ms + 20
        while (due_ms := requests.agenda.deadline_ms) <= end_ms:
            brokers.now_ms = max(due_ms, brokers.now_ms)
            yield self._poll

    def turns(self, message: Message, version: int, client_id: str = "c") -> Iterator[Turn]:
        """The turns of a request and of what follows, to be made by the caller."""
        self._last_id += 1
        number = self._last_id
        key = next(key for key, api in ALL_APIS.items() if api.request is type(message))
        request = wire_request(number, key, version, message, client_id=client_id)

        def first() -> None:
            outcome = self.requests.on_request(request, self.brokers.image, self.brokers.now_ms)
            self._take([] if outcome is None else [outcome])

        yield first
        yield from self.due()

    def ask(self, message: Message, version: int | None = None, client_id: str = "c") -> Any:
        """The answer to a request, after all that follows; None if there is none yet."""
        key = next(key for key, api in ALL_APIS.items() if api.request is type(message))
        for turn in self.turns(message, AT_BROKERS[key].versions.highest if version is None else version, client_id):
            turn()
        return self.answers.pop(self._last_id, None)

    def situated(self, situation: str, name: str) -> Known:
        """Make a situation, and return the values of fields that name what is in it."""
        asking = SITUATIONS[situation](name, ORDERS)
        answer = None
        try:
            while True:
                answer = self.ask(asking.send(answer))
        except StopIteration as done:
            known: Known = done.value
            return known


# What is there: the requests that make it


def _simple(name: str, topic: Uuid) -> Asking:
    """A group without members that has an offset."""
    part = OffsetCommitRequestPartition(0, 1, committed_metadata="")
    yield OffsetCommitRequest(group_id=name, topics=[OffsetCommitRequestTopic("orders", topic, [part])])
    return _known(name, topic)


def _classic(name: str, topic: Uuid) -> Asking:
    """A group of one member, the leader, which waits for its own assignments: a SyncGroup with many has an effect."""
    member_id, generation = "", 0
    for metadata in (b"m", b"n"):
        joined = yield JoinGroupRequest(
            group_id=name,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            group_instance_id="i",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", metadata)],
        )
        assert joined.error_code == 0, joined
        member_id, generation = joined.member_id, joined.generation_id
        if metadata == b"m":
            synced = yield SyncGroupRequest(
                group_id=name,
                generation_id=generation,
                member_id=member_id,
                group_instance_id="i",
                protocol_type="consumer",
                protocol_name="range",
                assignments=[SyncGroupRequestAssignment(member_id, b"a")],
            )
            assert synced.error_code == 0, synced
    return _known(
        name,
        topic,
        member_id=member_id,
        group_instance_id="i",
        generation_id=generation,
        generation_id_or_member_epoch=generation,
    )


def _consumer(name: str, topic: Uuid) -> Asking:
    """A group with one member of the consumer protocol, which has what it should have."""
    told = yield ConsumerGroupHeartbeatRequest(
        group_id=name,
        member_id=MEMBER,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    assert told.error_code == 0, told
    return _known(
        name,
        topic,
        member_id=MEMBER,
        member_epoch=told.member_epoch,
        generation_id_or_member_epoch=told.member_epoch,
        generation_id=told.member_epoch,
        rebalance_timeout_ms=-1,
    )


def _transaction(name: str, topic: Uuid) -> Asking:
    """An open transaction with a partition."""
    asked = InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=10_000, producer_id=-1, producer_epoch=-1
    )
    told = yield asked
    while told.error_code == Error.COORDINATOR_LOAD_IN_PROGRESS:
        told = yield asked
    assert told.error_code == 0, told
    producer = told.producer_id, told.producer_epoch
    part = AddPartitionsToTxnTransaction(name, *producer, topics=[AddPartitionsToTxnTopic("orders", [0])])
    added = yield AddPartitionsToTxnRequest(transactions=[part])
    (result,) = added.results_by_transaction[0].topic_results[0].results_by_partition
    assert result.partition_error_code == 0, added
    return _known(name, topic, producer_id=producer[0], producer_epoch=producer[1], verify_only=False)


SITUATIONS: Final[dict[str, Callable[[str, Uuid], Asking]]] = {
    "simple": _simple,
    "classic": _classic,
    "consumer": _consumer,
    "transaction": _transaction,
}
"""What there may be, by a word: the requests that make it under a name with a topic, and then the values of fields that
name it.
"""


def _known(name: str, topic: Uuid, **more: Any) -> Known:
    """The values of fields that name what is there."""
    names = ("group_id", "transactional_id", "v3_and_below_transactional_id", "groups", "groups_names", "group_ids")
    return {
        **dict.fromkeys((*names, "transactional_ids", "coordinator_keys", "key"), name),
        **dict.fromkeys(("group_instance_id", "instance_id", "rack_id", "subscribed_topic_regex"), None),
        **dict.fromkeys(("session_timeout_ms", "rebalance_timeout_ms", "transaction_timeout_ms"), 10_000),
        **dict.fromkeys(("generation_id_or_member_epoch", "retention_time_ms", "member_epoch"), -1),
        **dict.fromkeys(("server_assignor", "transactional_id_pattern"), None),
        "topic_id": topic,
        "name": "orders",
        "protocol_type": "consumer",
        "protocol_name": "range",
        "committed_metadata": "",
        "require_stable": False,
        "coordinator_epoch": 0,
        "key_type": 0,
        **more,
    }


def situated(situation: str) -> tuple[Coordinator, Known]:
    """A broker of its own, with what a situation has."""
    made = Coordinator()
    return made, made.situated(situation, "there")


def fitting(api: Api, known: Known) -> Known:
    """The values for the requests of an API: what is a topic elsewhere may be a protocol in it."""
    return {**known, "name": "range"} if api.key is ApiKey.JOIN_GROUP else known


def attacks(api: Api, situation: str, size: int, rng: Random) -> Iterator[Amplified]:
    """The large requests of an API in a situation, as large as the listener takes them."""
    _, known = situated(situation)
    version = api.versions.highest
    return amplified(api, version, size, rng, fitting(api, known), lambda one: decoded(one) is not None)


def decoded(one: Amplified) -> tuple[Message, int] | None:
    """The request in a frame, and its version; None if the listener does not take it."""
    limit, body = broker_request_limit(one.key), one.frame[4:]
    header, position = decode_request_header(body, apis=ALL_APIS)
    version = header.request_api_version
    if len(body) > limit.size:
        return None
    try:
        return decode_within(ALL_APIS[one.key].request, version, body, position, limit.values), version
    except LimitExceeded:
        return None


def cpu_ms(turn: Turn) -> float:
    """The time of the processor that a turn takes, without collections."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        before = time.thread_time()
        turn()
        return (time.thread_time() - before) * 1000
    finally:
        if was_on:
            gc.enable()
