"""Sessions of brokers on a quorum of three, in virtual time: registration, silence, and a change of leader."""

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
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from transport.protocol.messages.create_topics import CreatableTopic

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


def test_an_uncommitted_registration_is_forgotten() -> None:
    """A leader that is cut off takes a registration, which no other node ever sees."""
    quorum = Quorum()
    quorum.arrive(101)
    old = quorum.leader
    quorum.net.cut = {old}
    asked = quorum.net.request(old, registration(102, cluster_id=CLUSTER_ID))
    quorum.net.settle()
    assert asked not in quorum.net.answers
    quorum.leader = quorum.net.elect()
    quorum.net.cut = set()
    quorum.net.elect()
    refused = quorum.net.answers[asked]
    assert isinstance(refused, BrokerRegistrationResponse)
    assert refused.error_code == Error.NOT_CONTROLLER
    assert all(102 not in quorum.controller(node).history.latest.brokers.by_id for node in quorum.net.processes)
    quorum.arrive(102)


def test_a_full_append_queue_refuses_requests_and_fences_no_broker() -> None:
    """The queue of a leader that is cut off fills up; further requests are answered as by Kafka with a full queue."""
    quorum = Quorum(max_waiting=3)
    quorum.arrive(101)
    leader = quorum.leader
    quorum.net.cut = {leader}

    def create(name: str) -> int:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        return quorum.net.request(leader, CreateTopicsRequest(topics=[topic]))

    waiting = [create(f"t{number}") for number in range(3)]
    refused = create("one-too-many")
    beat = BrokerHeartbeatRequest(broker_id=101, broker_epoch=quorum.epochs[101], want_fence=True)
    asked = quorum.net.request(leader, beat)
    listed = quorum.net.request(leader, DescribeClusterRequest(endpoint_type=2))
    before = quorum.net.processes[leader].replica.core.log.end_offset
    quorum.net.settle()
    assert not set(waiting) & set(quorum.net.answers)
    full = quorum.net.answers[refused]
    assert isinstance(full, CreateTopicsResponse)
    assert [Error(one.error_code) for one in full.topics] == [Error.REQUEST_TIMED_OUT]
    heard = quorum.net.answers[asked]
    assert isinstance(heard, BrokerHeartbeatResponse)
    assert heard.error_code == Error.REQUEST_TIMED_OUT
    assert isinstance(quorum.net.answers[listed], DescribeClusterResponse)
    assert "one-too-many" not in quorum.controller(leader).history.latest.topics
    assert not quorum.controller(leader).history.latest.brokers.by_id[101].fenced
    assert quorum.net.processes[leader].replica.core.log.end_offset == before + 6
