"""Our controller with stub brokers, in one process: what steps of a story write, and what they leave behind."""

from __future__ import annotations

from typing import Any

from controller_sides import InProcess, Side
from controller_stories import Step, arrives, heartbeat, told

from metadata_log.image import Partition
from metadata_log.records.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord
from metadata_log.serde import Message


class Cluster:
    """Our controller with stub brokers that have arrived."""

    def __init__(self, *brokers: int, **settings: Any) -> None:
        self.controller = InProcess(max_idle_interval_ms=0, **settings)
        self.side = Side(self.controller.ask)
        for broker in brokers:
            self.do(*arrives(broker))

    def do(self, *steps: Step) -> dict[str, Any]:
        """The answer to the last of these steps."""
        return told(self.side, steps)[-1]

    def records(self, *steps: Step) -> list[Message]:
        """What these steps have written, batch by batch."""
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
        """The record that says this of a broker."""
        epoch = self.side.epochs[broker]
        return BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=epoch, **fields)

    def partition(self, name: str, number: int = 0) -> Partition:
        """A partition as it is now."""
        return self.controller.controller.history.latest.topics[name].partitions[number]

    def moved(self, name: str, number: int = 0, **fields: Any) -> PartitionChangeRecord:
        """The record that changes a partition so."""
        return PartitionChangeRecord(topic_id=self.side.topics[name], partition_id=number, **fields)
