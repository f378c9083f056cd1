"""How each controller of a quorum is: what it says, or why it cannot be asked, beside what its leader knows of it.

The question is a Fetch by nobody, in an epoch long past: every controller (Kafka: `KafkaRaftClient.handleFetchRequest`)
refuses it, says who leads in which epoch, and forgets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import trio
from msgspec import Struct

from kraft.admin.client import (
    CONTROLLERS,
    AdminClient,
    AdminError,
    ClusterDescription,
    QuorumDescription,
    ReplicaDescription,
)
from kraft.config import PROTECTED_PROTOCOLS
from metadata_log.serde import Message
from metadata_log.types import METADATA_PARTITION, NO_NODE, Uuid
from transport.channels import NOT_TRIED
from transport.interface import Endpoint, Failed
from transport.protocol.errors import Error
from transport.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from transport.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

M = TypeVar("M", bound=Message)

ANSWER_MS: Final = 2_000
"""How long one controller may take to answer."""


class Said(Struct, frozen=True, kw_only=True):
    """What a controller says of itself: its epoch, and who leads in that as far as it knows (-1: nobody)."""

    epoch: int
    leader_id: int


class Progress(Struct, frozen=True, kw_only=True):
    """What the leader knows of a voter. Milliseconds; None is "not known"."""

    behind: int
    """Records that it lacks."""
    behind_ms: int | None
    silent_ms: int | None
    """Since it last fetched."""


class Condition(Struct, frozen=True, kw_only=True):
    """One controller; the id is -1 where only its address is known. Where it could not be asked, `said` tells why.

    `elsewhere` are the directories with which the node of this id fetches, where that is not the voter's own: its disk
    was lost or exchanged.
    """

    id: int
    endpoint: Endpoint | None
    said: Said | str
    directory_id: Uuid = Uuid.ZERO
    progress: Progress | None = None
    elsewhere: tuple[Uuid, ...] = ()


class Protected(Struct, frozen=True, kw_only=True):
    """A listener that must not be asked in the clear. `listener` is its name, and that of its security protocol."""

    endpoint: Endpoint
    listener: str

    def __str__(self) -> str:
        return (
            f"listener {self.listener} has the protocol of its name, which this client does not speak yet: add a"
            " PLAINTEXT listener in a network you trust, or ask with Kafka's tools"
        )


async def voter_conditions(
    admin: AdminClient, cluster: ClusterDescription, quorum: QuorumDescription
) -> tuple[Condition, ...]:
    """How every voter is, in the leader's order. Takes no longer than `ANSWER_MS`."""
    places = _places(cluster, quorum)
    said = await _ask_all(admin, places, cluster.cluster_id)
    return tuple(
        Condition(
            id=voter.id,
            endpoint=place.endpoint if isinstance(place, Protected) else place,
            said=words,
            directory_id=voter.directory_id,
            progress=_progress(quorum, voter),
            elsewhere=tuple(one.directory_id for one in quorum.observers if one.id == voter.id),
        )
        for voter, place, words in zip(quorum.voters, places, said, strict=True)
    )


def _places(cluster: ClusterDescription, quorum: QuorumDescription) -> list[Endpoint | Protected | None]:
    """Where each voter is asked, in the leader's order.

    A listener with the name of a security protocol has that protocol (Kafka's default of
    `listener.security.protocol.map`). The exception is the listener that the cluster was described by: its controllers
    answered in the clear, whatever its name is.
    """
    registered = dict(cluster.controllers)
    in_the_clear = {
        name for voter in quorum.voters for name, endpoint in voter.listeners if endpoint == registered.get(voter.id)
    }
    places: list[Endpoint | Protected | None] = []
    for voter in quorum.voters:
        protected = [
            Protected(endpoint=endpoint, listener=name)
            for name, endpoint in voter.listeners
            if name in PROTECTED_PROTOCOLS and name not in in_the_clear
        ]
        refused = {one.endpoint for one in protected}
        known = (*(endpoint for _, endpoint in voter.listeners), registered.get(voter.id))
        asked = next((one for one in known if one is not None and one not in refused), None)
        places.append(asked or next(iter(protected), None))
    return places


