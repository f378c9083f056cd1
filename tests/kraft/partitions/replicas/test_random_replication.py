"""Random runs of three brokers: what is committed stays, replicas agree below the watermark, and all agree at the end.

Brokers are killed, cut off and started again, leaders are elected from the ISR, and fetches, answers of the controller
and time come in any order. Each failure names its seed.
"""

from __future__ import annotations

from random import Random

import pytest

from kraft.partitions.log.outcomes import Appended
from metadata_log.records import metadata as records
from metadata_log.records.batch import scan
from metadata_log.records.record import records as records_of
from support.broker.data_brokers import KEY, TOPIC, append_to, batch, part_of
from support.broker.wired_brokers import Wired

NO_LEADER = -1


class RandomRun:
    """One run. `committed` is what a consumer or a producer with acks=all has seen: the value at each offset."""

    def __init__(self, seed: int, *, loses_power: bool) -> None:
        self.rng = Random(seed)
        self.loses_power = loses_power
        self.wired = Wired(3, {"flush.messages": "1"} if loses_power else {})
        self.committed: dict[int, bytes | None] = {}
        self.count = 0

    def run(self, steps: int) -> None:
        actions = (
            *[self.append] * 6,
            *[self.fetch] * 12,
            *[self.answer] * 3,
            *[self.pass_time] * 2,
            self.end,
            self.begin,
            self.cut_off,
            self.return_,
            self.move_leader,
        )
        for _ in range(steps):
            self.rng.choice(actions)()
            self.check()
        self.calm()

    # ------------------------------------------------------------------------------------------------------- actions

    def reachable(self) -> list[int]:
        return [one for one in self.wired.managers if one not in self.wired.silent]

    def append(self) -> None:
        leader = self.rng.choice(sorted(self.wired.managers) or [0])
        if leader in self.wired.managers and part_of(self.wired.managers[leader]).is_leader:
            values = [b"%d at %d" % (self.count + at, leader) for at in range(self.rng.randrange(1, 4))]
            self.count += len(values)
            acks = self.rng.choice((-1, 1))
            found = append_to(self.wired.managers[leader], KEY, batch(*values), acks=acks, now_ms=self.wired.now_ms)
            assert isinstance(found, Appended), found

    def fetch(self) -> None:
        if self.reachable():
            self.wired.fetch(self.rng.choice(self.reachable()))

    def answer(self) -> None:
        self.wired.answer_proposals()

    def pass_time(self) -> None:
        self.wired.now_ms += self.rng.choice((1, 100, 1500, 20_000))
        for one in self.reachable():
            self.wired.managers[one].shrink(self.wired.now_ms)

    def end(self) -> None:
        """A broker ends; with power failures, without what its disk has not made durable."""
        if self.wired.managers:
            one = self.rng.choice(sorted(self.wired.managers))
            (self.wired.cut_power if self.loses_power else self.wired.kill)(one)
            self.wired.silent.discard(one)
            self.fence(one)

    def begin(self) -> None:
        ended = [one for one in (1, 2, 3) if one not in self.wired.managers]
        if ended:
            one = self.rng.choice(ended)
            self.wired.restart(one)
            if self.wired.partition.leader == NO_LEADER and one in self.wired.isr():
                self.elect(one)

    def cut_off(self) -> None:
        """A broker hears nothing any more, and the controller fences the broker; the broker goes on on its own."""
        if self.reachable():
            one = self.rng.choice(self.reachable())
            self.wired.silent.add(one)
            self.fence(one)

    def return_(self) -> None:
        if self.wired.silent:
            one = self.rng.choice(sorted(self.wired.silent))
            self.wired.silent.discard(one)
            self.wired.commit(
                records.BrokerRegistrationChangeRecord(broker_id=one, broker_epoch=self.wired.epochs[one], fenced=-1)
            )
            if self.wired.partition.leader == NO_LEADER and one in self.wired.isr():
                self.elect(one)

    def move_leader(self) -> None:
        able = [one for one in self.wired.isr() if one in self.reachable()]
        if able:
            self.elect(self.rng.choice(able))

    def fence(self, gone: int) -> None:
        """The controller removes a broker from the ISR, except the last member, and elects another leader."""
        left = tuple(one for one in self.wired.isr() if one != gone)
        able = [one for one in left if one in self.reachable()]
        change = records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=left or None)
        if self.wired.partition.leader == gone:
            leader = self.rng.choice(able) if able else NO_LEADER
            change = records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=left or None, leader=leader)
        self.wired.commit(self.change_of_fence(gone, 1), change)

    def change_of_fence(self, broker_id: int, fenced: int) -> records.BrokerRegistrationChangeRecord:
        epoch = self.wired.epochs[broker_id]
        return records.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=fenced)

    def elect(self, leader: int) -> None:
        self.wired.commit(records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=leader))

    def calm(self) -> None:
        """Everything works again: all replicas become equal, and everything is committed."""
        for one in sorted(self.wired.silent):
            self.wired.commit(
                records.BrokerRegistrationChangeRecord(broker_id=one, broker_epoch=self.wired.epochs[one], fenced=-1)
            )
        self.wired.silent.clear()
        for one in (1, 2, 3):
            if one not in self.wired.managers:
                self.wired.restart(one)
        self.wired.commit()
        if self.wired.partition.leader == NO_LEADER:
            self.elect(self.wired.isr()[0])
        for _ in range(40):
            self.wired.run(1000)
            self.check()
        # The leader began its epoch without a record, and the followers learn an epoch from its first record only.
        self.wired.append(self.wired.partition.leader, b"last")
        self.wired.run(500)
        self.check()
        self.wired.assert_equal()
        ends = self.wired.ends()
        assert self.wired.watermarks() == ends
        assert self.wired.isr() == (1, 2, 3)

    # -------------------------------------------------------------------------------------------------------- checks

    def log_of(self, broker_id: int) -> dict[int, bytes | None]:
        found = {}
        for each in scan(self.wired.bytes_of(broker_id)):
            for at, record in enumerate(records_of(each)):
                found[each.base_offset + at] = record.value
        return found

    def check(self) -> None:
        leader = self.wired.partition.leader
        for one, manager in self.wired.managers.items():
            part = part_of(manager)
            assert part.log.start_offset <= part.log.high_watermark <= part.log.end_offset
            log = self.log_of(one)
            for offset in range(part.log.high_watermark):
                assert self.committed.setdefault(offset, log[offset]) == log[offset], f"broker {one} at offset {offset}"
            if one == leader and one not in self.wired.silent:
                missing = [offset for offset, value in self.committed.items() if log.get(offset) != value]
                assert missing == [], f"the leader {one} lacks the committed offsets {missing}"


def random_run(seed: int, *, steps: int = 120, loses_power: bool = False) -> None:
    print(f"seed {seed}, power failures {loses_power}")
    RandomRun(seed, loses_power=loses_power).run(steps)


@pytest.mark.parametrize("seed", range(12))
def test_committed_records_survive_and_replicas_agree(seed: int) -> None:
    random_run(seed)


@pytest.mark.parametrize("seed", range(8))
def test_committed_records_that_are_flushed_survive_power_failures(seed: int) -> None:
    random_run(seed, loses_power=True)


@pytest.mark.soak
@pytest.mark.parametrize("loses_power", [False, True])
def test_committed_records_survive_in_many_random_runs(loses_power: bool) -> None:
    for seed in range(100, 400):
        random_run(seed, steps=250, loses_power=loses_power)
