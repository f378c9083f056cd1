"""Single requests to brokers, coordinators and leaders, again while the answer may change (Kafka: `AdminApiDriver`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import trio
from msgspec import Struct

from kraft.client.client import Client
from kraft.client.state.coordinators import NAMES, TOPICS, KeyType, unmade
from kraft.client.state.errors import ClientError, cannot_connect, refused
from kraft.client.state.requests import ELSEWHERE, METADATA_TIMEOUT_MS, REQUEST_TIMEOUT_MS, pause_ms
from metadata_log.serde import Message
from metadata_log.types import NO_NODE, Uuid
from transport.causes import one_cause
from transport.interface import Endpoint
from transport.protocol.errors import Error
from transport.protocol.inbound import LASTING, Failed
from transport.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from transport.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

M = TypeVar("M", bound=Message)
T = TypeVar("T")
TopicPartition = tuple[str, int]

UNMADE_S: Final = 5.0
"""How long the topic of the coordinators may be missing: the first question about one makes the brokers create it."""
NOT_LEADING: Final = frozenset(
    {
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.LEADER_NOT_AVAILABLE,
        Error.UNKNOWN_LEADER_EPOCH,
        Error.FENCED_LEADER_EPOCH,
        Error.KAFKA_STORAGE_ERROR,
        Error.OFFSET_NOT_AVAILABLE,
    }
)
"""The errors that mean another leader, or this one later."""


class PartitionView(Struct, frozen=True):
    """A partition as a broker knows it."""

    leader: int
    replicas: tuple[int, ...]


class TopicView(Struct, frozen=True):
    """A topic as a broker knows it."""

    name: str
    id: Uuid
    partitions: Mapping[int, PartitionView]
    is_internal: bool


class ClusterView(Struct, frozen=True):
    """Brokers by id, and topics by name; and the id of the cluster."""

    brokers: Mapping[int, Endpoint]
    topics: Mapping[str, TopicView]
    id: str = ""

    def name_of(self, topic_id: Uuid, name: str) -> str | None:
        """The name of a topic in an answer, which has its name or its id; None for a topic that is gone."""
        if name or topic_id == Uuid.ZERO:
            return name
        return next((one.name for one in self.topics.values() if one.id == topic_id), None)


class Questions:
    """Asks the brokers of a cluster; each question has the same time-out, with all repetitions."""

    def __init__(self, client: Client, timeout_ms: int) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._last_failure = "no broker has answered"
        self._known: tuple[Endpoint, ...] = ()
        self._answered: tuple[Endpoint, ...] = ()
        """The broker that has answered last, if the last one did."""

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._client.now_ms()

    async def cluster(self, topics: Collection[str] | None = None) -> ClusterView:
        """The brokers, and these topics or all; a topic that does not exist is missing in the answer."""
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        metadata = await self.ask_any(request, MetadataResponse, lambda answer: Error.NONE)
        brokers = {one.node_id: Endpoint(one.host, one.port) for one in metadata.brokers}
        self._known = tuple(brokers.values())
        return ClusterView(
            brokers,
            {
                each.name or "": TopicView(
                    each.name or "",
                    each.topic_id,
                    {
                        one.partition_index: PartitionView(one.leader_id, tuple(one.replica_nodes))
                        for one in sorted(each.partitions, key=lambda one: one.partition_index)
                    },
                    each.is_internal,
                )
                for each in metadata.topics
                if not each.error_code or each.partitions
            },
            metadata.cluster_id or "",
        )

    async def ask_any(self, message: Message, answer: type[M], error_of: Callable[[M], Error]) -> M:
        """The answer of the first broker that gives one without a retriable error."""

        async def attempt() -> M | None:
            # The one that answered last comes first, and one that hangs takes only a part of the time.
            for endpoint in dict.fromkeys((*self._answered, *self._known, *self._client.bootstrap)):
                reply = await self.ask(endpoint, message, answer, METADATA_TIMEOUT_MS)
                self._answered = () if reply is None else (endpoint,)
                if reply is not None and not self._is_retriable(error_of(reply), message):
                    return reply
            return None

        asked = ", ".join(map(str, self._client.bootstrap))
        return await self.in_time(attempt, "no broker answered", hint=f"Asked: {asked}. Do these brokers run?")

    async def ask_brokers(self, message: Message, answer: type[M], error_of: Callable[[M], Error]) -> dict[int, M]:
        """The answer of each broker, without a retriable error; those that the cluster fences meanwhile have none."""
        brokers = (await self.cluster(())).brokers
        answers: dict[int, M] = {}

        async def ask_one(broker: int, endpoint: Endpoint) -> None:
            async def attempt() -> bool | None:
                reply = await self.ask(endpoint, message, answer)
                if reply is not None and not self._is_retriable(error_of(reply), message):
                    answers[broker] = reply
                    return True
                return None if broker in (await self.cluster(())).brokers else False

            await self.in_time(attempt, f"{endpoint} did not answer")

        with one_cause():
            async with trio.open_nursery() as nursery:
                for broker, endpoint in brokers.items():
                    nursery.start_soon(ask_one, broker, endpoint)
        return {broker: answers[broker] for broker in sorted(answers)}

    async def ask(
        self, endpoint: Endpoint, message: Message, answer: type[M], timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> M | None:
        """The answer of one broker, or None after a failure that time may cure. Raises `ClientError` for another."""
        outcome = await self._client.question(endpoint, message, timeout_ms)
        if isinstance(outcome, Failed):
            if outcome.cause in LASTING:
                raise cannot_connect(outcome)
            self._last_failure = outcome.detail
            return None
        assert isinstance(outcome, answer), outcome
        return outcome

    async def ask_coordinator(
        self, kind: KeyType, key: str, message: Message, answer: type[M], errors_of: Callable[[M], Iterable[int]]
    ) -> M:
        """The answer of the coordinator of a key, once it coordinates and has loaded."""
        began_s = trio.current_time()

        async def attempt() -> M | None:
            endpoint = await self._coordinator(kind, key)
            if endpoint is None:
                await self._check_internal_topic(kind, key, began_s)
            reply = None if endpoint is None else await self.ask(endpoint, message, answer)
            if reply is None or any(self._is_elsewhere(Error.of(code), key) for code in errors_of(reply)):
                return None
            return reply

        return await self.in_time(attempt, f"no coordinator of {NAMES[kind]} {key} answered")

    async def _coordinator(self, kind: KeyType, key: str) -> Endpoint | None:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        reply = await self.ask_any(request, FindCoordinatorResponse, lambda _: Error.NONE)
        [one] = reply.coordinators
        error = Error.of(one.error_code)
        if error is Error.NONE:
            return Endpoint(one.host, one.port)
        if not self._is_elsewhere(error, key):
            raise refused(f"{NAMES[kind]} {key}", error, one.error_message)
        return None

    async def _check_internal_topic(self, kind: KeyType, key: str, began_s: float) -> None:
        """Raise `ClientError` if no broker coordinates a key for want of a leader or of the topic, rather than for a
        moment.
        """
        name = TOPICS[kind]
        topic = (await self.cluster({name})).topics.get(name)
        if topic is None and trio.current_time() - began_s >= UNMADE_S:
            raise ClientError(
                f"no broker coordinates {NAMES[kind]} {key}: the brokers do not create {name}",
                hint=unmade(kind),
            )
        dead = [] if topic is None else [number for number, one in topic.partitions.items() if one.leader == NO_NODE]
        if dead:
            numbers = ", ".join(map(str, dead))
            raise ClientError(
                f"no broker coordinates {NAMES[kind]} {key}: these partitions of {name} have no leader: {numbers}",
                hint="Start the brokers that have their replicas.",
            )

    def _is_elsewhere(self, error: Error, key: str) -> bool:
        if error in ELSEWHERE:
            self._last_failure = f"{key}: {error.name}"
        return error in ELSEWHERE

    def _is_retriable(self, error: Error, message: Message) -> bool:
        if error.retriable:
            self._last_failure = f"{type(message).__name__}: {error.name}"
        return error.retriable

    async def ask_leaders(
        self,
        partitions: Collection[TopicPartition],
        message: Callable[[Sequence[TopicPartition]], Message],
        answer: type[M],
        results: Callable[[M], Iterable[tuple[TopicPartition, int, T]]],
    ) -> dict[TopicPartition, tuple[Error, T | None]]:
        """The answers of the leaders about each partition: the error, and the result.

        A partition that the cluster has no leader for gets LEADER_NOT_AVAILABLE at once, as no replica in sync runs
        (Kafka's tools, too, ask only about the others), and one that does not exist UNKNOWN_TOPIC_OR_PARTITION. What
        else may change is asked again until the time is over.
        """
        outcomes: dict[TopicPartition, tuple[Error, T | None]] = {}
        dead: set[TopicPartition] = set()

        async def ask_leader(endpoint: Endpoint, own: list[TopicPartition]) -> None:
            reply = await self.ask(endpoint, message(own), answer)
            for one, code, result in [] if reply is None else results(reply):
                outcomes[one] = Error.of(code), result

        async def attempt() -> bool | None:
            left = [one for one in partitions if one not in outcomes or outcomes[one][0] in NOT_LEADING]
            view = await self.cluster({topic for topic, _ in left})
            by_leader: dict[int, list[TopicPartition]] = {}
            for one in left:
                topic = view.topics.get(one[0])
                if topic is None or one[1] not in topic.partitions:
                    outcomes[one] = Error.UNKNOWN_TOPIC_OR_PARTITION, None
                elif (leader := topic.partitions[one[1]].leader) == NO_NODE or leader not in view.brokers:
                    outcomes[one] = Error.LEADER_NOT_AVAILABLE, None
                    dead.add(one)
                else:
                    by_leader.setdefault(leader, []).append(one)
                    outcomes[one] = Error.LEADER_NOT_AVAILABLE, None
            # All at once: a leader that hangs must not take the time of the others.
            with one_cause():
                async with trio.open_nursery() as nursery:
                    for leader, own in by_leader.items():
                        nursery.start_soon(ask_leader, view.brokers[leader], own)
            return None if any(one[0] in NOT_LEADING and at not in dead for at, one in outcomes.items()) else True

        with trio.move_on_after(self._timeout_ms / 1000):
            await self._repeated(attempt)
        return {one: outcomes.get(one, (Error.LEADER_NOT_AVAILABLE, None)) for one in partitions}

    async def in_time(self, attempt: Callable[[], Awaitable[T | None]], what: str, *, hint: str | None = None) -> T:
        """The first result that is not None; raises `ClientError` after the time-out."""
        with trio.move_on_after(self._timeout_ms / 1000):
            return await self._repeated(attempt)
        raise ClientError(f"{what} within {self._timeout_ms / 1000:g} s: {self._last_failure}", hint=hint)

    @staticmethod
    async def _repeated(attempt: Callable[[], Awaitable[T | None]]) -> T:
        attempts = 0
        while (result := await attempt()) is None:
            await trio.sleep(pause_ms(attempts) / 1000)
            attempts += 1
        return result
