"""Answers of a controller that are made in steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from counted_turns import Quorum
from kraft.access.authorizer import AuthorizerSettings
from kraft.access.caller import Caller
from kraft.controller import ControllerResult
from kraft.controller.decision.request_context import AdminSettings
from metadata_log.serde import Message
from support.differential.controller_sides import InProcess, registration
from transport.protocol import messages as m
from transport.protocol.messages.create_topics import CreatableTopic

STRICT = AdminSettings(authorizer=AuthorizerSettings(frozenset(("User:admin",))))
ALICE = Caller("User", "alice", host="10.0.0.1")
BROKER = 101
NAMES = [f"topic-{number}" for number in range(500)]


class PerStep:
    """How often something is done between two pauses of a decision, at most, and all in all."""

    def __init__(self) -> None:
        self.now = self.most = self.total = 0

    def counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, counted."""

        def call(*args: Any, **named: Any) -> Any:
            self.now += 1
            self.total += 1
            return function(*args, **named)

        return call

    def run(self, decision: Iterator[object]) -> ControllerResult:
        """Do all the steps of a decision; `now` begins anew after each."""
        while True:
            try:
                next(decision)
            except StopIteration as end:
                result: ControllerResult = end.value
                self.most = max(self.most, self.now)
                return result
            self.most, self.now = max(self.most, self.now), 0


def with_topics(**settings: Any) -> InProcess:
    """A controller with one broker and the topics `NAMES`."""
    side = InProcess(**settings)
    side.ask(registration(BROKER), 4)
    epoch = side.controller.history.latest.brokers.by_id[BROKER].epoch
    side.ask(m.BrokerHeartbeatRequest(broker_id=BROKER, broker_epoch=epoch, current_metadata_offset=10**6), 1)
    made = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in NAMES]
    side.ask(m.CreateTopicsRequest(topics=made), 7)
    return side


def waiting_for_followers(quorum: Quorum, request: Message, count: int) -> list[int]:
    """So many requests with records that the followers do not get."""
    net = quorum.net
    net.cut |= {node for node in net.processes if node != quorum.leader}
    asked = [net.request(quorum.leader, request) for _ in range(count)]
    net.settle()
    assert not net.answers.keys() & set(asked)
    return asked


def allocation(quorum: Quorum) -> m.AllocateProducerIdsRequest:
    broker, epoch = next(iter(quorum.epochs.items()))
    return m.AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch)