async def conditions_without_leader(admin: AdminClient) -> tuple[Condition, ...]:
    """How the controllers are whose addresses were given, or are named by one of them, while nobody can say who votes.

    Takes no longer than twice `ANSWER_MS`.
    """
    named = await _named_controllers(admin)
    unnamed = [(NO_NODE, endpoint) for endpoint in admin.addresses if endpoint not in named.values()]
    some = [*sorted(named.items()), *unnamed]
    said = await _ask_all(admin, [endpoint for _, endpoint in some], None)
    return tuple(
        Condition(id=node_id, endpoint=endpoint, said=words)
        for (node_id, endpoint), words in zip(some, said, strict=True)
    )


async def _named_controllers(admin: AdminClient) -> dict[int, Endpoint]:
    """The controllers that any controller knows of, by id."""
    named: dict[int, Endpoint] = {}

    async def ask(endpoint: Endpoint) -> None:
        answer = await _answer_of(
            admin, endpoint, DescribeClusterRequest(endpoint_type=CONTROLLERS), DescribeClusterResponse
        )
        if not isinstance(answer, str):
            named.update({node.broker_id: Endpoint(node.host, node.port) for node in answer.brokers})

    async with trio.open_nursery() as nursery:
        for endpoint in admin.addresses:
            nursery.start_soon(ask, endpoint)
    return named


async def _ask_all(
    admin: AdminClient, places: Sequence[Endpoint | Protected | None], cluster_id: str | None
) -> list[Said | str]:
    """What each of them says, in their order."""
    said: list[Said | str] = ["nothing tells where it listens"] * len(places)

    async def ask(index: int, endpoint: Endpoint) -> None:
        said[index] = await _ask(admin, endpoint, cluster_id)

    async with trio.open_nursery() as nursery:
        for index, place in enumerate(places):
            if isinstance(place, Protected):
                said[index] = str(place)
            elif place is not None:
                nursery.start_soon(ask, index, place)
    return said


async def _ask(admin: AdminClient, endpoint: Endpoint, cluster_id: str | None) -> Said | str:
    partition = FetchPartition(partition=METADATA_PARTITION, current_leader_epoch=0, fetch_offset=0)
    topic = FetchTopic(topic_id=Uuid.METADATA_TOPIC, partitions=[partition])
    request = FetchRequest(cluster_id=cluster_id, max_wait_ms=0, topics=[topic])
    answer = await _answer_of(admin, endpoint, request, FetchResponse)
    if isinstance(answer, str):
        return answer
    if answer.error_code:
        return f"{endpoint}: it answers {Error.of(answer.error_code).name}"
    leader = answer.responses[0].partitions[0].current_leader
    return Said(epoch=leader.leader_epoch, leader_id=leader.leader_id)


async def _answer_of(admin: AdminClient, endpoint: Endpoint, message: Message, answer: type[M]) -> M | str:
    """The answer, or why there is none."""
    try:
        outcome = await admin.ask(endpoint, message, answer, timeout_ms=ANSWER_MS)
    except AdminError as failed:
        return str(failed)
    return outcome.detail.removesuffix(NOT_TRIED) if isinstance(outcome, Failed) else outcome


def _progress(quorum: QuorumDescription, voter: ReplicaDescription) -> Progress | None:
    leader = next((one for one in quorum.voters if one.id == quorum.leader_id), None)
    if leader is None or voter.log_end_offset < 0:
        return None
    return Progress(
        behind=leader.log_end_offset - voter.log_end_offset,
        behind_ms=_between(voter.last_caught_up_ms, leader.last_caught_up_ms),
        silent_ms=_between(voter.last_fetch_ms, leader.last_fetch_ms),
    )


def _between(earlier_ms: int, later_ms: int) -> int | None:
    return None if min(earlier_ms, later_ms) < 0 else max(later_ms - earlier_ms, 0)
