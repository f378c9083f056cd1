"""Runs a node inside another program, with a raw log or a state machine (Kafka: `KafkaRaftClient` as a library)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, overload

import trio

from kraft.config import Config
from kraft.config.listener_settings import ConnectionSettings
from kraft.node.clock import NodeClock
from kraft.node.monitoring import NodeMonitor
from kraft.node.node import Node
from kraft.node.run import run_node
from kraft.node.users import NodeUsers
from kraft.process.hosting import host_silent_raw_log
from kraft.process.parts import METADATA, Application, ApplicationFactory, Opening, kind_of
from kraft.security.contexts import LoadedTls, load_tls
from metadata_log.disk import DirectoryDisk, Disk, OsDisk
from metadata_log.log.log_dir import is_unused, note_what_it_hosts
from transport.causes import one_cause
from transport.descriptors import connections_allowed
from transport.interface import Transport
from transport.limits import MAX_CONNECTIONS
from transport.serving import INT_MAX
from transport.tcp import TcpTransport, WireOptions

if TYPE_CHECKING:
    from kraft.node.state_machine_node import StateMachineNode
    from kraft.node.stores import StoreKeeper
    from kraft.state_machine import C, R, StateMachine


@overload
def open_node(
    config: Config,
    *,
    state_machine: Callable[[], StateMachine[C, R]],
    transport: Transport | None = None,
    disk: DirectoryDisk | None = None,
    rng: Random | None = None,
    clock: NodeClock | None = None,
    monitor: Callable[[Config, NodeClock], NodeMonitor] | None = None,
    inline_flush: bool = False,
) -> AbstractAsyncContextManager[StateMachineNode[C, R]]: ...


@overload
def open_node(
    config: Config,
    *,
    transport: Transport | None = None,
    disk: DirectoryDisk | None = None,
    rng: Random | None = None,
    clock: NodeClock | None = None,
    monitor: Callable[[Config, NodeClock], NodeMonitor] | None = None,
    application: ApplicationFactory = host_silent_raw_log,
    inline_flush: bool = False,
) -> AbstractAsyncContextManager[Node]: ...


def open_node(
    config: Config,
    *,
    state_machine: Callable[[], StateMachine[Any, Any]] | None = None,
    transport: Transport | None = None,
    disk: DirectoryDisk | None = None,
    rng: Random | None = None,
    clock: NodeClock | None = None,
    monitor: Callable[[Config, NodeClock], NodeMonitor] | None = None,
    application: ApplicationFactory = host_silent_raw_log,
    inline_flush: bool = False,
) -> AbstractAsyncContextManager[Any]:
    """Run a node for the duration of an `async with` block (Kafka: `KafkaRaftClient` as a library).

    The node reads its directory before the block begins: the log, and the newest snapshot. This takes turns with other
    tasks. Only `StateMachine.restore`, with the content of the snapshot, is one turn (decision 0037).

    At the end of the block the node shuts down gracefully, within five seconds. If the block is cancelled or fails, the
    node stops at once. An error of the node cancels the block and leaves it.

    Args:
        config: The node's configuration.
        state_machine: Makes a fresh state machine, for example its class. Without it the node hosts `application`.
        transport: The network; by default TCP with the limits of `config`.
        disk: The disk of the node's directory; by default this machine's.
        rng: The source of the random election timeouts; by default seeded by the operating system.
        clock: The node's clock, in milliseconds; by default the wall clock at the start, advanced by Trio's clock.
        monitor: Makes what hears of the node's metrics, such as `metrics_hook(tell)`; by default nobody does.
        application: Makes the application of the replica; by default a raw log. Ignored with `state_machine`.
        inline_flush: Whether to flush in the node's own task instead of a thread, for memory disks.

    Returns:
        An asynchronous context manager that yields a `StateMachineNode` if `state_machine` is given, else a `Node`.

    Raises:
        OSError: A port is in use, or the disk has failed.
        MetadataLogError: The directory is unusable, or the log is damaged.
        AssertionError: An invariant is broken.
        NodeError: Python runs with -O, which removes the assertions.
        TypeError: `config` is no `Config`, such as the name of a directory.
    """
    if not isinstance(config, Config):
        raise TypeError(
            f"a node is opened with a Config, not with {config!r}: kraft.create(directory) makes the first node in a"
            " directory, and Config.load(path) reads a properties file"
        )
    if state_machine is not None:
        # Loaded here, because other nodes host no state machine.
        from kraft.process.hosting import host_state_machine

        application = host_state_machine(state_machine)
    disk = OsDisk() if disk is None else disk
    users, loaded = NodeUsers(config), LoadedTls(None) if transport is not None else load_tls(config)
    run = partial(
        run_node,
        config,
        transport=tcp_transport(config, tls=loaded, users=users) if transport is None else transport,
        users=users,
        stores=keeper_of(config, loaded),
        disk=disk,
        rng=Random(SystemRandom().getrandbits(64)) if rng is None else rng,
        inline_flush=inline_flush,
    )
    told = None if monitor is None else partial(monitor, config)
    return _running(run, application, disk, config.metadata_log_dir, clock, told)


def _saying_its_kind(
    application: ApplicationFactory, disk: Disk, directory: str, clock: NodeClock
) -> ApplicationFactory:
    """The factory of an application whose directory says what its log is of, before the log has a record.

    It is called by whoever has the lock of the directory.
    """

    def hosted(opening: Opening) -> Application:
        made = application(opening)
        if kind_of(made) != METADATA and is_unused(disk, directory):
            note_what_it_hosts(disk, directory, kind_of(made), clock.now_ms())
        return made

    return hosted


@asynccontextmanager
async def _running(
    run: Callable[..., Awaitable[None]],
    application: ApplicationFactory,
    disk: Disk,
    directory: str,
    clock: NodeClock | None,
    monitor: Callable[[NodeClock], NodeMonitor] | None,
) -> AsyncIterator[Node]:
    # Made here, as `kraft.asyncio` and `kraft.sync` call `open_node` outside of the thread in which Trio runs.
    check_in_trio()
    clock = NodeClock() if clock is None else clock
    application = _saying_its_kind(application, disk, directory, clock)
    run = partial(run, application=application, clock=clock, monitor=None if monitor is None else monitor(clock))
    with one_cause():
        async with trio.open_nursery() as nursery:
            node: Node = await nursery.start(run)
            yield node
            await node.shutdown()


def check_in_trio() -> None:
    """Raise `RuntimeError` in a program that does not run in Trio, with the names for it."""
    if not trio.lowlevel.in_trio_run():
        raise RuntimeError(
            "this runs in Trio: in an asyncio program use the same name of kraft.asyncio, and without an event loop"
            " that of kraft.sync"
        )


def keeper_of(config: Config, loaded: LoadedTls) -> StoreKeeper | None:
    """The keeper of the stores that `load_tls` has read for this configuration; None for a node without TLS."""
    if loaded.tls is None:
        return None
    # Loaded here, because a node without TLS needs no library of certificates.
    from kraft.node.stores import StoreKeeper
    from kraft.security.reload import Stores

    return StoreKeeper(Stores(config.tls, loaded), config.node_id)


def tcp_transport(
    config: Config,
    *,
    patience_ms: int = 0,
    tls: LoadedTls | None = None,
    users: NodeUsers | None = None,
    serves_clients: bool = False,
    make: Callable[..., TcpTransport] = TcpTransport,
) -> TcpTransport:
    """A TCP transport with the limits, the TLS and the logins of a configuration; for `patience_ms` see `TcpTransport`.

    `tls` is the result of `load_tls`, if the caller has read the stores already. `users` are those of `run_node`;
    without them only the users of the configuration log in. With `serves_clients` the listeners are those of a broker
    for clients: they have the brokers' APIs, and open once the broker is unfenced. `make` makes the transport, for one
    that does more than the default. Raises `ConfigError` for bad stores.
    """
    limits = config.of(ConnectionSettings)
    options = WireOptions(
        sasl=(NodeUsers(config) if users is None else users).sasl,
        tls=(load_tls(config) if tls is None else tls).tls,
        max_frame_bytes=limits.request_max_bytes,
        max_idle_ms=limits.max_idle_ms,
        max_connections=min(
            MAX_CONNECTIONS if limits.max_connections == INT_MAX else limits.max_connections,
            connections_allowed(),
        ),
        max_connections_per_ip=limits.max_per_ip,
        max_connections_per_ip_overrides=dict(limits.max_per_ip_overrides),
        max_received_bytes=max(limits.queued_max_request_bytes, 0),
        max_queued_requests=limits.queued_max_requests,
    )
    if serves_clients:
        # Loaded here, because a controller needs none of the brokers' messages.
        from transport.protocol.broker_apis import ALL_APIS
        from transport.protocol.broker_listener import AT_BROKERS, broker_answer_limit, broker_request_limit

        options |= WireOptions(
            served=AT_BROKERS,
            limits=broker_request_limit,
            requested=ALL_APIS,
            answer_limits=broker_answer_limit,
            largest_request_bytes=limits.request_max_bytes,
            opens_later=True,
            for_clients=config.client_listeners,
        )
    return make(patience_ms=patience_ms, **options)
