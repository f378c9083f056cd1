"""Requests the state of each controller directly, and combines it with the leader's view of the quorum.

The request is a Fetch with replica id -1 in an outdated epoch. Each controller refuses such a Fetch, reports its epoch
and leader, and keeps no state about the sender (Kafka: `KafkaRaftClient.handleFetchRequest`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import trio
from msgspec import Struct

from kraft.access.endpoint_types import CONTROLLERS
from kraft.admin.client import AdminClient, ResourceType
from kraft.admin.descriptions import ClusterDescription, QuorumDescription, ReplicaDescription
from kraft.admin.errors import AdminError
from kraft.config import PROTECTED_PROTOCOLS
from metadata_log.serde import Message
from metadata_log.types import METADATA_PARTITION, NO_NODE, Uuid
from transport.interface import Endpoint, Failed
from transport.protocol.errors import Error
from transport.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from transport.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from transport.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

if TYPE_CHECKING:
    from kraft.security.certificates import Certificate

M = TypeVar("M", bound=Message)

_EXPECTED_ID: Final = re.compile(r"expected ([0-9]{1,10}) ")
ANSWER_MS: Final = 2_000
"""The limit in milliseconds for one controller's response."""


class EpochReport(Struct, frozen=True, kw_only=True):
    """A controller's report: its epoch, and the leader of that epoch (-1: unknown)."""

    epoch: int
    leader_id: int


class Progress(Struct, frozen=True, kw_only=True):
    """The leader's view of a voter. Milliseconds; None means "not known"."""

    behind: int
    """The number of records that the voter lacks."""
    behind_ms: int | None
    silent_ms: int | None
    """The time since the voter's last fetch."""


class Condition(Struct, frozen=True, kw_only=True):
    """The state of one controller."""

    id: int
    """-1 if only the address of the controller is known."""
    endpoint: Endpoint | None
    report: EpochReport | str
    """The controller's report, or the cause why the request failed."""
    directory_id: Uuid = Uuid.ZERO
    """The directory of the voter; zero if unknown."""
    progress: Progress | None = None
    other_directories: tuple[Uuid, ...] = ()
    """The other directories with which the node of this id fetches: the voter's disk was lost or replaced."""
    certificate: Certificate | None = None
    """The content of the controller's certificate; None without TLS, or if the controller does not answer."""


class Protected(Struct, frozen=True, kw_only=True):
    """A listener with another security protocol than this client's. `listener` is its name, which is its protocol."""

    endpoint: Endpoint
    listener: str

    def __str__(self) -> str:
        return (
            f"listener {self.listener} has the protocol of its name, which this client was not told to speak: set"
            " security.protocol in a file, and name the file with --command-config"
        )


async def voter_conditions(
    admin: AdminClient, cluster: ClusterDescription, quorum: QuorumDescription
) -> tuple[Condition, ...]:
    """The state of each voter, in the leader's order. Takes at most `ANSWER_MS`."""
    places = _places(cluster, quorum)
    reports = await _ask_all(admin, places, cluster.cluster_id)
    return tuple(
        Condition(
            id=voter.id,
            endpoint=place.endpoint if isinstance(place, Protected) else place,
            report=report,
            directory_id=voter.directory_id,
            progress=_progress(quorum, voter),
            other_directories=other_directories(quorum, voter),
            certificate=None if isinstance(place, Protected) else _certificate(admin, place),
        )
        for voter, place, report in zip(quorum.voters, places, reports, strict=True)
    )


def other_directories(quorum: QuorumDescription, voter: ReplicaDescription) -> tuple[Uuid, ...]:
    """The directories with which the node of this voter has fetched since the voter did.

    A leader lists an observer for five minutes after its last fetch, so also the former directory of a replaced voter.
    """
    others = (one for one in quorum.observers if one.id == voter.id)
    return tuple(one.directory_id for one in others if one.last_fetch_ms < 0 or one.last_fetch_ms > voter.last_fetch_ms)


def _certificate(admin: AdminClient, endpoint: Endpoint | None) -> Certificate | None:
    shown = None if endpoint is None else admin.certificate_of(endpoint)
    if shown is None:
        return None
    # Loaded here, because a client without TLS needs no library of certificates.
    from kraft.security.certificates import Certificate

    try:
        return Certificate.parse(shown)
    except ValueError:
        return None  # the connection took place; the names are of a form that the library refuses


