"""Changes the voters of a dynamic quorum through its leader.

Kafka: `Admin.addRaftVoter`, `removeRaftVoter`; KIP-853.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio
from msgspec import Struct

from kraft.admin.client import AdminClient, Refusal
from kraft.admin.descriptions import ClusterDescription, QuorumDescription, ReplicaDescription
from kraft.admin.errors import AdminError, RequestRefused
from kraft.admin.features import UpgradeType, update_features
from kraft.quorum.voters import majority
from metadata_log.image.features import KRAFT_VERSION
from metadata_log.types import Uuid
from transport.interface import Endpoint
from transport.protocol.errors import Error
from transport.protocol.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from transport.protocol.messages.add_raft_voter import Listener

DYNAMIC: Final = {KRAFT_VERSION: 1}
RETRY_SECONDS: Final = 0.2
FETCH_SECONDS: Final = 3.0
"""More than a fetch timeout: within this time each fetching replica has found a new leader."""
TIMEOUT_MS: Final = 30_000
BEHIND_MS: Final = 2_000
"""A voter that has lagged for longer than Kafka's fetch timeout does not count towards a majority."""
SILENT_MS: Final = 5_000
"""Of two replicas with the same id, one that has not fetched for so long is gone: each fetches twice a second."""
_DONE_BEFORE: Final = (Error.DUPLICATE_VOTER, Error.VOTER_NOT_FOUND)
_SEE: Final = "See `kraft quorum status`, and name the directory id if there are two."


class AddedVoter(Struct, frozen=True):
    """A voter as sent to the leader."""

    id: int
    directory_id: Uuid
    endpoint: Endpoint


async def add_voter(
    admin: AdminClient,
    node_id: int,
    endpoint: Endpoint | None = None,
    directory_id: Uuid | None = None,
    *,
    timeout_ms: int = TIMEOUT_MS,
) -> AddedVoter:
    """Make a controller that has caught up a voter (Kafka: `Admin.addRaftVoter`, KIP-853).

    Returns once the change is committed. If the caller cancels the call, the leader may add the voter all the same.

    Args:
        admin: The client.
        node_id: The id of the controller.
        endpoint: The address of the controller; None for the address that the controller has registered.
        directory_id: The directory of the controller; None for the directory with which the controller fetches now.
        timeout_ms: Milliseconds for the leader to make the change, and to wait for a registration.

    Returns:
        The voter as sent to the leader.

    Raises:
        AdminError: The node votes already, is no observer, or has not registered an address.
        RequestRefused: The leader refused the change.
        NoController: No controller answered in time.
    """
    cluster = await admin.describe_cluster()
    quorum = await admin.describe_quorum()
    if any(one.id == node_id and directory_id in (None, one.directory_id) for one in quorum.voters):
        raise AdminError(f"node {node_id} votes already", hint=_SEE)
    directory = directory_id or (await _observer(admin, node_id)).directory_id
    address = endpoint or await _registered(admin, node_id, timeout_ms)
    listener = _listener(cluster, quorum) if endpoint is None else _default_listener(quorum)
    request = AddRaftVoterRequest(
        cluster_id=cluster.cluster_id,
        timeout_ms=timeout_ms,
        voter_id=node_id,
        voter_directory_id=directory,
        listeners=[Listener(listener, address.host, address.port)],
    )
    asked = admin.ask_active(request, AddRaftVoterResponse, _refusal)
    await _changed(admin, asked, lambda now: (node_id, directory) in _keys(now))
    return AddedVoter(node_id, directory, address)


async def _observer(admin: AdminClient, node_id: int) -> ReplicaDescription:
    """The observer of this id. A new leader knows each observer after the observer's next Fetch."""
    deadline = trio.current_time() + FETCH_SECONDS
    while True:
        observers = (await admin.describe_quorum()).observers
        if any(one.id == node_id for one in observers) or trio.current_time() >= deadline:
            return _fetching(observers, node_id)
        await trio.sleep(RETRY_SECONDS)


async def _registered(admin: AdminClient, node_id: int, timeout_ms: int) -> Endpoint:
    """The registered endpoint of a controller. A controller registers as soon as it has read the log."""
    with trio.move_on_after(timeout_ms / 1000):
        while True:
            address = dict((await admin.describe_cluster()).controllers).get(node_id)
            if address is not None:
                return address
            await trio.sleep(RETRY_SECONDS)
    raise AdminError(
        f"node {node_id} has not registered where it listens",
        hint=f"Say where: {node_id}@HOST:PORT. Controllers register from metadata.version 3.7-IV0 on.",
    )


def _listener(cluster: ClusterDescription, quorum: QuorumDescription) -> str:
    """The name of the listener that described the cluster, where the voters' addresses match the described ones."""
    known = dict(cluster.controllers)
    names = [name for voter in quorum.voters for name, endpoint in voter.listeners if endpoint == known.get(voter.id)]
    return names[0] if names else _default_listener(quorum)


def _default_listener(quorum: QuorumDescription) -> str:
    """The name of the listener by which controllers reach each other."""
    return next((name for voter in quorum.voters for name, _ in voter.listeners), "CONTROLLER")


