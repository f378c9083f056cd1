"""The replicas of one broker: led and followed partitions, and the ISR (Kafka: `ReplicaManager`, `Partition`;
becomeLeader and becomeFollower of the articles).

There is no data. A follower sends Kafka's Fetch request for offset 0 of an empty log. So every follower with a recent
fetch is caught up; only silence removes a follower from the ISR. All ISR decisions are Kafka's: epochs, eligibility,
one proposal at a time, and the reaction to a refusal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.broker.settings import NO_EPOCH
from metadata_log.image import MetadataImage, Partition
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
    ReplicaState,
)

PARTITIONS_PER_TURN: Final = 2000
"""How many partitions are examined in one turn, or published to replicas without data."""
PartitionKey = tuple[Uuid, int]
"""The topic's id and the number of the partition."""
_NEVER: Final = 0
"""The time of an event that has not happened under this leadership."""


class Follower(Struct):
    """A leader's knowledge of one follower from its fetches: its incarnation, and when it was last caught up."""

    broker_epoch: int = NO_EPOCH
    caught_up_ms: int = _NEVER


class LedPartition(Struct):
    """A partition that this broker leads. `isr` is committed, `proposed` is the ISR requested from the controller."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    followers: dict[int, Follower]
    proposed: tuple[int, ...] | None = None
    is_given_up: bool = False
    """Whether the proposal was refused for good: only newer metadata can replace it."""

    def copy(self) -> LedPartition:
        """An independent copy."""
        return replace(self, followers={one: replace(follower) for one, follower in self.followers.items()})


class FollowedPartition(Struct, frozen=True):
    """A partition with another leader, or with leader -1 for none."""

    leader: int
    leader_epoch: int


class Replicas:
    """All replicas of one broker, from the metadata log and the controller's answers."""

    def __init__(self, broker_id: int, lag_time_max_ms: int) -> None:
        self._broker_id = broker_id
        self._lag_time_max_ms = lag_time_max_ms
        self.led: dict[PartitionKey, LedPartition] = {}
        self.followed: dict[PartitionKey, FollowedPartition] = {}
        self._shrink_ms = NEVER_MS
        self.proposals: dict[PartitionKey, None] = {}
        """The partitions with an unsent proposal, in the order of proposing."""

    # Metadata changes

    @property
    def partitions_per_turn(self) -> int:
        """Many, because none of them costs an fsync."""
        return PARTITIONS_PER_TURN

    @property
    def failed_directories(self) -> dict[Uuid, str]:
        """None: there are no files that can fail."""
        return {}

    @property
    def is_loaded(self) -> bool:
        """There are no logs to open."""
        return True

    def load_more(self, image: MetadataImage, now_ms: int) -> bool:
        """There are no logs to open."""
        return True

    def on_image(self, image: MetadataImage) -> None:
        """New metadata; each change of a partition follows."""

    def hosted(self) -> list[PartitionKey]:
        """The keys of all replicas."""
        return [*self.led, *self.followed]

    def directory_of(self, key: PartitionKey) -> Uuid | None:
        """None: a replica without data has no log."""
        return None

    def take_failed_directories(self) -> Sequence[Uuid]:
        """None: there are no files that can fail."""
        return ()

    def on_partition(
        self, key: PartitionKey, partition: Partition | None, now_ms: int, directory: Uuid | None = None
    ) -> None:
        """A partition has changed; None if this broker has no online replica of the partition any more."""
        if partition is None:
            self._forget(key)
        elif partition.leader == self._broker_id:
            self._become_leader(key, partition, now_ms)
        else:
            self._become_follower(key, partition)

    def _forget(self, key: PartitionKey) -> None:
        self.led.pop(key, None)
        self.followed.pop(key, None)
        self.proposals.pop(key, None)

    def _become_leader(self, key: PartitionKey, partition: Partition, now_ms: int) -> None:
        self._check_epoch(key, partition)
        led = self.led.get(key)
        if led is not None and led.leader_epoch == partition.leader_epoch:
            # The leader knows an equal epoch already, from the answer to its own proposal.
            if partition.partition_epoch > led.partition_epoch:
                self._accept(key, led, partition.isr, partition.partition_epoch)
                self._assign(led, partition.replicas)
            return
        self._forget(key)
        followers = {one: Follower() for one in partition.replicas if one != self._broker_id}
        for one in partition.isr:
            if one in followers:
                followers[one].caught_up_ms = now_ms
        self.led[key] = LedPartition(
            partition.replicas, partition.isr, partition.leader_epoch, partition.partition_epoch, followers
        )
        self._shrink_ms = min(self._shrink_ms, now_ms + self._lag_time_max_ms // 2)

    def _become_follower(self, key: PartitionKey, partition: Partition) -> None:
        self._check_epoch(key, partition)
        self._forget(key)
        self.followed[key] = FollowedPartition(partition.leader, partition.leader_epoch)

    def _check_epoch(self, key: PartitionKey, partition: Partition) -> None:
        known: LedPartition | FollowedPartition | None = self.led.get(key) or self.followed.get(key)
        assert known is None or partition.leader_epoch >= known.leader_epoch, (key, known, partition)

    def _assign(self, led: LedPartition, replicas: tuple[int, ...]) -> None:
        led.replicas = replicas
        led.followers = {one: led.followers.get(one, Follower()) for one in replicas if one != self._broker_id}

    def _accept(self, key: PartitionKey, led: LedPartition, isr: tuple[int, ...], partition_epoch: int) -> None:
        led.isr, led.partition_epoch = isr, partition_epoch
        led.proposed, led.is_given_up = None, False
        self.proposals.pop(key, None)

    # Following

    def leaders(self) -> list[int]:
        """The leaders that this broker follows, in order of their ids."""
        return sorted({one.leader for one in self.followed.values() if one.leader >= 0})

    def fetch_from(self, leader: int, broker_epoch: int, now_ms: int) -> FetchRequest:
        """The Fetch request to a leader, for all partitions that this broker follows there."""
        topics: dict[Uuid, list[FetchPartition]] = {}
        for (topic_id, number), one in self.followed.items():
            if one.leader == leader:
                part = FetchPartition(partition=number, current_leader_epoch=one.leader_epoch, last_fetched_epoch=-1)
                topics.setdefault(topic_id, []).append(part)
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._broker_id, replica_epoch=broker_epoch),
            topics=[FetchTopic(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()],
        )

    def on_fetched(self, leader: int, response: Message | None, now_ms: int) -> int | None:
        """The answer of a leader has no records; the next request is due after the interval of the agent."""
        return None

    # Leading

    def on_fetch(self, request: FetchRequest, image: MetadataImage, now_ms: int) -> FetchResponse:
        """Answer a follower's Fetch: the follower is caught up, and may enter the ISR."""
        follower = request.replica_state
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic_id=topic.topic_id,
                    partitions=[
                        self._fetch_one((topic.topic_id, part.partition), part, follower, image, now_ms)
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _fetch_one(
        self, key: PartitionKey, part: FetchPartition, fetcher: ReplicaState, image: MetadataImage, now_ms: int
    ) -> PartitionData:
        led = self.led.get(key)
        error = _refusal(led, self.followed.get(key), key, part, image)
        if led is None:
            return PartitionData(partition_index=part.partition, error_code=error)
        if error is not Error.NONE:
            hint = LeaderIdAndEpoch(self._broker_id, led.leader_epoch)
            return PartitionData(partition_index=part.partition, error_code=error, current_leader=hint)
        if fetcher.replica_id >= 0:
            follower = led.followers.get(fetcher.replica_id)
            if follower is None:
                return PartitionData(partition_index=part.partition, error_code=Error.NOT_LEADER_OR_FOLLOWER)
            follower.broker_epoch = fetcher.replica_epoch
            follower.caught_up_ms = now_ms
            self._maybe_expand(key, led, fetcher.replica_id, image)
        return PartitionData(partition_index=part.partition, high_watermark=0, log_start_offset=0)

    def _maybe_expand(self, key: PartitionKey, led: LedPartition, candidate: int, image: MetadataImage) -> None:
        """`Partition.maybeExpandIsr`: a caught-up follower enters the ISR, if the controller would accept it."""
        if led.proposed is None and candidate not in led.isr and _is_eligible(led, candidate, image):
            self._propose(key, led, (*led.isr, candidate))

    def _propose(self, key: PartitionKey, led: LedPartition, isr: tuple[int, ...]) -> None:
        led.proposed = tuple(sorted(isr))
        self.proposals[key] = None

    def deadline_ms(self) -> int:
        """When the next `shrink` is due."""
        return self._shrink_ms

    def shrink(self, now_ms: int) -> None:
        """`ReplicaManager.maybeShrinkIsr`: a follower that was silent for too long leaves the ISR."""
        if now_ms < self._shrink_ms:
            return
        self._shrink_ms = now_ms + self._lag_time_max_ms // 2 if self.led else NEVER_MS
        for key, led in self.led.items():
            if led.proposed is not None:
                continue
            silent = [one for one in led.isr if self._is_silent(led, one, now_ms)]
            if silent:
                self._propose(key, led, tuple(one for one in led.isr if one not in silent))

    def _is_silent(self, led: LedPartition, one: int, now_ms: int) -> bool:
        follower = led.followers.get(one)
        return follower is not None and now_ms - follower.caught_up_ms > self._lag_time_max_ms

    # Outcomes of a proposal

    def accepted(self, key: PartitionKey, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller answered with the present partition; an answer for an older state changes nothing."""
        led = self.led.get(key)
        if led is not None and led.leader_epoch == leader_epoch and partition_epoch >= led.partition_epoch:
            self._accept(key, led, isr, partition_epoch)

    def withdrawn(self, key: PartitionKey, partition_epoch: int) -> None:
        """A member is not eligible: return to the committed ISR, until a follower fetches again."""
        led = self._asking(key, partition_epoch)
        if led is not None:
            self._accept(key, led, led.isr, led.partition_epoch)

    def given_up(self, key: PartitionKey, partition_epoch: int) -> None:
        """The controller has newer metadata: wait for it."""
        led = self._asking(key, partition_epoch)
        if led is not None:
            led.is_given_up = True
            self.proposals.pop(key, None)

    def again(self, key: PartitionKey, partition_epoch: int) -> None:
        """The request failed: send the proposal again."""
        if self._asking(key, partition_epoch) is not None:
            self.proposals[key] = None

    def _asking(self, key: PartitionKey, partition_epoch: int) -> LedPartition | None:
        """The partition, if its proposal is still the one of this epoch."""
        led = self.led.get(key)
        if led is None or led.proposed is None or led.is_given_up or led.partition_epoch != partition_epoch:
            return None
        return led

    def take_proposals(self) -> Iterator[tuple[PartitionKey, LedPartition]]:
        """Take all proposals that are to be sent now."""
        proposals, self.proposals = self.proposals, {}
        for key in proposals:
            led = self.led.get(key)
            if led is not None and led.proposed is not None:
                yield key, led


def _refusal(
    led: LedPartition | None,
    followed: FollowedPartition | None,
    key: PartitionKey,
    part: FetchPartition,
    image: MetadataImage,
) -> Error:
    if led is None:
        topic = image.topics.by_id.get(key[0])
        if topic is None:
            return Error.UNKNOWN_TOPIC_ID
        if followed is not None and part.current_leader_epoch > followed.leader_epoch:
            return Error.UNKNOWN_LEADER_EPOCH
        return Error.NOT_LEADER_OR_FOLLOWER
    if part.current_leader_epoch < led.leader_epoch:
        return Error.FENCED_LEADER_EPOCH
    if part.current_leader_epoch > led.leader_epoch:
        return Error.UNKNOWN_LEADER_EPOCH
    return Error.NONE


def _is_eligible(led: LedPartition, candidate: int, image: MetadataImage) -> bool:
    """Whether a broker is active with the broker epoch of its fetch (`Partition.isReplicaIsrEligible`, KIP-903)."""
    broker = image.brokers.by_id.get(candidate)
    if broker is None or not broker.is_active:
        return False
    return led.followers[candidate].broker_epoch in (NO_EPOCH, broker.epoch)
