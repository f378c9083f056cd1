"""A simulated process that is a controller and a broker with data (`process.roles=broker,controller`): a crash ends
both, and both write to one disk.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from kraft import calls
from kraft.calls import LeaveCluster, Left
from kraft.committed import Noted
from kraft.process.hosting import host_combined, host_serving_broker
from kraft.process.parts import ApplicationFactory
from kraft.replica.interface import events as replica_events
from kraft.replica.rpc.api_versions import QUORUM_APIS
from kraft.sim.nodes.addresses import endpoints_of, endpoints_of_broker
from kraft.sim.nodes.data_broker import DataBroker
from kraft.sim.world.member_interface import Output
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.messages.fetch import FetchRequest

_LEAVE: Final = 1
"""The id of the only call."""


class CombinedNode(DataBroker):
    """A `DataBroker` that votes, too. A frame does not say to which listener it goes: its API decides, and in a Fetch
    the topic.
    """

    def __init__(self, node_id: int, **given: Any) -> None:
        super().__init__(node_id, **given)
        clients = endpoints_of_broker(node_id)
        replica = replace(self._options.replica, endpoints=endpoints_of(node_id), may_vote=True)
        self._options = replace(self._options, replica=replica, client_endpoints=clients)
        self._client_listener = clients.listeners[0].name

    def _host(self) -> ApplicationFactory:
        return host_combined(host_serving_broker(self.disk.files, self._serving))

    def _listener_of(self, api_key: int, message: Message) -> str:
        if self._is_for_broker(api_key, message):
            return self._client_listener
        return super()._listener_of(api_key, message)

    def _is_for_broker(self, api_key: int, message: Message) -> bool:
        if isinstance(message, FetchRequest):
            return all(topic.topic_id != Uuid.METADATA_TOPIC for topic in message.topics)
        broker = self.broker
        others = (*self.process.served.apis, *QUORUM_APIS)
        return broker is not None and api_key in broker.apis and api_key not in others

    def shut_down(self, now_ms: int) -> list[Output]:
        """Begin a graceful shutdown: the broker leaves the cluster first."""
        return self.step(calls.Call(_LEAVE, LeaveCluster()), now_ms)

    def _translate(self, outputs: list[replica_events.Output], now_ms: int) -> list[Output]:
        translated = super()._translate(outputs, now_ms)
        if any(isinstance(one, Noted) and isinstance(one.what, Left) for one in outputs):
            translated += super().shut_down(now_ms)
        return translated