def _places(cluster: ClusterDescription, quorum: QuorumDescription) -> list[Endpoint | Protected | None]:
    """The endpoint to use for each voter, in the leader's order.

    A listener named like a security protocol uses that protocol (Kafka's default of
    `listener.security.protocol.map`). The listener that described the cluster is the exception: its controllers
    speak the protocol of this client, whatever its name is.
    """
    registered = dict(cluster.controllers)
    speaking = {
        name for voter in quorum.voters for name, endpoint in voter.listeners if endpoint == registered.get(voter.id)
    }
    places: list[Endpoint | Protected | None] = []
    for voter in quorum.voters:
        protected = [
            Protected(endpoint=endpoint, listener=name)
            for name, endpoint in voter.listeners
            if name in PROTECTED_PROTOCOLS and name not in speaking
        ]
        refused = {one.endpoint for one in protected}
        # First the listener that is known to have the security protocol of this client.
        by_name = sorted(voter.listeners, key=lambda listener: listener[0] not in speaking)
        known = [*(endpoint for _, endpoint in by_name), registered.get(voter.id)]
        if not speaking:
            # The voters use another listener than this client's: the security protocol of the quorum is changing.
            known.insert(0, known.pop())
        asked = next((one for one in known if one is not None and one not in refused), None)
        places.append(asked or next(iter(protected), None))
    return places


async def conditions_without_leader(admin: AdminClient) -> tuple[Condition, ...]:
    """The state of the given controllers, and of those that they report, while no leader can name the voters.

    A controller that answers at several addresses counts once. Takes at most three times `ANSWER_MS`.
    """
    named = await _named_controllers(admin)
    unnamed = [(NO_NODE, endpoint) for endpoint in admin.addresses if endpoint not in named.values()]
    some = [*sorted(named.items()), *unnamed]
    reports = await _ask_all(admin, [endpoint for _, endpoint in some], None)
    ids = await _ids_of(admin, [endpoint for _, endpoint in unnamed])
    return once_each(
        Condition(
            id=ids.get(endpoint, node_id), endpoint=endpoint, report=report, certificate=_certificate(admin, endpoint)
        )
        for (node_id, endpoint), report in zip(some, reports, strict=True)
    )


def once_each(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """One condition of each controller that is known by its id, of the address at which it answers, if there is one."""
    by_key: dict[object, Condition] = {}
    for one in conditions:
        key: object = one.endpoint if one.id == NO_NODE else one.id
        before = by_key.get(key)
        if before is None or (isinstance(before.report, str) and isinstance(one.report, EpochReport)):
            by_key[key] = one
    return tuple(by_key.values())


async def _ids_of(admin: AdminClient, endpoints: Sequence[Endpoint]) -> dict[Endpoint, int]:
    """The ids of the nodes at addresses that no controller names, as far as they say.

    No answer has a field for the id of its node. One that is asked to describe another node names itself in the
    refusal (Kafka: `ConfigHelper`); a client without the right to describe learns nothing.
    """
    ids: dict[Endpoint, int] = {}
    other = DescribeConfigsResource(resource_type=ResourceType.BROKER, resource_name=str(NO_NODE))

    async def ask(endpoint: Endpoint) -> None:
        request = DescribeConfigsRequest(resources=[other])
        answer = await _answer_of(admin, endpoint, request, DescribeConfigsResponse)
        if not isinstance(answer, str):
            for result in answer.results:
                if (told := _EXPECTED_ID.search(result.error_message or "")) is not None:
                    ids[endpoint] = int(told[1])

    async with trio.open_nursery() as nursery:
        for endpoint in endpoints:
            nursery.start_soon(ask, endpoint)
    return ids


async def _named_controllers(admin: AdminClient) -> dict[int, Endpoint]:
    """The controllers that at least one controller knows, by id."""
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
) -> list[EpochReport | str]:
    """The reports of the given controllers, in their order."""
    reports: list[EpochReport | str] = ["its address is unknown"] * len(places)

    async def ask(index: int, endpoint: Endpoint) -> None:
        reports[index] = await _ask(admin, endpoint, cluster_id)

    async with trio.open_nursery() as nursery:
        for index, place in enumerate(places):
            if isinstance(place, Protected):
                reports[index] = str(place)
            elif place is not None:
                nursery.start_soon(ask, index, place)
    return reports


async def _ask(admin: AdminClient, endpoint: Endpoint, cluster_id: str | None) -> EpochReport | str:
    partition = FetchPartition(partition=METADATA_PARTITION, current_leader_epoch=0, fetch_offset=0)
    topic = FetchTopic(topic_id=Uuid.METADATA_TOPIC, partitions=[partition])
    request = FetchRequest(cluster_id=cluster_id, max_wait_ms=0, topics=[topic])
    answer = await _answer_of(admin, endpoint, request, FetchResponse)
    if isinstance(answer, str):
        return answer
    if answer.error_code:
        return f"{endpoint}: the controller answers {Error.of(answer.error_code).name}"
    leader = answer.responses[0].partitions[0].current_leader
    return EpochReport(epoch=leader.leader_epoch, leader_id=leader.leader_id)


async def _answer_of(admin: AdminClient, endpoint: Endpoint, message: Message, answer: type[M]) -> M | str:
    """The response, or the cause of the failure."""
    try:
        outcome = await admin.ask(endpoint, message, answer, timeout_ms=ANSWER_MS)
    except AdminError as failed:
        return str(failed)
    return outcome.reason if isinstance(outcome, Failed) else outcome


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
