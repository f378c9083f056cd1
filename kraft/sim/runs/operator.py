"""What the simulated operator does for nodes with damaged disks, by the rules of `kraft.sim.world.disk_losses`;
and what a kind of run adds to the submissions, such as voter changes or the requests of brokers.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, Protocol

from kraft.sim.runs.event_queue import EventQueue
from kraft.sim.world.driver import Exchange
from kraft.sim.world.world import World


class Work(Protocol):
    """A workload for a quorum in addition to submissions."""

    pauses_ms: tuple[int, ...]
    """The mean time between faults in this phase; one of these is drawn."""
    writes_ms: tuple[int, ...]
    """The mean time between submissions in this phase; one of these is drawn."""

    def begin(self, simulator: Any) -> None:
        """All nodes are about to start."""

    def end(self) -> None:
        """All faults are about to end: the workload stops, so that the quorum can settle."""

    def on_asked(self, exchange: Exchange) -> None:
        """A node has sent a request."""

    def on_administered(self, request_id: int) -> None:
        """A client has received its response."""

    def on_died(self, node_id: int) -> None:
        """A node has crashed."""

    def bears_loss(self, node_id: int) -> bool:
        """Whether the quorum can go on if the disk of a node is damaged now, which then happens."""


AGAIN_MS: Final = 100
"""The time until the next attempt to start a node, or to stop it, in ms."""


class Operated(Protocol):
    """The run in which the operator acts."""

    world: World
    queue: EventQueue

    def leaders(self) -> list[int]:
        """The nodes in the leader state."""

    def resign(self, node_id: int) -> None:
        """Make a leader resign."""

    def crash(self, node_id: int, down_ms: int) -> None:
        """Crash a node and start it again after a while."""


def replace_disk(run: Operated, node_id: int) -> None:
    """Stop a node with a damaged disk as soon as the other voters can do without it."""
    world, losses = run.world, run.world.disk_losses
    if not losses.is_damaged(node_id) or not world.hosts[node_id].is_running:
        return
    if losses.is_of_dynamic_quorum and not losses.may_stop(node_id, world.running(), world.invariants):
        run.queue.schedule(AGAIN_MS, partial(replace_disk, run, node_id))
        return
    run.crash(node_id, 1)


def let_epoch_rise(run: Operated, node_id: int) -> None:
    """Request the resignation of every leader with an earlier epoch than the restarting node has seen."""
    election = run.world.invariants.observed(node_id).election
    for leader_id in run.leaders():
        view = run.world.hosts[leader_id].view
        if election is not None and view is not None and view.epoch < election.epoch:
            run.resign(leader_id)
