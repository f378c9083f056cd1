"""A quorum whose turns are counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft.controller import QuorumController
from kraft.controller.server import ControllerServer
from kraft.process.hosting import host_controller
from kraft.process.parts import Input
from metadata_log.image import memberships
from metadata_log.records.batch import scan
from support.differential.controller_sides import registration
from support.kraft.replica_net import CLUSTER_ID, Net
from transport.protocol import messages as m
from transport.protocol.errors import Error
from transport.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic

FAR = 10**6
GONE, LEADING, OTHER = 101, 102, 103
PARTITIONS = 6_000


class Counted:
    """How often something is done in one step of a replica, at most."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.total = 0

    def counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, counted."""

        def call(*args: Any, **named: Any) -> Any:
            self.now += 1
            self.total += 1
            return function(*args, **named)

        return call

    def begin(self) -> None:
        """Forget what was before."""
        self.now = self.most = self.total = 0

    def step_over(self) -> None:
        """A step of a replica has ended."""
        self.most = max(self.most, self.now)
        self.now = 0


class CountedNet(Net):
    """A net that reports every step of a replica to the counters."""

    def __init__(self, *counters: Counted, **changes: Any) -> None:
        self.counters = counters
        super().__init__(3, application=host_controller, **changes)

    def until_ms(self, condition: Callable[[], bool], most_ms: int = 10_000) -> None:
        """Let time go on by single milliseconds until something is so."""
        for _ in range(most_ms):
            if condition():
                return
            self.advance(1)
        raise AssertionError("it never happens")

    def step(self, node: int, event: Input) -> None:
        super().step(node, event)
        for counter in self.counters:
            counter.step_over()


class Quorum:
    """Three controllers, brokers that send heartbeats on command, and topics with all replicas on three brokers."""

    def __init__(self, *counters: Counted, **settings: Any) -> None:
        self.net = CountedNet(*counters, **settings)
        self.leader = self.net.elect()
        self.epochs: dict[int, int] = {}
        self.counters = counters
        for broker in (GONE, LEADING, OTHER):
            answer = self.net.ask(self.leader, registration(broker, cluster_id=CLUSTER_ID))
            assert isinstance(answer, m.BrokerRegistrationResponse)
            self.epochs[broker] = answer.broker_epoch
            self.net.ask(self.leader, self.heartbeat(broker))

    def host(self, node: int = 0) -> ControllerServer:
        """The host of a node's controller, by default the leader's."""
        hosted = self.net.processes[node or self.leader].application
        assert isinstance(hosted, ControllerServer)
        return hosted

    def controller(self, node: int = 0) -> QuorumController:
        """The controller of a node, by default of the leader."""
        return self.host(node).controller

    def heartbeat(self, broker: int, **changes: Any) -> m.BrokerHeartbeatRequest:
        """The heartbeat of a broker."""
        return m.BrokerHeartbeatRequest(
            broker_id=broker,
            broker_epoch=self.epochs[broker],
            **({"current_metadata_offset": FAR, "want_fence": False} | changes),
        )

    def create(self, *names: str, partitions: int = PARTITIONS) -> None:
        """Topics that `GONE` leads."""
        placed = [
            CreatableReplicaAssignment(partition_index=at, broker_ids=[GONE, LEADING, OTHER])
            for at in range(partitions)
        ]
        for name in names:
            topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=placed)
            answer = self.net.ask(self.leader, m.CreateTopicsRequest(topics=[topic]))
            assert isinstance(answer, m.CreateTopicsResponse)
            assert [one.error_code for one in answer.topics] == [Error.NONE]
        for counter in self.counters:
            counter.begin()

    def members(self, broker: int, node: int = 0) -> int:
        """In how many ISRs a broker is, as a node's committed image has it."""
        return sum(1 for _ in memberships(self.controller(node).history.committed.topics, broker))

    def is_fenced(self, broker: int, node: int = 0) -> bool:
        """Whether a broker is fenced, as a node's committed image has it."""
        return self.controller(node).history.committed.brokers.by_id[broker].fenced

    def beats_until(self, condition: Callable[[], bool]) -> None:
        """Let time go on while all brokers but `GONE` beat every two seconds."""
        for at_ms in range(20_000):
            if condition():
                return
            if at_ms % 2000 == 0:
                for broker in (LEADING, OTHER):
                    self.net.request(self.leader, self.heartbeat(broker))
            self.net.advance(1)
        raise AssertionError("it never happens")

    @property
    def is_busy(self) -> bool:
        """Whether the leader is in the middle of a decision."""
        return self.host()._decisions.is_busy

    def batches(self, node: int = 0) -> list[int]:
        """How many records each batch of a node's log holds."""
        found = scan(self.net.log_of(node or self.leader))
        return [batch.next_offset - batch.base_offset for batch in found if not batch.is_control]
