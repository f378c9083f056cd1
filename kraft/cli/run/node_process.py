"""The process of a served node: its configuration, signals and log, around `run_node` (Kafka: `kafka.Kafka`)."""

from __future__ import annotations

import logging
import os
import signal
import sys
from functools import partial
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Final

import trio

from kraft.cli.run.log_output import LESS, MORE, log_to_stderr, shift_level
from kraft.config import Config, ListenerSpec, join_host_port
from kraft.config.metrics_settings import MetricsSettings
from kraft.node.clock import NodeClock
from kraft.node.embed import keeper_of, tcp_transport
from kraft.node.gc_freeze import freeze_survivors
from kraft.node.node import Node
from kraft.node.run import run_node
from kraft.node.users import NodeUsers
from kraft.operate.interrupts import run_tasks
from kraft.process.parts import ApplicationFactory
from kraft.security.contexts import LoadedTls, load_tls
from metadata_log.disk import DirectoryDisk, OsDisk
from transport.descriptors import raise_limit

if TYPE_CHECKING:
    from kraft.node.metrics.monitor import Monitor
    from kraft.node.stores import StoreKeeper

LOGGER: Final = logging.getLogger("kraft.node")
FAILS_FAST: Final = "KRAFT_FAILS_FAST"
"""The environment of tests has this: a bug in the handling of one request then ends the node."""
_FIRST_REQUESTS_S: Final = 1.0
_PATIENCE_MS: Final = 2
"""Longer than a commit takes and too short for a user to notice: see `TcpTransport`."""


def serve(
    config: Config, *, log_level: str, log_format: str, protocol_file: str | None = None, until_stdin_closes: bool
) -> None:
    """Run the node of a configuration until a signal, or until standard input closes if that is asked for."""
    log_to_stderr(log_level, log_format)
    raise_limit()
    tls = load_tls(config)
    for warning in (*config.warnings, *tls.warnings):
        LOGGER.warning("%s", warning)
    run_tasks(partial(_serve, config, tls, protocol_file, until_stdin_closes))


async def _serve(config: Config, tls: LoadedTls, protocol_file: str | None, until_stdin_closes: bool) -> None:
    users, keeper = NodeUsers(config), keeper_of(config, tls)
    clock, disk = NodeClock(), OsDisk()
    monitor = _monitor(config, clock, keeper)
    run = partial(
        run_node,
        config,
        transport=tcp_transport(
            config, patience_ms=_PATIENCE_MS, tls=tls, users=users, serves_clients=config.is_broker
        ),
        application=_application(config, disk if monitor is None else monitor.measured(disk)),
        users=users,
        stores=keeper,
        disk=disk,
        rng=Random(SystemRandom().getrandbits(128)),
        clock=clock,
        monitor=monitor,
        serves_loggers=True,
        survives_failures=FAILS_FAST not in os.environ,
        protocol_file=protocol_file,
    )
    stop = trio.Event()
    async with trio.open_nursery() as watchers:
        # The node has not started yet: an early signal must lead to a graceful shutdown, too.
        await watchers.start(_watch_signals, stop, watchers.cancel_scope)
        if keeper is not None:
            await watchers.start(_watch_hangups, keeper)
        if until_stdin_closes:
            watchers.start_soon(_watch_stdin, stop)
        async with trio.open_nursery() as nursery:
            node: Node = await nursery.start(run)
            _log("listening", node=config.node_id, on=",".join(map(str, node.endpoints)))
            watchers.start_soon(freeze_survivors)
            watchers.start_soon(_load_the_rest, config, node)
            await stop.wait()
            await node.shutdown()
        watchers.cancel_scope.cancel()


async def _load_the_rest(config: Config, node: Node) -> None:
    """Load what only some requests need, in a thread, and after the first ones: the interpreter does one at a time."""
    if config.is_broker:
        from kraft.node.broker_node import BrokerNode

        assert isinstance(node, BrokerNode), node
        await node.serves.wait()
    await trio.sleep(_FIRST_REQUESTS_S)
    if config.is_broker:
        from kraft.broker.metadata.answers import load_decisions

        await trio.to_thread.run_sync(load_decisions)
    if config.is_controller:
        from kraft.controller.apis import load_decisions as load_those_of_controllers

        await trio.to_thread.run_sync(load_those_of_controllers)


def _application(config: Config, disk: DirectoryDisk) -> ApplicationFactory | None:
    """The application of a broker with data; None for that of a controller. It loads only where needed."""
    if not config.is_broker:
        return None
    from kraft.process.hosting import node_with_data

    return node_with_data(config, disk)


def _monitor(config: Config, clock: NodeClock, keeper: StoreKeeper | None) -> Monitor | None:
    """The metrics listener, if the configuration has one. Its libraries load only then."""
    listener = config.of(MetricsSettings).listener
    if listener is None:
        return None
    from kraft.node.metrics.monitor import Monitor

    host, port = listener
    if not ListenerSpec("METRICS", host, port).is_loopback:
        LOGGER.warning("metrics on=%s: other hosts can read metrics without a login", join_host_port(host, port))
    return Monitor(config, clock, None if keeper is None else keeper.facts)


async def _watch_signals(
    stop: trio.Event, everything: trio.CancelScope, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """The first signal starts a graceful shutdown, the second ends the process at once; two others change the log."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, MORE, LESS) as signals:
        task_status.started()
        async for number in signals:
            if number in (MORE, LESS):
                shift_level(number)
                continue
            if stop.is_set():
                everything.cancel()
            _log("stopping", on=signal.Signals(number).name)
            stop.set()


async def _watch_hangups(keeper: StoreKeeper, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Each SIGHUP makes the node read its certificates again."""
    with trio.open_signal_receiver(signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            keeper.ask()


def _log(event: str, **facts: object) -> None:
    text = " ".join(f"{key}={value}" for key, value in facts.items())
    LOGGER.info("%s %s", event, text, extra={"facts": {"event": event, **facts}})


async def _watch_stdin(stop: trio.Event) -> None:
    """Stop the node when standard input closes, which happens when the parent process ends for any reason."""
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
        while await stdin.receive_some(1024):
            pass
    stop.set()
