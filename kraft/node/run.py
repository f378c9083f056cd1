"""One node from its configuration: listeners, log directory, replica, tasks (Kafka: `KafkaRaftManager`)."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import trio
from msgspec.structs import replace

from kraft.access.authorizer import AclOperation
from kraft.config import Config
from kraft.controller.decision.request_context import AdminSettings
from kraft.limits import UNANSWERED_REQUESTS
from kraft.node.background import Flusher
from kraft.node.broker import close_data, leave_cleanly, locked_directories
from kraft.node.clock import NodeClock, counter
from kraft.node.connection_gate import ConnectionGate
from kraft.node.errors import NodeError
from kraft.node.inbound import Inbound
from kraft.node.inbox import Inbox
from kraft.node.logging import NodeLog
from kraft.node.monitoring import NodeMonitor
from kraft.node.node import Node, NodeParts
from kraft.node.options import listeners_of, needs_own_name, process_options
from kraft.node.turns import start_in_turns
from kraft.node.users import NodeUsers
from kraft.process.hosting import broker_of
from kraft.process.opening import opening_process
from kraft.process.parts import Application, ApplicationFactory, ControllerAndBroker, Input, WithMetadata
from kraft.process.process import Process
from kraft.state_machine.raw_log import RawLog
from metadata_log.disk import DirectoryDisk
from metadata_log.log.log_dir import check_unlocked
from transport.addresses import name_of_this_machine
from transport.causes import one_cause
from transport.interface import Endpoint, Transport
from transport.tcp import TcpTransport
from transport.wire import WireTransport

if TYPE_CHECKING:
    from kraft.broker import BrokerOptions
    from kraft.broker.server import BrokerServer
    from kraft.node.loggers import LoggerRequests
    from kraft.node.stores import StoreKeeper
    from kraft.quorum.recorded import RecordedCore


async def run_node(
    config: Config,
    *,
    transport: Transport,
    disk: DirectoryDisk,
    rng: Random,
    clock: NodeClock | None = None,
    application: ApplicationFactory | None = None,
    users: NodeUsers | None = None,
    stores: StoreKeeper | None = None,
    inline_flush: bool = False,
    monitor: NodeMonitor | None = None,
    serves_loggers: bool = False,
    survives_failures: bool = False,
    protocol_file: str | None = None,
    task_status: trio.TaskStatus[Node] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run one node until `Node.shutdown` or cancellation; `task_status` gets the `Node` once it listens.

    Raises the error that stops the node: `OSError` (a port in use, a failed disk), `MetadataLogError` (an unusable
    directory, a damaged log), `AssertionError` (a broken invariant), `NodeError` (python -O). `inline_flush` flushes
    without a thread, for memory disks. `users` get the metadata of the node, for the logins of `transport`; `stores`
    keep the certificates of `transport`. The default `application` is the controller or broker of the configuration.
    `monitor` serves metrics and health on a listener of its own. With `serves_loggers` requests to a controller
    or broker show and change the log levels of the whole process. With `survives_failures` an unexpected exception in
    one request is an error for its client and a log line, where that is safe, and not the end of the node. The steps of
    the protocol go to `protocol_file` (`kraft.node.protocol_steps`).
    """
    if not __debug__:
        raise NodeError("a node does not run under python -O: its assertions keep a bug from corrupting the log")
    clock = NodeClock() if clock is None else clock
    # Whoever may change the log levels of the process owns it.
    log = NodeLog(config.node_id, clock.now_ms, is_embedded=not serves_loggers)
    own_name = await _own_name(log) if needs_own_name(config) else ""
    inbox: Inbox[Input] = Inbox()
    inbox.loop = trio.lowlevel.current_trio_token()
    flusher = Flusher(inbox.events, transport.wake)
    inbound = Inbound(inbox, transport, log, limit=UNANSWERED_REQUESTS)
    with one_cause(), locked_directories(config, disk), _recording(protocol_file, log) as make_core:
        async with trio.open_nursery() as network:
            if users is not None:
                await network.start(users.keep_reading)
            # First, so that the transport closes its sockets in any case. Requests that arrive during the start wait in
            # the inbox.
            await network.start(partial(transport.run, inbound.deliver, batch_delivered=inbox.batch_delivered))
            if monitor is not None:
                disk = monitor.measured(disk)
                await network.start(monitor.run, log)
            endpoints = _listen(transport, config, disk)
            if isinstance(transport, TcpTransport):
                _warn_of_exposure(config, log)
            options = process_options(
                config,
                endpoints,
                inline_flush=inline_flush,
                broker=_broker_options(config, disk),
                own_name=own_name,
                survives_failures=survives_failures,
            )
            if make_core is not None:
                options = replace(options, replica=replace(options.replica, make_core=make_core))
            opening = opening_process(
                options=options,
                disk=disk,
                rng=rng,
                application=application or _default_application(config, disk),
                now_ms=clock.now_ms(),
            )
            process, outputs = await start_in_turns(opening, log)
            hosted = process.application
            image = hosted.committed_image if isinstance(hosted, WithMetadata) else None
            if serves_loggers:
                inbound.loggers = _logger_requests(config, hosted, log)
            if users is not None and image is not None:
                users.image = image
            if stores is not None and isinstance(transport, WireTransport):
                network.start_soon(stores.run, transport, log, image)
            if image is not None and isinstance(transport, WireTransport):
                transport.gate = ConnectionGate(config, clock, transport, image)
            for finding in process.replica.log.recovered:
                log.write("recovered", {"what": repr(finding)}, logging.WARNING)
            parts = NodeParts(
                process=process,
                clock=clock,
                inbox=inbox,
                inbound=inbound,
                transport=transport,
                flusher=flusher,
                log=log,
                endpoints=endpoints,
                meter=None if monitor is None else monitor.meter,
            )
            node = _node_of(config, hosted)(parts)
            if monitor is not None:
                monitor.attach(node, process, transport)
            data = None if isinstance(hosted, RawLog) or not config.is_broker else broker_of(hosted)
            if data is not None:
                data.requests.times.clock = counter()
            with _closing(process, log), _checkpoints(None if inline_flush else data, disk):
                await node.run(outputs, task_status)
                if config.is_broker:
                    close_data(process)
            if config.is_broker:
                leave_cleanly(process, config, disk)
            network.cancel_scope.cancel()
    log.write("stopped", {})