async def remove_voter(
    admin: AdminClient, node_id: int, directory_id: Uuid | None = None, *, force: bool = False
) -> Uuid:
    """Remove a voter (Kafka: `Admin.removeRaftVoter`, KIP-853); returns once the change is committed.

    A majority of the remaining voters has to commit the change. No leader checks that, neither ours nor Kafka's.

    Args:
        admin: The client.
        node_id: The id of the voter.
        directory_id: The directory of the voter; needed only if two voters have this id.
        force: Whether to send the request although too few of the remaining voters keep up with the leader. Then the
            quorum commits nothing before enough voters are back.

    Returns:
        The directory of the removed voter.

    Raises:
        AdminError: No voter has this id, too few of the remaining voters keep up, or the quorum is static.
        RequestRefused: The leader refused the change.
        NoController: No controller answered in time.
    """
    cluster = await admin.describe_cluster()
    quorum = await admin.describe_quorum()
    directory = (
        directory_id or _only([one for one in quorum.voters if one.id == node_id], node_id, "no voter").directory_id
    )
    if directory == Uuid.ZERO:
        raise AdminError(
            "the quorum is static: each node has the voters in controller.quorum.voters",
            hint="Make it dynamic first, with `kraft quorum upgrade`.",
        )
    if not force:
        await _require_majority_without(admin, quorum, node_id, directory)
    request = RemoveRaftVoterRequest(cluster_id=cluster.cluster_id, voter_id=node_id, voter_directory_id=directory)
    asked = admin.ask_active(request, RemoveRaftVoterResponse, _refusal)
    await _changed(admin, asked, lambda now: (node_id, directory) not in _keys(now))
    return directory


async def _require_majority_without(
    admin: AdminClient, quorum: QuorumDescription, node_id: int, directory_id: Uuid
) -> None:
    deadline = trio.current_time() + FETCH_SECONDS
    while missing := missing_without(quorum, node_id, directory_id):
        if trio.current_time() >= deadline:
            ids = ", ".join(str(one.id) for one in missing)
            raise AdminError(
                f"node {node_id} is needed: of the voters that would remain, these do not keep up: {ids}",
                hint="Remove the lost voters first, or wait until they are back; --force removes the node all the same,"
                " and nothing is committed until then.",
            )
        await trio.sleep(RETRY_SECONDS)
        quorum = await admin.describe_quorum()


def missing_without(quorum: QuorumDescription, node_id: int, directory_id: Uuid) -> tuple[ReplicaDescription, ...]:
    """The voters that do not keep up, if the remaining voters, without this one, would lack a majority."""
    remaining = [one for one in quorum.voters if (one.id, one.directory_id) != (node_id, directory_id)]
    now_ms = max((one.last_caught_up_ms for one in quorum.voters), default=-1)
    missing = tuple(one for one in remaining if one.last_caught_up_ms < now_ms - BEHIND_MS)
    return missing if missing and len(remaining) - len(missing) < majority(len(remaining)) else ()


async def make_dynamic(admin: AdminClient, *, timeout_ms: int = TIMEOUT_MS) -> None:
    """Raise kraft.version to 1, irreversibly (KIP-853); returns once the log has the voters with their directories.

    Args:
        admin: The client.
        timeout_ms: Milliseconds until the log must have the voters.

    Raises:
        AdminError: The log lacks the voters. Some Kafka releases support dynamic quorums only from the format on: such
            a controller stores the level and changes nothing.
        RequestRefused: The controller refused the level.
        NoController: No controller answered in time.
    """
    await update_features(admin, DYNAMIC, UpgradeType.UPGRADE)
    quorum = await admin.describe_quorum()
    with trio.move_on_after(timeout_ms / 1000):
        while any(one.directory_id == Uuid.ZERO for one in quorum.voters):
            await trio.sleep(RETRY_SECONDS)
            quorum = await admin.describe_quorum()
        return
    raise AdminError(
        f"the leader, node {quorum.leader_id}, says that {KRAFT_VERSION} is 1, but the quorum is static as before",
        hint="Its release of Kafka cannot change that while it runs. Let a newer controller lead, and try again.",
    )


async def _changed(admin: AdminClient, asked: Awaitable[object], is_done: Callable[[QuorumDescription], bool]) -> None:
    """Wait for the response and the change.

    A leader may answer REQUEST_TIMED_OUT and make the change later. The client then repeats the request, and the leader
    refuses the second one because the change is made.
    """
    try:
        await asked
    except RequestRefused as refused:
        if refused.error not in _DONE_BEFORE or not is_done(await admin.describe_quorum()):
            raise


def _fetching(replicas: tuple[ReplicaDescription, ...], node_id: int) -> ReplicaDescription:
    """The observer of this id that fetches; after an exchange of its disk, its former directory is listed, too."""
    candidates = sorted((one for one in replicas if one.id == node_id), key=lambda one: one.last_fetch_ms)
    if len(candidates) > 1 and candidates[-2].last_fetch_ms < candidates[-1].last_fetch_ms - SILENT_MS:
        return candidates[-1]
    return _only(candidates, node_id, "no observer")


def _only(found: Sequence[ReplicaDescription], node_id: int, what: str) -> ReplicaDescription:
    """The only replica of a node; after the loss of its disk, a node may have two."""
    if len(found) == 1:
        return found[0]
    ids = ", ".join(str(one.directory_id) for one in found)
    raise AdminError(
        f"node {node_id} is {what} of the quorum" if not found else f"node {node_id} is there twice: {ids}",
        hint=_SEE,
    )


def _keys(quorum: QuorumDescription) -> set[tuple[int, Uuid]]:
    return {(one.id, one.directory_id) for one in quorum.voters}


def _refusal(answer: AddRaftVoterResponse | RemoveRaftVoterResponse) -> Refusal:
    return Error.of(answer.error_code), answer.error_message
