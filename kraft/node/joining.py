"""Begins a quorum, or joins one, with no more than a directory and an address (Kafka: KIP-853, by hand)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from random import Random, SystemRandom
from typing import Any, Final, Unpack, overload

import trio
from msgspec.structs import replace

from kraft.admin.client import AdminClient, open_admin
from kraft.admin.errors import AdminError, CannotConnect, NoController
from kraft.config import Config, ConfigError, NodeSettings, parse_host_port, split_list
from kraft.config.embedded import RANDOM_IDS, embedded_config
from kraft.node.embed import check_in_trio, open_node, tcp_transport
from kraft.node.formatting import first_voters, format_all
from kraft.node.logging import LOGGER
from kraft.node.node import Node
from kraft.node.state_machine_node import StateMachineNode
from kraft.node.users import NodeUsers
from kraft.process.parts import METADATA
from kraft.state_machine import C, R, StateMachine
from kraft.state_machine.raw_log import RAW_LOG
from metadata_log.disk import Disk, OsDisk
from metadata_log.errors import DirectoryError
from metadata_log.log.log_dir import META_PROPERTIES, locked_to_format, read_meta_properties
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.control import VotersRecord
from metadata_log.types import random_uuid
from transport.interface import Endpoint
from transport.protocol.apis import ApiKey
from transport.protocol.messages.api_versions import ApiVersionsResponse
from transport.protocol.software import versions_request

_PATIENCE_S: Final = 10
"""After which time a wait for a leader is told, as its cause may be an address that has changed."""
_ASK_S: Final = 1
"""How long a node that has a directory asks which cluster is at the address."""
_MEMORY: Final = "/memory"
_IN_MEMORY: Final = {
    "metadata.log.segment.bytes": "8388608",
    "metadata.max.retention.bytes": "8388608",
}
"""The settings that bound the memory of a node without a directory."""


@overload
def create(
    directory: str, *, state_machine: Callable[[], StateMachine[C, R]], **given: Unpack[NodeSettings]
) -> AbstractAsyncContextManager[StateMachineNode[C, R]]: ...


@overload
def create(directory: str, **given: Unpack[NodeSettings]) -> AbstractAsyncContextManager[Node]: ...


@asynccontextmanager
async def create(
    directory: str,
    *,
    state_machine: Callable[[], StateMachine[Any, Any]] | None = None,
    **given: Unpack[NodeSettings],
) -> AsyncIterator[Any]:
    """Run the first node of a quorum for the duration of the block; other nodes `join` it.

    The first call formats the directory, with a new cluster id and this node as its only voter. Later calls open the
    directory as it is, however many voters there are meanwhile. A directory that was lost must not be created again
    while other voters exist: `join` them.

    Args:
        directory: The node's directory.
        state_machine: Makes a fresh state machine; without it the node has a raw log. See `open_node`.
        given: See `NodeSettings`: `node_id`, `listen`, `advertise`, `tls`, `sasl`, `monitor`, `settings`.

    Raises:
        ConfigError: A setting or a file of `tls` is wrong.
        DirectoryError: The directory belongs to another node, is in use, or has a log and no meta.properties; or it
            does not say who votes, as one of a static quorum.
        OSError: A port is in use, or the disk has failed.
    """
    check_in_trio()
    disk, rng = OsDisk(), _random()
    config = _config(disk, directory, (), given, rng)
    if read_meta_properties(disk, directory) is None:
        _format(disk, config, str(random_uuid(rng)), first_voters(config, rng), rng)
    async with _opened(config, state_machine, given) as node:
        if not node.status().voters.ids:
            raise DirectoryError(
                "the directory does not say who votes: it was formatted for a static quorum, or to join one",
                where=directory,
                hint="Open it by its configuration, with open_node or open_store, or join the quorum again.",
            )
        await _wait_for_leader(node)
        yield node


@overload
def join(
    address: str, directory: str, *, state_machine: Callable[[], StateMachine[C, R]], **given: Unpack[NodeSettings]
) -> AbstractAsyncContextManager[StateMachineNode[C, R]]: ...


@overload
def join(address: str, directory: str, **given: Unpack[NodeSettings]) -> AbstractAsyncContextManager[Node]: ...


@asynccontextmanager
async def join(
    address: str,
    directory: str,
    *,
    state_machine: Callable[[], StateMachine[Any, Any]] | None = None,
    **given: Unpack[NodeSettings],
) -> AsyncIterator[Any]:
    """Run a node that joins a quorum, for the duration of the block, which begins when the node votes.

    The first call formats the directory for the cluster that answers at the address. The node reads the log as an
    observer, and becomes a voter once it has caught up. Later calls open the directory as it is; a node that was
    removed meanwhile joins again.

    Args:
        address: The addresses of some nodes of the quorum: `host:port`, several with commas.
        directory: The node's directory.
        state_machine: As for the other nodes of the quorum.
        given: See `NodeSettings`: `node_id`, `listen`, `advertise`, `tls`, `sasl`, `monitor`, `settings`.

    Raises:
        ConfigError: An address, a setting or a file of `tls` is wrong.
        NoController: Nobody answers at the address within 30 seconds, or a login or TLS fails.
        RequestRefused: The quorum is static, or the id of the node votes with another directory.
        DirectoryError: The directory belongs to another node or cluster, is in use, or has a log and no
                meta.properties.
        OSError: A port is in use, or the disk has failed.
    """
    check_in_trio()
    disk, rng = OsDisk(), _random()
    config = _config(disk, directory, servers_of(address), given, rng)
    known = read_meta_properties(disk, directory)
    is_raw = state_machine is None
    if known is None:
        _format(disk, config, await _cluster_id_at(config, is_raw=is_raw), None, rng)
    else:
        await _check_cluster(config, known.cluster_id, address, is_raw=is_raw)
    async with _opened(config, state_machine, given) as node:
        await _become_voter(node)
        yield node


async def _check_cluster(config: Config, cluster_id: str | None, address: str, *, is_raw: bool) -> None:
    """Refuse another cluster at the address. While nobody answers there, as all nodes start, the directory decides."""
    with trio.move_on_after(_ASK_S), suppress(AdminError):
        actual = await _cluster_id_at(config, is_raw=is_raw)
        if actual != cluster_id:
            raise DirectoryError(
                f"the directory belongs to the cluster {cluster_id}; at {address} is the cluster {actual}",
                where=f"{config.metadata_log_dir}/{META_PROPERTIES}",
                field="cluster.id",
                hint="Join the cluster that the directory belongs to, or begin with another directory.",
            )


async def _wait_for_leader(node: Node) -> None:
    with trio.move_on_after(_PATIENCE_S):
        await node.wait_for_leader()
        return
    text = "node %d waits for a leader: a majority of the voters must run, at the addresses that they had before"
    LOGGER.warning(text, node.status().node_id)
    await node.wait_for_leader()


async def _become_voter(node: Node) -> None:
    await _wait_for_leader(node)
    while not node.status().is_voter:
        try:
            await node.add_voter()
        except CannotConnect:
            raise
        except NoController:
            # It has not caught up in half a minute, or there was no leader: whoever waits for it may cancel that.
            continue


@asynccontextmanager
async def observe(
    address: str, *, state_machine: Callable[[], StateMachine[C, R]], **given: Unpack[NodeSettings]
) -> AsyncIterator[StateMachineNode[C, R]]:
    """Run a node without a vote, a directory and a listener, for the duration of the block.

    It has the whole state in memory, and takes commands and reads as any node. It follows the log as an observer, so
    that the voters need no more than for one more follower.

    Args:
        address: The addresses of some nodes of the quorum: `host:port`, several with commas.
        state_machine: As for the other nodes of the quorum.
        given: `tls`, `sasl`, `monitor` and `settings` of `NodeSettings`.

    Raises:
        ConfigError: An address, a setting or a file of `tls` is wrong.
        NoController: Nobody answers at the address within 30 seconds, or a login or TLS fails.
    """
    check_in_trio()
    disk, rng = MemoryDisk(), _random()
    given = {**given, "settings": {**_IN_MEMORY, **given.get("settings", {})}}
    config = replace(_config(disk, _MEMORY, servers_of(address), given, rng), listeners=(), advertised_listeners=())
    format_all(disk, config, await _cluster_id_at(config, is_raw=False), None, rng)
    async with open_node(
        config, state_machine=state_machine, disk=disk, monitor=given.get("monitor"), inline_flush=True
    ) as node:
        await _wait_for_leader(node)
        yield node


def servers_of(address: str) -> tuple[tuple[str, int], ...]:
    """The addresses in a text. Raises `ConfigError`."""
    try:
        servers = tuple(parse_host_port(one) for one in split_list(address))
    except ValueError as bad:
        raise ConfigError(str(bad), where="address") from None
    if not servers:
        raise ConfigError("the address is empty", where="address", hint="Give HOST:PORT of a node of the quorum.")
    return servers


async def _cluster_id_at(config: Config, *, is_raw: bool) -> str:
    """The id of the cluster whose nodes the configuration names, and which has a raw log, or a state machine.

    Raises `NoController`, and `ConfigError` for another kind of log.
    """
    servers: Iterable[Endpoint] = (Endpoint(host, port) for host, port in config.bootstrap_servers)
    transport = tcp_transport(config, users=NodeUsers(config))
    async with open_admin(servers, transport=transport, delays=_Silence()) as admin:
        cluster = await admin.describe_cluster()
        leader = dict(cluster.controllers)[cluster.controller_id]
        answer = await admin.ask(leader, versions_request(), ApiVersionsResponse)
        if isinstance(answer, ApiVersionsResponse):
            _check_kind({one.api_key for one in answer.api_keys}, leader, is_raw=is_raw)
        return cluster.cluster_id


def _check_kind(served: set[int], leader: Endpoint, *, is_raw: bool) -> None:
    """Refuse a log of another kind: a node of a raw log that leads a store would append what the store cannot read."""
    if ApiKey.CREATE_TOPICS in served:
        kind, cure = METADATA, "Give the address of a node that a program has created."
    elif ApiKey.ENVELOPE not in served:
        kind, cure = RAW_LOG, "Join it with kraft.join(address, directory), without a state machine."
    else:
        kind, cure = "a state machine, as a store is one", "Use kraft.join_store and its like, or state_machine=."
    if (kind == RAW_LOG) != is_raw or kind == METADATA:
        raise ConfigError(f"the quorum at {leader} has the log of {kind}", where="address", hint=cure)


class _Silence:
    """Tells of a quorum that does not answer, while the caller waits for it."""

    async def on_delay(self, admin: AdminClient) -> None:
        """See `Delays`."""
        asked = ", ".join(map(str, admin.addresses))
        LOGGER.warning("no active node of the quorum answers at %s so far: %s", asked, admin.last_failure)

    async def on_timeout(self, admin: AdminClient) -> None:
        """See `Delays`: the error says it."""

    def on_answer(self) -> None:
        """See `Delays`: nothing to say."""


def _config(
    disk: Disk, directory: str, servers: tuple[tuple[str, int], ...], given: NodeSettings, rng: Random
) -> Config:
    """The configuration of a node, which keeps the id that its directory has."""
    known = read_meta_properties(disk, directory)
    node_id = given.get("node_id", rng.randrange(*RANDOM_IDS) if known is None else known.node_id)
    config = embedded_config(node_id, directory, servers, given)
    for warning in config.warnings:
        LOGGER.warning("%s", warning)
    return config


def _format(disk: Disk, config: Config, cluster_id: str, voters: VotersRecord | None, rng: Random) -> None:
    with locked_to_format(disk, config.metadata_log_dir):
        format_all(disk, config, cluster_id, voters, rng)


def _opened(
    config: Config, state_machine: Callable[[], StateMachine[Any, Any]] | None, given: NodeSettings
) -> AbstractAsyncContextManager[Node]:
    monitor = given.get("monitor")
    if state_machine is None:
        return open_node(config, monitor=monitor)
    return open_node(config, state_machine=state_machine, monitor=monitor)


def _random() -> Random:
    return Random(SystemRandom().getrandbits(128))
