"""What a kind of run adds to the submissions of a simulation, such as voter changes or the requests of brokers."""

from __future__ import annotations

from typing import Any, Protocol

from kraft.sim.world.driver import Exchange


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
