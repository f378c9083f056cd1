"""A broker without data, for the simulator and for clusters of tests: what a controller can observe of one.

A follower sends Kafka's Fetch request for offset 0 of an empty log. So every follower with a recent fetch is caught up;
only silence removes a follower from the ISR. All ISR decisions are those of brokers with data: epochs, eligibility, one
proposal at a time, and the reaction to a refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from kraft.agenda import Agenda
from kraft.broker import BrokerAgent, BrokerSettings
from kraft.broker.registered import RegisteredBroker
from kraft.committed import Noted
from kraft.partitions.replicas.isr_changes import IsrChanges
from kraft.partitions.replicas.key import PartitionKey
from kraft.partitions.replicas.leading import Leading, RemoteReplica, new_leadership
from kraft.process.hosting import broker_settings
from kraft.process.parts import Opening
from kraft.sim.state.copier import declare
from kraft.sim.state.forking import fork_broker
from kraft.wire import Answer, ReplyTo, Send, WireRequest
from metadata_log.image import MetadataImage, Partition
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, Uuid
from transport.protocol.apis import ApiKey
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

_EMPTY: Final = 0
"""Start, end and watermark of every log."""


class Followed(Struct, frozen=True):
    """A partition with another leader, or with leader -1 for none."""

    leader: int
    leader_epoch: int


class ReplicasWithoutData:
    """All replicas of one broker, from the metadata log and the controller's answers."""

    partitions_per_turn = 2000
    """Many, because none of them costs an fsync."""
    is_loaded = True
    """There are no logs to open."""

    def __init__(self, broker_id: int, lag_time_max_ms: int) -> None:
        self._broker_id = broker_id
        self._lag_time_max_ms = lag_time_max_ms
        self.led: dict[PartitionKey, Leading] = {}
        self.followed: dict[PartitionKey, Followed] = {}
        self.isr = IsrChanges(broker_id, self.led.get)
        self.failed_directories: dict[Uuid, str] = {}
        """None: there are no files that can fail."""
        self._shrink_ms = NEVER_MS

    def preferred_directory(self, key: PartitionKey) -> Uuid | None:
        """None: it has no logs."""
        return None

    def weight_of(self, *, is_new: bool) -> int:
        """One, as there are no files."""
        return 1

    @property
    def followers(self) -> ReplicasWithoutData:
        """The requests to leaders are made here."""
        return self

    @property
    def partitions(self) -> dict[PartitionKey, Leading | Followed]:
        """All replicas."""
        return {**self.led, **self.followed}

    # Metadata changes

    def load_more(self, image: MetadataImage, now_ms: int) -> bool:
        """There are no logs to open."""
        return True

    def on_image(self, image: MetadataImage) -> None:
        """New metadata; each change of a partition follows."""

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
            return
        known = self.led.get(key) or self.followed.get(key)
        assert known is None or partition.leader_epoch >= known.leader_epoch, (key, known, partition)
        if partition.leader != self._broker_id:
            self._forget(key)
            self.followed[key] = Followed(partition.leader, partition.leader_epoch)
        elif not isinstance(known, Leading) or known.leader_epoch != partition.leader_epoch:
            self._forget(key)
            self.led[key] = new_leadership(partition, None, _EMPTY, self._broker_id, now_ms)
            self._shrink_ms = min(self._shrink_ms, now_ms + self._lag_time_max_ms // 2)
        elif partition.partition_epoch > known.partition_epoch:
            # The leader knows an equal epoch already, from the answer to its own proposal.
            known.accept(partition.isr, partition.partition_epoch)
            known.assign(partition, self._broker_id)
            self.isr.forget(key)

    def _forget(self, key: PartitionKey) -> None:
        self.led.pop(key, None)
        self.followed.pop(key, None)
        self.isr.forget(key)

    # Following

    def leaders(self) -> list[int]:
        """The leaders that this broker follows, in order of their ids."""
        return sorted({one.leader for one in self.followed.values() if one.leader >= 0})

    def request(self, leader: int, broker_epoch: int, now_ms: int) -> FetchRequest:
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

    def on_answer(self, leader: int, response: Message | None, now_ms: int) -> int | None:
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
        leading = self.led.get(key)
        error = self._refusal(leading, key, part.current_leader_epoch, image)
        if leading is None:
            return PartitionData(partition_index=part.partition, error_code=error)
        if error is not Error.NONE:
            hint = LeaderIdAndEpoch(self._broker_id, leading.leader_epoch)
            return PartitionData(partition_index=part.partition, error_code=error, current_leader=hint)
        one = fetcher.replica_id
        if one >= 0:
            if one not in leading.remotes:
                return PartitionData(partition_index=part.partition, error_code=Error.NOT_LEADER_OR_FOLLOWER)
            leading.remotes[one].on_fetch(_EMPTY, _EMPTY, _EMPTY, fetcher.replica_epoch, now_ms)
            if leading.is_to_join(one, _EMPTY, image):
                self.isr.propose(key, leading, (*leading.isr, one))
        return PartitionData(partition_index=part.partition, high_watermark=_EMPTY, log_start_offset=_EMPTY)

    def _refusal(self, leading: Leading | None, key: PartitionKey, asked: int, image: MetadataImage) -> Error:
        if leading is None:
            if key[0] not in image.topics.by_id:
                return Error.UNKNOWN_TOPIC_ID
            followed = self.followed.get(key)
            is_later = followed is not None and asked > followed.leader_epoch
            return Error.UNKNOWN_LEADER_EPOCH if is_later else Error.NOT_LEADER_OR_FOLLOWER
        if asked == leading.leader_epoch:
            return Error.NONE
        return Error.FENCED_LEADER_EPOCH if asked < leading.leader_epoch else Error.UNKNOWN_LEADER_EPOCH

    def deadline_ms(self) -> int:
        """When the next `shrink` is due."""
        return self._shrink_ms

    def shrink(self, now_ms: int) -> None:
        """`ReplicaManager.maybeShrinkIsr`: a follower that was silent for too long leaves the ISR."""
        if now_ms < self._shrink_ms:
            return
        self._shrink_ms = now_ms + self._lag_time_max_ms // 2 if self.led else NEVER_MS
        for key, leading in self.led.items():
            silent = [one for one in leading.isr if self._is_silent(leading.remotes.get(one), now_ms)]
            if leading.proposed is None and silent:
                self.isr.propose(key, leading, tuple(one for one in leading.isr if one not in silent))

    def _is_silent(self, follower: RemoteReplica | None, now_ms: int) -> bool:
        """Whether a follower has not fetched for long: one that is at the end of an empty log may be silent, too."""
        return follower is not None and now_ms - follower.caught_up_ms > self._lag_time_max_ms


def agent_without_data(settings: BrokerSettings) -> BrokerAgent:
    """The agent of a broker without data."""
    return BrokerAgent(settings, ReplicasWithoutData(settings.broker_id, settings.options.replication.lag_time_max_ms))


class BrokerWithoutData(RegisteredBroker):
    """A broker without data, as a part of its process. Only other brokers ask it for something."""

    apis = frozenset((ApiKey.FETCH,))

    def __init__(self, agent: BrokerAgent) -> None:
        super().__init__(agent, Agenda())
        replicas = agent.replicas
        assert isinstance(replicas, ReplicasWithoutData), replicas
        self._replicas = replicas

    def on_request(self, request: WireRequest, now_ms: int) -> Answer:
        """Answer a Fetch of another broker."""
        message = request.message
        assert isinstance(message, FetchRequest), message
        answer = Answer(request.request_id, self._replicas.on_fetch(message, self.agent.image, now_ms))
        self._plan()
        return answer

    def on_reply(self, reply_to: ReplyTo, response: Message | None, now_ms: int) -> None:
        """The reply to a request of the agent; None if the request has failed."""
        self.agent.on_reply(reply_to.key, response, now_ms)
        self._plan()

    def on_tick(self, now_ms: int) -> list[Send | Noted]:
        """The requests of the agent that are due."""
        effects: list[Send | Noted] = [*self.agent.poll(now_ms), *self._farewell()]
        self._plan()
        return effects


declare({BrokerWithoutData: fork_broker})


def host_broker_without_data(opening: Opening) -> BrokerWithoutData:
    """The factory of a broker without data."""
    return BrokerWithoutData(agent_without_data(broker_settings(opening)))
