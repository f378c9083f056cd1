"""Elections that a client requests, and elections at regular intervals (Kafka:
`ReplicationControlManager.electLeaders`, `maybeBalancePartitionLeaders`, `maybeElectUncleanLeaders`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Final

from kraft.access.errors import ApiError
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import ControllerResult, Steps
from kraft.controller.decision.topic_configs import unclean_election
from kraft.controller.topics.leader_selection import Election
from kraft.controller.topics.partition_change import UNCHANGED, Rules, partition_change
from kraft.controller.topics.partition_updates import (
    NO_BROKER,
    Member,
    all_partitions_by_steps,
    elect_leaders,
    rules_by_topic,
    versioned,
    where,
)
from kraft.limits import ELECTIONS_EXAMINED_PER_STEP, ELECTIONS_PER_RUN
from kraft.steps import with_pauses
from metadata_log.image import MetadataImage
from metadata_log.image.persistent_map import in_key_order_by_runs
from metadata_log.image.topics import memberships_by_steps
from metadata_log.records.frame import VersionedRecord
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_KINDS: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}


def elect(context: RequestContext, request: ElectLeadersRequest) -> Steps:
    """Elect leaders of the named partitions, or of all; raises `ApiError` for an unknown election type."""
    election = _KINDS.get(request.election_type)
    if election is None:
        raise ApiError(Error.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    results = []
    rules = rules_by_topic(context.image, context.defaults)
    for wanted in _wanted(context.image, request):
        yield None
        if wanted is None:
            continue
        name, numbers, is_asked_for = wanted
        outcomes = []
        for at, number in enumerate(numbers):
            error, text, record = Error.NONE, None, None
            try:
                record = _elect_one(context.image, name, number, election, rules)
            except ApiError as refused:
                error, text = refused.error, str(refused)
            if is_asked_for or error is not Error.ELECTION_NOT_NEEDED:
                outcomes.append(PartitionResult(partition_id=number, error_code=error, error_message=text))
            if error is not Error.ELECTION_NOT_NEEDED or at % ELECTIONS_EXAMINED_PER_STEP == 0:
                yield record
        results.append(ReplicaElectionResult(topic=name, partition_result=outcomes))
    return ControllerResult((), ElectLeadersResponse(replica_election_results=results), is_atomic=False)


def balance(context: RequestContext, members: Iterable[Member | None], allowed_percentage: int = 0) -> Steps:
    """Return leadership to the preferred replicas that are in sync.

    `members` are the partitions to examine, in one run after the other. A broker is skipped while others lead at most
    `allowed_percentage` of its preferred partitions. Kafka 4 has no such limit, which equals 0: then no broker is
    skipped. Above the limit, the broker gets all of its partitions back at once
    (`leader.imbalance.per.broker.percentage`, in Kafka until 3.9).
    """
    if not allowed_percentage:
        return (yield from _timed(context, members, Election.PREFERRED))
    deprived = yield from _deprived(context.image, allowed_percentage)
    theirs = where(all_partitions_by_steps(context.image), lambda member: member[2].replicas[0] in deprived)
    yield from elect_leaders(context.image, theirs, Election.PREFERRED, context.defaults)
    return ControllerResult(is_atomic=False)


def _deprived(image: MetadataImage, allowed_percentage: int) -> Generator[None, None, set[int]]:
    """The brokers that lead too few of their preferred partitions: others lead more than the allowed percentage."""
    preferred, led_by_others = Counter[int](), Counter[int]()
    for member in with_pauses(all_partitions_by_steps(image)):
        if member is None:
            yield None
            continue
        partition = member[2]
        broker = partition.replicas[0]
        preferred[broker] += 1
        led_by_others[broker] += partition.leader != broker
    return {broker for broker, count in led_by_others.items() if count * 100 > preferred[broker] * allowed_percentage}


def elect_uncleanly(context: RequestContext, members: Iterable[Member | None]) -> Steps:
    """Elect uncleanly where no replica can lead without loss of records and the topic allows such an election."""
    image = context.image
    allowed = where(
        members, lambda member: unclean_election(image, image.topics.by_id[member[0]].name, context.defaults)
    )
    return _timed(context, allowed, Election.UNCLEAN)


def imbalanced(image: MetadataImage) -> Iterator[Member | None]:
    """The partitions led by another replica than the preferred one."""
    return where(all_partitions_by_steps(image), lambda member: member[2].leader != member[2].replicas[0])


def leaderless(image: MetadataImage) -> Iterator[Member | None]:
    """The partitions without a leader."""
    return memberships_by_steps(image.topics, NO_BROKER)


def still_there(image: MetadataImage, members: Iterable[Member | None]) -> Iterator[Member | None]:
    """The members of an older image, as they are in this image."""
    for member in members:
        if member is None:
            yield None
            continue
        topic_id, number, _ = member
        topic = image.topics.by_id.get(topic_id)
        if topic is not None:
            yield topic_id, number, topic.partitions[number]


def _timed(context: RequestContext, members: Iterable[Member | None], election: Election) -> Steps:
    count = 0
    for record in elect_leaders(context.image, still_there(context.image, members), election, context.defaults):
        yield record
        count += record is not None
        if count == ELECTIONS_PER_RUN:
            break
    return ControllerResult(is_atomic=False)


def _wanted(image: MetadataImage, request: ElectLeadersRequest) -> Iterable[tuple[str, Iterable[int], bool] | None]:
    """The topics with the partitions to elect, and whether the request names them."""
    if request.topic_partitions is None:
        for entry in in_key_order_by_runs(image.topics.by_name):
            if entry is None:
                yield None
            else:
                name, topic_id = entry
                yield name, range(len(image.topics.by_id[topic_id].partitions)), False
    else:
        for asked in request.topic_partitions:
            yield asked.topic, asked.partitions, True


def _elect_one(
    image: MetadataImage, name: str, number: int, election: Election, rules: Callable[[Uuid], Rules]
) -> VersionedRecord:
    if name not in image.topics:
        raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    topic = image.topics[name]
    if number not in range(len(topic.partitions)):
        raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}")
    partition = topic.partitions[number]
    is_led = partition.leader == partition.replicas[0] if election is Election.PREFERRED else partition.leader >= 0
    if is_led:
        raise ApiError(Error.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    change = partition_change(topic.id, number, partition, UNCHANGED, rules(topic.id), election)
    if change is None:
        if election is Election.PREFERRED:
            raise ApiError(Error.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
        text = "Eligible topic partition leaders are not available."
        raise ApiError(Error.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)
    return versioned(image, change)
