"""The shell of a broker: its listeners open once the broker is unfenced (Kafka: `BrokerServer.startup`)."""

from __future__ import annotations

import logging
from typing import Final

import trio

from kraft.broker.server import Found, Unfenced
from kraft.calls import Call, LeaveCluster, Left, Returned
from kraft.committed import Noted
from kraft.node.node import BROKER_SHUTDOWN_BUDGET_MS, Node, NodeParts
from transport.wire import WireTransport


class BrokerNode(Node):
    """A running broker."""

    def __init__(self, parts: NodeParts) -> None:
        super().__init__(parts)
        self.serves = trio.Event()
        """Whether clients may connect."""

    def _on_told(self, told: Returned | Noted) -> None:
        match told:
            case Noted(Unfenced()):
                if isinstance(self._transport, WireTransport):
                    self._transport.open_listeners()
                self._log.write("serving", {"on": ",".join(map(str, self.endpoints))})
                self.serves.set()
            case Noted(Found(texts)):
                for text in texts:
                    self._log.write("found", {"what": repr(text)}, logging.WARNING)
            case _:
                super()._on_told(told)


_LEAVE: Final = 0
"""The id of the only call of the application."""


class CombinedNode(BrokerNode):
    """A running node with both roles (Kafka: `KafkaRaftServer.shutdown`)."""

    def __init__(self, parts: NodeParts) -> None:
        super().__init__(parts)
        self._has_left = trio.Event()
        self._is_ending = False

    @property
    def is_stopping(self) -> bool:
        """Whether the node shuts down or has ended."""
        return self._is_ending or super().is_stopping

    async def shutdown(self) -> None:
        """Shut down gracefully: first the broker hands over its leaderships, then the controller resigns."""
        self._is_ending = True
        self._inbox.put(Call(_LEAVE, LeaveCluster()))
        try:
            with trio.move_on_after(BROKER_SHUTDOWN_BUDGET_MS / 1000):
                await self._has_left.wait()
        except trio.Cancelled:
            self._stop.set()
            raise
        await super().shutdown()

    def _on_told(self, told: Returned | Noted) -> None:
        match told:
            case Noted(Left()):
                self._log.write("left", {"why": "controlled-shutdown"})
                self._has_left.set()
            case _:
                super()._on_told(told)