@contextmanager
def _recording(path: str | None, log: NodeLog) -> Iterator[Callable[..., RecordedCore] | None]:
    """The maker of a core that tells its steps to a file; None without one."""
    if path is None:
        yield None
        return
    from kraft.node.protocol_steps import protocol_steps

    with protocol_steps(path, log) as make_core:
        yield make_core


# The roles of the configuration decide what these functions import: the modules of a controller would be a large part
# of the start of a broker, and those of a broker of the start of a controller.


def _broker_options(config: Config, disk: DirectoryDisk) -> BrokerOptions | None:
    """The options of a broker; None for a node of another kind."""
    if not config.is_broker:
        return None
    from kraft.broker.opening import broker_options

    return broker_options(config, disk)


def _default_application(config: Config, disk: DirectoryDisk) -> ApplicationFactory:
    """The controller, the broker, or both, as the configuration says."""
    if config.is_broker:
        from kraft.process.hosting import node_with_data

        return node_with_data(config, disk)
    from kraft.process.hosting import host_controller

    return host_controller


def _node_of(config: Config, application: Application | RawLog) -> type[Node]:
    """The class of the node that hosts an application."""
    if config.is_broker:
        from kraft.broker.registered import RegisteredBroker
        from kraft.node.broker_node import BrokerNode, CombinedNode

        match application:
            case RegisteredBroker():
                return BrokerNode
            case ControllerAndBroker():
                return CombinedNode
    from kraft.node.state_machine_node import StateMachineNode
    from kraft.state_machine.server import StateMachineServer

    return StateMachineNode if isinstance(application, StateMachineServer) else Node


def _logger_requests(config: Config, application: Application | RawLog, log: NodeLog) -> LoggerRequests | None:
    """The requests about loggers at a controller or a broker; None at any other node."""
    # Loaded here, because only served nodes answer them.
    from kraft.node.loggers import LoggerRequests

    if config.is_broker:
        from kraft.broker.server import BrokerServer

        if isinstance(application, BrokerServer):
            return LoggerRequests(config.node_id, application, log, AclOperation.ALTER_CONFIGS)
    from kraft.controller.server import ControllerServer

    if isinstance(application, ControllerServer):
        return LoggerRequests(config.node_id, application.controller, log)
    return None


def _listen(transport: Transport, config: Config, disk: DirectoryDisk) -> tuple[Endpoint, ...]:
    """Listen at all listeners. An address in use is mostly that of the same node: the lock of its directory tells."""
    try:
        return tuple(transport.listen(listener) for listener in listeners_of(config))
    except OSError as failed:
        if failed.errno == errno.EADDRINUSE:
            check_unlocked(disk, config.metadata_log_dir)
        raise


async def _own_name(log: NodeLog) -> str:
    """The advertised host of a listener on all addresses (Kafka: `ListenerInfo.withWildcardHostnamesResolved`)."""
    name = await name_of_this_machine()
    log.write("advertised", {"host": name}, logging.WARNING if name.startswith("localhost") else logging.INFO)
    return name


def _warn_of_exposure(config: Config, log: NodeLog) -> None:
    """Log a warning at the start of a controller without an authorizer that other hosts can reach."""
    authenticated = {name for name, tls in config.tls.listeners if tls.client_auth == "required"}
    authenticated |= config.sasl.listeners.keys()
    authenticated |= config.client_listeners
    exposed = [one for one in config.listeners if not one.is_loopback and one.name not in authenticated]
    if exposed and config.is_controller and config.of(AdminSettings).authorizer is None:
        facts: dict[str, object] = {
            "listeners": ",".join(map(str, exposed)),
            "why": repr("without authorizer.class.name each host that reaches a listener can change the cluster"),
        }
        log.write("unprotected", facts, logging.WARNING)


def _checkpoints(broker: BrokerServer | None, disk: DirectoryDisk) -> AbstractContextManager[None]:
    """A thread that writes the checkpoint files of a broker with data, until the end of the block."""
    if broker is None:
        return nullcontext()
    from kraft.node.checkpoint_thread import checkpoints_in_thread

    return checkpoints_in_thread(broker, disk)


@contextmanager
def _closing(process: Process, log: NodeLog) -> Iterator[None]:
    """Close the process. After a failure of the disk or of an invariant, only release the directory: write nothing."""
    try:
        yield
    except BaseException as stop:
        failed = stop.subgroup(Exception) if isinstance(stop, BaseExceptionGroup) else stop
        if isinstance(failed, Exception):
            log.write("failed", {"cause": repr(failed)}, logging.ERROR)
            process.abandon()
        else:
            process.close()
        raise
    process.close()
