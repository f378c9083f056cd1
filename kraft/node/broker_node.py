"""The shell of a broker: its listeners open once the broker is unfenced (Kafka: `BrokerServer.startup`)."""

from __future__ import annotations

import logging

from kraft.node.node import Node
from kraft.replica.hosts.broker_host import Found, Unfenced
from kraft.replica.interface.events import Noted, Returned
from transport.wire import WireTransport


class BrokerNode(Node):
    """A running broker."""

    def _on_told(self, told: Returned | Noted) -> None:
        match told:
            case Noted(Unfenced()):
                if isinstance(self._transport, WireTransport):
                    self._transport.open_listeners()
                self._log.write("serving", {"on": ",".join(map(str, self.endpoints))})
            case Noted(Found(texts)):
                for text in texts:
                    self._log.write("found", {"what": repr(text)}, logging.WARNING)
            case _:
                super()._on_told(told)
