"""The interface of a driver, which chooses the actions in a `World`. The world notifies the driver of requests, fsyncs
and completed steps (Kafka: the `EventQueue` and `MessageRouter` of `RaftEventSimulationTest`).
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from kraft.sim.world.member_interface import WriteOutcome


class Exchange(Struct):
    """One request, its deliveries, and the answers to them."""

    sender: int
    number: int
    target: int
    kind: str
    timeout_ms: int
    request_id: int
    message: object
    answers: list[object | None] = []
    """The answer to each delivery; None while there is no answer."""
    is_indirect: bool = False
    """Whether the request goes to a bootstrap address."""
    is_of_quorum: bool = True
    """Whether a core sends the request, and not an application, such as a broker in the process of a voter."""
    asked_in: int = -1
    """The epoch in which the sender was a follower at the time of the request; -1 if it was not a follower."""
    is_settled: bool = False
    """Whether the sender has received the reply or the failure of the request."""


class Driver:
    """Receives notifications of possible further actions. No method may perform an action within its call.

    This base class ignores all notifications: only recorded actions happen.
    """

    on_done: Callable[[int, bytes, WriteOutcome], None] | None = None
    """Called with a node, a record, and what a client has heard of it; most runs do not ask."""

    def on_asked(self, exchange: Exchange) -> None:
        """A node has sent a request."""

    def on_answered(self, exchange: Exchange, copy: int) -> None:
        """A node has answered a delivery."""

    def on_abandoned(self, exchange: Exchange) -> None:
        """The target is not running, or has crashed during the request."""

    def on_flush(self, node_id: int, number: int) -> None:
        """An fsync has begun."""

    def on_administered(self, node_id: int, request_id: int) -> None:
        """A client has received its response."""

    def on_stepped(self, node_id: int) -> None:
        """A node has completed a step; its next deadline may have changed."""

    def on_busy(self, node_id: int, work_ms: int) -> None:
        """A node is busy for this time and takes no events meanwhile; an `Act` completes its step."""

    def on_died(self, node_id: int) -> None:
        """A node has crashed within a step, or cannot start with its disk."""
