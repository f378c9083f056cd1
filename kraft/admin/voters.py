"""Who votes in a dynamic quorum, changed by its leader (Kafka: `Admin.addRaftVoter`, `removeRaftVoter`; KIP-853)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from kraft.admin.client import AdminClient, AdminError, QuorumDescription, Refusal, ReplicaDescription, RequestRefused
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

RETRY_SECONDS: Final = 0.2
TIMEOUT_MS: Final = 30_000


async def add_voter(
    admin: AdminClient,
    node_id: int,
    endpoint: Endpoint,
    directory_id: Uuid | None = None,
    *,
    timeout_ms: int = TIMEOUT_MS,
) -> Uuid:
    """Make a controller that has caught up a voter; returns its directory id once that is committed.

    Without `directory_id` it is the one under which the controller fetches. "Not now" is asked again, for `timeout_ms`.
    Raises `AdminError`, `RequestRefused` and
    `NoController`; cancelled by its caller, the voter may be added all the same.
    """
    cluster = await admin.describe_cluster()
    quorum = await admin.describe_quorum()
    found = directory_id or _only(quorum.observers, node_id, "no observer").directory_id
    listener = quorum.voters[0].listeners[0][0] if quorum.voters and quorum.voters[0].listeners else "CONTROLLER"
    request = AddRaftVoterRequest(
        cluster_id=cluster.cluster_id,
        timeout_ms=timeout_ms,
        voter_id=node_id,
        voter_directory_id=found,
        listeners=[Listener(listener, endpoint.host, endpoint.port)],
    )
    await _until_taken(
        admin,
        timeout_ms,
        lambda: admin.ask_active(request, AddRaftVoterResponse, _refusal),
        lambda now: (node_id, found) in _keys(now),
    )
    return found


async def remove_voter(
    admin: AdminClient, node_id: int, directory_id: Uuid | None = None, *, timeout_ms: int = TIMEOUT_MS
) -> Uuid:
    """Take a controller's vote away; returns its directory id once that is committed. Errors as of `add_voter`."""
    cluster = await admin.describe_cluster()
    quorum = await admin.describe_quorum()
    found = directory_id or _only(quorum.voters, node_id, "no voter").directory_id
    request = RemoveRaftVoterRequest(cluster_id=cluster.cluster_id, voter_id=node_id, voter_directory_id=found)
    await _until_taken(
        admin,
        timeout_ms,
        lambda: admin.ask_active(request, RemoveRaftVoterResponse, _refusal),
        lambda now: (node_id, found) not in _keys(now),
    )
    return found


async def _until_taken(
    admin: AdminClient,
    timeout_ms: int,
    ask: Callable[[], Awaitable[object]],
    is_done: Callable[[QuorumDescription], bool],
) -> None:
    """Ask again as long as the leader says "not now", which it also says of what comes to be done later."""
    put_off: RequestRefused | None = None
    until = trio.current_time() + timeout_ms / 1000
    while put_off is None or trio.current_time() < until:
        try:
            await ask()
        except RequestRefused as refused:
            if put_off is not None and is_done(await admin.describe_quorum()):
                return
            if refused.error is not Error.REQUEST_TIMED_OUT:
                raise
            put_off = refused
        else:
            return
        await trio.sleep(RETRY_SECONDS)
    raise put_off


def _only(replicas: tuple[ReplicaDescription, ...], node_id: int, what: str) -> ReplicaDescription:
    """The replica of a node; its id may be that of two, after its disk was lost."""
    found = [one for one in replicas if one.id == node_id]
    if len(found) == 1:
        return found[0]
    ids = ", ".join(str(one.directory_id) for one in found)
    raise AdminError(
        f"node {node_id} is {what} of the quorum" if not found else f"node {node_id} is there twice: {ids}",
        hint="See `kraft quorum status`, and name the directory id if there are two.",
    )


def _keys(quorum: QuorumDescription) -> set[tuple[int, Uuid]]:
    return {(one.id, one.directory_id) for one in quorum.voters}


def _refusal(answer: AddRaftVoterResponse | RemoveRaftVoterResponse) -> Refusal:
    return Error.of(answer.error_code), answer.error_message
