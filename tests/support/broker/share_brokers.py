"""Three brokers with the topic of share coordinators, in virtual time, and what stands in its partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kraft.config.share_coordinator_settings import ShareCoordinatorConfig
from kraft.coordinators.shares.persister import PersistedWrite, ShareKey, StateBatch
from metadata_log.records.batch import scan
from metadata_log.records.coordinator import SHARE_GROUP_STATE, CoordinatorRecord, decode_pair
from metadata_log.records.record import records
from metadata_log.types import Uuid
from support.broker.coordinated_brokers import Coordinated
from support.broker.request_brokers import Brokers, NewTopic, topic_id
from transport.protocol.errors import Error

STATES: Final = topic_id(20)
WORK: Final = topic_id(21)
"""A topic with thirty partitions, of which groups consume the records."""


def share_brokers(
    states: tuple[tuple[int, ...], ...] = ((101, 102), (102, 103), (103, 101)), **settings: Any
) -> Coordinated:
    """Brokers with these replicas of `__share_group_state`; the settings are those of the share coordinator."""
    return Coordinated(
        more=(
            NewTopic("__share_group_state", STATES, states, {"cleanup.policy": "delete", "retention.ms": "-1"}),
            NewTopic("work", WORK, ((101,), (102,), (103,)) * 10),
        ),
        settings={"share_states": ShareCoordinatorConfig(**settings)},
    )


def key(partition: int = 0, group: str = "g", topic: Uuid = WORK) -> ShareKey:
    return ShareKey(group, topic, partition)


def change(
    *batches: tuple[int, int, int, int], start: int = 0, state_epoch: int = 0, leader_epoch: int = 0, count: int = -1
) -> PersistedWrite:
    """A Write with state batches: first, last, state, delivery count."""
    return PersistedWrite(state_epoch, leader_epoch, start, count, tuple(StateBatch(*one) for one in batches))


class Caller:
    """Calls the persister of one broker, and keeps the answers in their order."""

    def __init__(self, cluster: Coordinated, broker: int = 101) -> None:
        self.cluster = cluster
        self.persister = cluster.brokers.requests[broker].persister
        self.answers: list[Any] = []

    def then(self, result: Any, now_ms: int) -> None:
        assert now_ms <= self.cluster.brokers.now_ms
        self.answers.append(result)

    @property
    def now_ms(self) -> int:
        return self.cluster.brokers.now_ms

    def ask(self, call: Callable[[], None]) -> Any:
        """The answer to one call, once everything has settled."""
        before = len(self.answers)
        call()
        assert len(self.answers) == before, "an answer comes in a later turn"
        self.settle(before + 1)
        assert len(self.answers) == before + 1
        return self.answers[-1]

    def settle(self, count: int) -> None:
        """Let turns pass until there are so many answers: a turn in which only this broker calls itself moves nothing
        else.
        """
        for _ in range(20):
            self.cluster.settle()
            if len(self.answers) >= count:
                return

    def initialize(self, of: ShareKey, state_epoch: int = 0, start_offset: int = 0) -> Error:
        found: Error = self.ask(
            lambda: self.persister.initialize(of, state_epoch, start_offset, self.now_ms, self.then)
        )
        return found

    def read(self, of: ShareKey, leader_epoch: int = 0) -> Any:
        return self.ask(lambda: self.persister.read(of, leader_epoch, self.now_ms, self.then))

    def write(self, of: ShareKey, written: PersistedWrite) -> Error:
        found: Error = self.ask(lambda: self.persister.write(of, written, self.now_ms, self.then))
        return found

    def summary(self, of: ShareKey, leader_epoch: int = -1) -> Any:
        return self.ask(lambda: self.persister.summary(of, leader_epoch, self.now_ms, self.then))

    def delete(self, of: ShareKey) -> Error:
        found: Error = self.ask(lambda: self.persister.delete(of, self.now_ms, self.then))
        return found


def stored(brokers: Brokers, broker: int, partition: int) -> list[tuple[int, CoordinatorRecord]]:
    """The records of a partition of `__share_group_state` at a broker, with their offsets."""
    part = brokers.part(broker, (STATES, partition))
    log = part.log
    if log.start_offset == log.end_offset:
        return []
    data = brokers.managers[broker].hosting.read(part, log.start_offset, 1 << 24)
    assert isinstance(data, bytes)
    found = []
    for batch in scan(data):
        for record in records(batch):
            pair = decode_pair(SHARE_GROUP_STATE, record.key or b"", record.value)
            assert pair is not None
            if record.offset >= log.start_offset:
                found.append((record.offset, pair))
    return found
