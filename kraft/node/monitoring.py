"""The interface between a node and its monitor, if it has one: the node's reports, and what the monitor reads."""

from __future__ import annotations

from typing import Protocol

import trio

from kraft.node.logging import NodeLog
from kraft.process.process import Process
from kraft.quorum.core import RaftCore
from kraft.replica.interface.events import Trace
from metadata_log.disk import DirectoryDisk
from transport.interface import Endpoint, Transport


class TurnMeter(Protocol):
    """Takes the times of turns, in seconds of Trio's clock."""

    def event(self, waited_s: float, took_s: float) -> None:
        """Take the time of an event, handled `waited_s` after its turn began; called for one in `MEASURED_EVENTS`."""

    def turn(self, took_s: float, now_s: float, events: int) -> None:
        """Take the time of a turn that has ended; `events` were handled since the start of the node."""


class NodeMeter(TurnMeter, Protocol):
    """Takes what happens to a replica."""

    def log_end(self, core: RaftCore) -> None:
        """The end of the log may have changed."""

    def trace(self, trace: Trace) -> None:
        """An event for the log of the node."""


class MonitoredNode(Protocol):
    """A running node, as its monitor reads it."""

    @property
    def is_stopping(self) -> bool:
        """Whether the node shuts down or has ended."""

    @property
    def overdue_ms(self) -> int:
        """How long ago the owner should have woken up, in milliseconds; 0 or less if it is not late."""


class NodeMonitor(Protocol):
    """Serves what a node reports."""

    @property
    def meter(self) -> NodeMeter:
        """Takes what the node counts while it runs."""

    def measured(self, disk: DirectoryDisk) -> DirectoryDisk:
        """The same disk with measured fsyncs."""

    async def run(self, log: NodeLog, task_status: trio.TaskStatus[Endpoint | None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; `task_status` gets the bound address, if there is one."""

    def attach(self, node: MonitoredNode, process: Process, transport: Transport) -> None:
        """Take the parts of the node, which has recovered its log."""
