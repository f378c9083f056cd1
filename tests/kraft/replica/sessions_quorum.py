"""A quorum with sessions of brokers."""

from __future__ import annotations

from typing import Any

from kraft.controller import QuorumController
from kraft.controller.server import ControllerServer
from kraft.process.hosting import host_controller
from metadata_log.image import Broker
from support.differential.controller_sides import registration
from support.kraft.replica_net import CLUSTER_ID, Net
from transport.protocol.errors import Error
from transport.protocol.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationResponse,
)

FAR = 10**6


class Quorum:
    """Three controllers, and stub brokers."""

    def __init__(self, **changes: Any) -> None:
        self.net = Net(3, application=host_controller, **changes)
        self.leader = self.net.elect()
        self.epochs: dict[int, int] = {}

    def controller(self, node: int) -> QuorumController:
        """The controller on a node."""
        hosted = self.net.processes[node].application
        assert isinstance(hosted, ControllerServer)
        return hosted.controller

    def broker(self, broker: int, node: int) -> Broker:
        """A broker as a node's committed image has it."""
        return self.controller(node).history.committed.brokers.by_id[broker]

    def arrive(self, *brokers: int) -> None:
        """Register these brokers, and have them unfenced."""
        for broker in brokers:
            answer = self.net.ask(self.leader, registration(broker, cluster_id=CLUSTER_ID))
            assert isinstance(answer, BrokerRegistrationResponse)
            assert answer.error_code == Error.NONE
            self.epochs[broker] = answer.broker_epoch
            assert not self.beat(broker).is_fenced

    def beat(self, broker: int, node: int = 0) -> BrokerHeartbeatResponse:
        """The answer of the leader, or of another, to a heartbeat."""
        request = BrokerHeartbeatRequest(
            broker_id=broker, broker_epoch=self.epochs[broker], current_metadata_offset=FAR, want_fence=False
        )
        answer = self.net.ask(node or self.leader, request)
        assert isinstance(answer, BrokerHeartbeatResponse)
        return answer

    def fenced(self, broker: int) -> set[bool]:
        """Whether a broker is fenced, by each node."""
        return {self.broker(broker, node).fenced for node in self.net.processes}

    def fail_over(self) -> None:
        """The leader dies, and another is elected."""
        self.net.kill(self.leader)
        self.leader = self.net.elect()
