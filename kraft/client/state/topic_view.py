"""A client's view of a cluster: the addresses of brokers, and the leaders of one topic (Kafka: `Metadata`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from kraft.client.state.errors import cannot_connect, refused
from kraft.client.state.requests import METADATA_TIMEOUT_MS, Address, Ask, pause_ms
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, NO_NODE, Uuid
from transport.protocol.errors import Error
from transport.protocol.inbound import LASTING, Cause, Failed, lasting_failure
from transport.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

UNKNOWN_TOPIC_MS: Final = 2_000
"""How long a topic may be unknown: the brokers learn of a new topic one after the other."""
CREATION_MS: Final = 5_000
"""The same for a topic that the brokers may create."""
NAMELESS_MS: Final = 20_000
"""How long the name of a broker may be gone: the leaders of a broker that has failed move within its session."""
_NAMELESS_GAP_MS: Final = 10_000
"""A name that was not looked for so long counts as gone since now."""


class Leader(Struct, frozen=True):
    """The leader of a partition: its id, its address and its epoch."""

    id: int
    address: Address
    epoch: int


class TopicView:
    """The partitions of one topic with their leaders, and the brokers to ask for them."""

    def __init__(self, topic: str, bootstrap: Sequence[Address], tokens: Iterator[int], *, may_create: bool) -> None:
        """Know nothing yet.

        Args:
            topic: The name of the topic.
            bootstrap: The addresses that the user gave.
            tokens: The source of the tokens of requests.
            may_create: Whether a request may create the topic.
        """
        self.topic = topic
        self.topic_id = Uuid.ZERO
        """Kafka's id of the topic; zero while it is not known."""
        self.leaders: dict[int, Leader | None] = {}
        """By partition; None for a partition without a leader."""
        self.last_failure = ""
        """The latest failure of any request, for the error after a time-out."""
        self._bootstrap = tuple(bootstrap)
        self._brokers: dict[int, Address] = {}
        self._may_create = may_create
        self._turn = 0
        self._failures = 0
        self._due_ms = 0
        self._tokens = tokens
        self._asked: int | None = None
        """The token of the request on its way."""
        self._failed: dict[Address, Failed] = {}
        """The last failure of each broker since one has answered."""
        self._nameless: dict[Address, tuple[int, int]] = {}
        """The brokers whose names do not exist: since when, and when that was last seen, in ms."""
        self._unknown_since_ms: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether the partitions are known."""
        return bool(self.leaders)

    @property
    def is_stale(self) -> bool:
        """Whether a leader has failed since the last answer: a repetition waits for the next one."""
        return self._asked is not None or self._due_ms < NEVER_MS

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The brokers to ask, those of the cluster before those that the user gave."""
        return tuple(dict.fromkeys((*self._brokers.values(), *self._bootstrap)))

    def any_broker(self) -> Address:
        """The next broker to ask."""
        addresses = self.addresses
        return addresses[self._turn % len(addresses)]

    def leader_of(self, partition: int) -> Leader | None:
        """The leader of a partition, if one is known."""
        return self.leaders.get(partition)

    def refresh(self, why: str, now_ms: int) -> None:
        """Ask for the leaders again, after a pause that grows with each failure in a row."""
        self.last_failure = why
        if self._due_ms == NEVER_MS:
            self._due_ms = now_ms + pause_ms(self._failures)
            self._failures += 1

    def on_progress(self) -> None:
        """A leader has served a request: the next failure is the first in its row."""
        self._failures = 0

    def lasts(self, failed: Failed, address: Address, now_ms: int) -> bool:
        """Whether time does not cure the failure of a request to this broker.

        The name of a broker that the cluster has given may be gone for a while: in Kubernetes that of a pod exists
        while the pod is ready, and the leaders move meanwhile.
        """
        if failed.cause is not Cause.UNKNOWN_HOST or not self._brokers:
            return failed.cause in LASTING
        since_ms, seen_ms = self._nameless.get(address, (now_ms, now_ms))
        if now_ms - seen_ms > _NAMELESS_GAP_MS:
            since_ms = now_ms
        self._nameless[address] = since_ms, now_ms
        return now_ms - since_ms >= NAMELESS_MS

    def deadline_ms(self) -> int:
        """The time of the next request, in ms."""
        return self._due_ms if self._asked is None else NEVER_MS

    def poll(self, now_ms: int) -> list[Ask]:
        """The request that is due, if one is."""
        if self._asked is not None or now_ms < self._due_ms:
            return []
        self._asked = next(self._tokens)
        self._due_ms = NEVER_MS
        topics = [MetadataRequestTopic(name=self.topic)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=self._may_create)
        return [Ask(self._asked, self.any_broker(), request, METADATA_TIMEOUT_MS)]

    def awaits(self, token: int) -> bool:
        """Whether this is the token of the request on its way."""
        return token == self._asked

    def on_outcome(self, outcome: Message | Failed, now_ms: int) -> None:
        """Take the answer of a broker; raises `ClientError` for a topic that does not exist or is not for this user."""
        self._asked = None
        if isinstance(outcome, Failed):
            self._failed[self.any_broker()] = outcome
            if self._failed.keys() >= set(self.addresses):
                lasting = lasting_failure(self._failed.values())
                if lasting is not None and self.lasts(lasting, self.any_broker(), now_ms):
                    raise cannot_connect(lasting)
            self._turn += 1
            self.refresh(outcome.detail, now_ms)
            return
        self._failed.clear()
        assert isinstance(outcome, MetadataResponse), outcome
        if outcome.brokers:
            self._brokers = {one.node_id: (one.host, one.port) for one in outcome.brokers}
        topic = next((one for one in outcome.topics if one.name == self.topic), None)
        if topic is None:
            self._turn += 1
            self.refresh(f"the answer lacks topic {self.topic}", now_ms)
            return
        error = Error.of(topic.error_code)
        if error in (Error.NONE, Error.LEADER_NOT_AVAILABLE) and topic.partitions:
            self._take(topic, now_ms)
            return
        self._turn += 1
        self._refuse_if_final(error, now_ms)
        self.refresh(f"topic {self.topic}: {error.name}", now_ms)

    def _take(self, topic: MetadataResponseTopic, now_ms: int) -> None:
        self._unknown_since_ms = None
        is_same = topic.topic_id == self.topic_id
        self.topic_id = topic.topic_id
        leaders: dict[int, Leader | None] = {}
        for one in sorted(topic.partitions, key=lambda one: one.partition_index):
            known = self.leaders.get(one.partition_index) if is_same else None
            if known is not None and 0 <= one.leader_epoch < known.epoch:
                leaders[one.partition_index] = known  # this broker is behind
                continue
            address = self._brokers.get(one.leader_id)
            has_leader = one.leader_id != NO_NODE and address is not None
            leaders[one.partition_index] = (
                Leader(one.leader_id, address, one.leader_epoch) if has_leader and address else None
            )
        self.leaders = leaders
        absent = [number for number, leader in leaders.items() if leader is None]
        if absent:
            self._turn += 1
            self.refresh(f"partition {self.topic}-{absent[0]} has no leader", now_ms)

    def _refuse_if_final(self, error: Error, now_ms: int) -> None:
        """Raise for an error that time does not heal."""
        what = f"topic {self.topic}"
        if error is Error.UNKNOWN_TOPIC_OR_PARTITION:
            since_ms = self._unknown_since_ms = now_ms if self._unknown_since_ms is None else self._unknown_since_ms
            if now_ms - since_ms < (CREATION_MS if self._may_create else UNKNOWN_TOPIC_MS):
                return
        elif error.retriable or error is Error.NONE:
            return
        raise refused(what, error)
