"""Requests of a program that embeds a node to the leader of the quorum: describe it, add voters, remove voters.

The requests are Kafka's, and take the connections of the node. The leader may be the node itself, whose listener
answers as it answers anybody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import TypeVar

import trio

from kraft.admin import voters
from kraft.admin.client import DEFAULT_TIMEOUT_MS, AdminClient
from kraft.admin.descriptions import QuorumDescription
from kraft.config import parse_host_port
from kraft.node.errors import NodeStopped
from kraft.quorum.values import ListenerAddress, ReplicaKey
from kraft.replica.replica import Replica
from transport.interface import Endpoint, Transport

T = TypeVar("T")
_LONGEST_RETRY_MS = 200
"""A leader that is asked for a voter says no until the voter has caught up."""


class Administration:
    """Asks the leader on behalf of one node."""

    def __init__(self, replica: Replica, transport: Transport) -> None:
        self._replica = replica
        # Tokens below 0: the others are those of the replica.
        self.client = AdminClient(
            transport,
            (),
            client_id=f"admin-{replica.core.local.id}",
            timeout_ms=DEFAULT_TIMEOUT_MS,
            longest_retry_ms=_LONGEST_RETRY_MS,
            tokens=count(-1, -1),
        )
        self._scopes: list[trio.CancelScope] = []
        self._has_stopped = False

    async def describe(self) -> QuorumDescription:
        """See `Node.describe_quorum`."""
        return await self._ask(AdminClient.describe_quorum)

    async def add(self, node_id: int | None, address: str | None) -> ReplicaKey:
        """See `Node.add_voter`; returns the voter."""
        core = self._replica.core
        at = None if address is None else Endpoint(*parse_host_port(address))
        if node_id is None or node_id == core.local.id:
            own = self._replica.options.endpoints.default
            node_id, directory_id = core.local.id, core.local.directory_id
            at = at or (None if own is None else _endpoint(own))
        else:
            directory_id = None
        wanted = node_id
        added = await self._ask(lambda client: voters.add_voter(client, wanted, at, directory_id))
        return ReplicaKey(added.id, added.directory_id)

    async def remove(self, node_id: int, *, force: bool) -> ReplicaKey:
        """See `Node.remove_voter`; returns the former voter."""
        return ReplicaKey(node_id, await self._ask(lambda client: voters.remove_voter(client, node_id, force=force)))

    async def _ask(self, call: Callable[[AdminClient], Awaitable[T]]) -> T:
        """Do something with a client that knows the present voters. Raises `NodeStopped` if the node ends meanwhile."""
        if self._has_stopped:
            raise NodeStopped("the node has stopped")
        self.client.look_at(self._addresses())
        with trio.CancelScope() as scope:
            self._scopes.append(scope)
            try:
                return await call(self.client)
            finally:
                self._scopes.remove(scope)
        raise NodeStopped("the node has stopped; the voters may or may not be changed")

    def _addresses(self) -> tuple[Endpoint, ...]:
        """Where the leader may be asked for: the leader that this node knows, the voters, the configured servers."""
        core, options = self._replica.core, self._replica.options
        voted = (voter.endpoints.at(options.listener) for voter in core.voters.voters)
        addresses = (core.leader_address, *voted, *options.bootstrap)
        return tuple(dict.fromkeys(_endpoint(one) for one in addresses if one is not None))

    def stop(self) -> None:
        """The node has ended: nobody gets an answer any more."""
        self._has_stopped = True
        for scope in self._scopes:
            scope.cancel()


def _endpoint(address: ListenerAddress) -> Endpoint:
    return Endpoint(address.host, address.port)
