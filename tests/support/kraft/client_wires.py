"""An engine of a client with its network: a test answers the requests one by one."""

from __future__ import annotations

from collections.abc import Sequence

from kraft.client.state.requests import Ask, Engine
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.inbound import Cause, Failed
from transport.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC_ID = Uuid(b"\x07" * 16)


def metadata(leaders: Sequence[int], epoch: int = 0, error: Error = Error.NONE) -> MetadataResponse:
    """An answer with brokers 1 and 2, and the leader of each partition."""
    partitions = [
        MetadataResponsePartition(partition_index=number, leader_id=leader, leader_epoch=epoch)
        for number, leader in enumerate(leaders)
    ]
    topic = MetadataResponseTopic(error_code=error, name="t", topic_id=TOPIC_ID, partitions=partitions)
    brokers = [MetadataResponseBroker(node_id=one, host="h", port=one) for one in (1, 2)]
    return MetadataResponse(brokers=brokers, topics=[topic])


class Wire:
    """An engine with its network: a test answers the requests one by one."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.now_ms = 1_000_000
        self.open: list[Ask] = []

    def due(self) -> Ask:
        """The next request, which stays open; time passes if it is due later."""
        if not self.open:
            self.open += self.engine.poll(self.now_ms)
        while not self.open:
            self.now_ms = max(self.now_ms, self.engine.deadline_ms())
            self.open += self.engine.poll(self.now_ms)
        return self.open[0]

    def next(self, expected: type[Message]) -> Ask:
        """The next request, which has this class."""
        ask = self.due()
        del self.open[0]
        assert isinstance(ask.message, expected), ask
        return ask

    def answer(self, expected: type[Message], outcome: Message | Cause) -> Ask:
        """Answer the next request, or let it fail."""
        ask = self.next(expected)
        found = Failed(ask.token, outcome, "h:1: lost") if isinstance(outcome, Cause) else outcome
        self.engine.on_outcome(ask.token, found, self.now_ms)
        return ask
