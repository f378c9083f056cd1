"""A member of a consumer group (KIP-848) by hand, who holds exactly what the coordinator has given it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import uuid4

from metadata_log.types import Uuid
from support.interop.real_kafka import eventually
from support.scenarios.coordinator_client import coordinate
from support.scenarios.scenario_cluster import SECONDS, Cluster, Topic
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from transport.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)

LEAVE: Final = -1
Place = tuple[Uuid, int]
"""A partition: the id of its topic, and its number."""


def places_of(*topics: tuple[Topic, int]) -> frozenset[Place]:
    """All partitions of topics, of each of which the number of partitions is given."""
    return frozenset((topic.id, number) for topic, count in topics for number in range(count))


class ConsumerMember:
    """A member; `held` is what it has and reports, `epoch` its epoch."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        *topics: Topic,
        id: str | None = None,
        instance: str | None = None,
        regex: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = 60_000,
    ) -> None:
        self.cluster = cluster
        self.group = group
        self.topics = topics
        self.id = id or uuid4().hex
        self.instance = instance
        self.regex = regex
        self.assignor = assignor
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.epoch = 0
        self.held: frozenset[Place] = frozenset()

    def join(self) -> ConsumerGroupHeartbeatResponse:
        """Join, or join again, with everything that there is to say."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.id,
            member_epoch=0,
            instance_id=self.instance,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            subscribed_topic_names=[one.name for one in self.topics],
            subscribed_topic_regex=self.regex,
            server_assignor=self.assignor,
            topic_partitions=[],
        )
        return self._take(self._ask(request))

    def beat(self, *, held: Iterable[Place] | None = None) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat with what is held, or with others instead; a good answer is followed."""
        by_topic: dict[Uuid, list[int]] = {}
        for topic, number in sorted(self.held if held is None else held):
            by_topic.setdefault(topic, []).append(number)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.id,
            member_epoch=self.epoch,
            instance_id=self.instance,
            topic_partitions=[ConsumerGroupHeartbeatRequestTopicPartitions(*one) for one in by_topic.items()],
        )
        return self._take(self._ask(request))

    def leave(self, epoch: int = LEAVE) -> ConsumerGroupHeartbeatResponse:
        """Leave the group, for good or as a static member for a while."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.id, member_epoch=epoch, instance_id=self.instance
        )
        return self._ask(request)

    def _ask(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        return coordinate(
            self.cluster, self.group, request, 1, ConsumerGroupHeartbeatResponse, lambda answer: [answer.error_code]
        )

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
        if answer.error_code == Error.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.held = frozenset(
                    (one.topic_id, number) for one in answer.assignment.topic_partitions for number in one.partitions
                )
        return answer


def described(cluster: Cluster, group: str) -> DescribedGroup:
    """A group as ConsumerGroupDescribe shows it."""
    request = ConsumerGroupDescribeRequest(group_ids=[group])
    answer = coordinate(
        cluster, group, request, 1, ConsumerGroupDescribeResponse, lambda answer: [answer.groups[0].error_code]
    )
    return answer.groups[0]


def epochs(cluster: Cluster, group: str) -> tuple[str, int, int]:
    """The state of a group, its epoch and that of its assignment."""
    found = described(cluster, group)
    assert found.error_code == Error.NONE, Error.of(found.error_code)
    return found.group_state, found.group_epoch, found.assignment_epoch


def converge(members: Sequence[ConsumerMember], places: frozenset[Place]) -> None:
    """Let members send heartbeats until they have all partitions at one epoch; no one ever has what another one has."""

    def is_stable() -> bool:
        for one in members:
            answer = one.beat()
            assert answer.error_code == Error.NONE, Error.of(answer.error_code)
            held = [place for each in members for place in each.held]
            assert len(held) == len(set(held)), "a partition has two owners"
        whole = frozenset().union(*(one.held for one in members)) == places
        return whole and epochs(members[0].cluster, members[0].group)[0] == "Stable"

    eventually(is_stable, f"the members of {members[0].group} have all partitions", SECONDS)
