"""Elections that somebody asks for, and those that are held from time to time (Kafka:
`ReplicationControlManager.electLeaders`, `maybeBalancePartitionLeaders`, `maybeElectUncleanLeaders`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Final

from kraft.controller.deciding import Deciding
from kraft.controller.leader_election import Election
from kraft.controller.partition_updates import NOBODY, Member, all_partitions, elect_leaders
from kraft.controller.result import ApiError, ControllerResult, VersionedRecord
from kraft.controller.topic_configs import unclean_election
from metadata_log.image import MetadataImage, memberships
from transport.protocol.errors import Error
from transport.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PER_RUN: Final = 1000
"""Timed elections beyond this wait for the next run, which follows at once."""
_KINDS: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}


def elect(deciding: Deciding, request: ElectLeadersRequest) -> ControllerResult:
    """Hold an election of the partitions named, or of all; raises `ApiError` for a kind that does not exist."""
    election = _KINDS.get(request.election_type)
    if election is None:
        raise ApiError(Error.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    records: list[VersionedRecord] = []
    results = []
    for name, numbers, is_asked_for in _wanted(deciding.image, request):
        outcomes = []
        for number in numbers:
            error, text = Error.NONE, None
            try:
                records += _elect_one(deciding, name, number, election)
            except ApiError as refused:
                error, text = refused.error, str(refused)
            if is_asked_for or error is not Error.ELECTION_NOT_NEEDED:
                outcomes.append(PartitionResult(partition_id=number, error_code=error, error_message=text))
        results.append(ReplicaElectionResult(topic=name, partition_result=outcomes))
    return ControllerResult(tuple(records), ElectLeadersResponse(replica_election_results=results), is_atomic=False)


def refuse_elections(request: ElectLeadersRequest, error: Error, text: str | None = None) -> ElectLeadersResponse:
    """The answer to a request that fails as a whole: the same in every partition that it names."""
    return ElectLeadersResponse(
        error_code=error,
        replica_election_results=[
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    PartitionResult(partition_id=number, error_code=error, error_message=text or error.message)
                    for number in asked.partitions
                ],
            )
            for asked in request.topic_partitions or []
        ],
    )


def balance(deciding: Deciding, allowed_percentage: int = 0) -> ControllerResult:
    """Lead partitions by their preferred replicas again, where those are in sync.

    A broker that is preferred somewhere is left alone while others lead at most `allowed_percentage` of its
    partitions: with 0, which is all that Kafka 4 knows, none is. Beyond it, a broker gets all of them back at once
    (`leader.imbalance.per.broker.percentage`, which Kafka had until 3.9).
    """
    members = all_partitions(deciding.image)
    if not allowed_percentage:
        return _timed(deciding, members, Election.PREFERRED)
    deprived = _deprived(deciding.image, allowed_percentage)
    theirs = (member for member in members if member[2].replicas[0] in deprived)
    return ControllerResult(
        tuple(elect_leaders(deciding.image, theirs, Election.PREFERRED, deciding.defaults)), is_atomic=False
    )


def _deprived(image: MetadataImage, allowed_percentage: int) -> set[int]:
    """The brokers for whom others lead more of the partitions that they should lead than is allowed."""
    preferred, led_by_others = Counter[int](), Counter[int]()
    for _, _, partition in all_partitions(image):
        broker = partition.replicas[0]
        preferred[broker] += 1
        led_by_others[broker] += partition.leader != broker
    return {broker for broker, count in led_by_others.items() if count * 100 > preferred[broker] * allowed_percentage}


def elect_uncleanly(deciding: Deciding) -> ControllerResult:
    """Lead partitions that nobody can lead without losing records, where their topics allow it."""
    image = deciding.image
    leaderless = (
        member
        for member in memberships(image.topics, NOBODY)
        if unclean_election(image, image.topics.by_id[member[0]].name, deciding.defaults)
    )
    return _timed(deciding, leaderless, Election.UNCLEAN)


def _timed(deciding: Deciding, members: Iterable[Member], election: Election) -> ControllerResult:
    changes = islice(elect_leaders(deciding.image, members, election, deciding.defaults), PER_RUN)
    return ControllerResult(tuple(changes), is_atomic=False)


def _wanted(image: MetadataImage, request: ElectLeadersRequest) -> Iterable[tuple[str, Iterable[int], bool]]:
    """Topics with the partitions to elect in, and whether they were asked for by name."""
    if request.topic_partitions is None:
        for name in image.topics:
            yield name, range(len(image.topics[name].partitions)), False
    else:
        for asked in request.topic_partitions:
            yield asked.topic, asked.partitions, True


def _elect_one(deciding: Deciding, name: str, number: int, election: Election) -> list[VersionedRecord]:
    image = deciding.image
    if name not in image.topics:
        raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    topic = image.topics[name]
    if number not in range(len(topic.partitions)):
        raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}")
    partition = topic.partitions[number]
    is_led = partition.leader == partition.replicas[0] if election is Election.PREFERRED else partition.leader >= 0
    if is_led:
        raise ApiError(Error.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    changes = list(elect_leaders(image, [(topic.id, number, partition)], election, deciding.defaults))
    if not changes:
        if election is Election.PREFERRED:
            raise ApiError(Error.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
        text = "Eligible topic partition leaders are not available."
        raise ApiError(Error.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)
    return changes
