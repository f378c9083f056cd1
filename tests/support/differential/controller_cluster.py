"""Our controller with stub brokers, in one process: the records that steps of a story write, and the state after."""

from __future__ import annotations

from typing import Any, Protocol

from kraft.controller import QuorumController
from metadata_log.image import Partition
from metadata_log.records.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord
from metadata_log.serde import Message
from support.differential.controller_sides import InProcess, Side
from support.differential.controller_stories import Step, arrives, heartbeat, isr, latest, newest


class Stage(Protocol):
    """Where a controller runs."""

    @property
    def controller(self) -> QuorumController:
        """The active one."""

    @property
    def batches(self) -> list[list[tuple[int, Message]]]:
        """The batches that were decided and written, with the records' versions."""

    @property
    def end(self) -> int:
        """The offset of the next record."""

    def ask(self, request: Message, version: int) -> Message:
        """The answer to a request, once what it decides is committed."""

    def advance(self, ms: int) -> None:
        """Let time go on."""


class Cluster:
    """Our controller with stub brokers that have arrived. A witness is another controller that must answer the same."""

    def __init__(self, *brokers: int, stage: Stage | None = None, witness: Side | None = None, **settings: Any) -> None:
        self.controller = stage or InProcess(max_idle_interval_ms=0, **settings)
        self.side = Side(self.controller.ask)
        self.witness = witness
        for broker in brokers:
            self.do(*arrives(broker))

    def do(self, *steps: Step) -> dict[str, Any]:
        """The answer to the last of these steps."""
        answer: dict[str, Any] = {}
        for build, version in steps:
            # Built for both before either is asked: a request may say what a controller knows.
            asked = [(side, build(side)) for side in (self.side, self.witness) if side is not None]
            answer, *others = (side.ask(request, newest(request, version)) for side, request in asked)
            for other in others:
                assert answer == other, f"{answer}\n{other}"
        return answer

    def records(self, *steps: Step) -> list[Message]:
        """The records that these steps have written, batch by batch."""
        before = len(self.controller.batches)
        self.do(*steps)
        return self.since(before)

    def since(self, batch: int) -> list[Message]:
        """The records from a batch on."""
        return [record for one in self.controller.batches[batch:] for _, record in one]

    def beats(self, ms: int, *brokers: int) -> list[Message]:
        """Let time go on while these brokers beat every two seconds; what was written."""
        before = len(self.controller.batches)
        for _ in range(ms // 2000):
            self.controller.advance(2000)
            for broker in brokers:
                self.do(heartbeat(broker))
        return self.since(before)

    def change(self, broker: int, **fields: Any) -> BrokerRegistrationChangeRecord:
        """The BrokerRegistrationChangeRecord with these values for a broker."""
        epoch = self.side.epochs[broker]
        return BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=epoch, **fields)

    def partition(self, name: str, number: int = 0) -> Partition:
        """A partition as it is now."""
        return self.controller.controller.history.latest.topics[name].partitions[number]

    def moved(self, name: str, number: int = 0, **fields: Any) -> PartitionChangeRecord:
        """The record that changes a partition so."""
        return PartitionChangeRecord(topic_id=self.side.topics[name], partition_id=number, **fields)

    def leads(self, name: str, number: int = 0) -> tuple[int, tuple[int, ...]]:
        """The leader and the ISR of a partition."""
        partition = self.partition(name, number)
        return partition.leader, partition.isr

    def in_sync(self, name: str, *members: int, number: int = 0, recovery: int = 0) -> Step:
        """The leader of a partition reports its ISR, and knows all that the controller knows."""

        def build(side: Side) -> Message:
            now = self.partition(name, number)
            epochs = {"leader_epoch": now.leader_epoch, "partition_epoch": now.partition_epoch}
            return isr(name, members, by=now.leader, partition=number, recovery=recovery, **epochs)[0](side)

        return latest(build)

    def remember(self, name: str, later: str) -> None:
        """Know a topic by another name from now on, whether the topic is deleted or not."""
        for side in filter(None, (self.side, self.witness)):
            side.topics[later] = side.topics[name]
