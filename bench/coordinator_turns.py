"""The longest turn of a broker that coordinates groups at full size.

    python bench/coordinator_turns.py [--groups 100000] [--offsets 200000] [--members 5000] [--only NAME,...]

One broker in memory, driven request by request and poll by poll as the event loop drives it, with Python's garbage
collection as `kraft serve` has it. Each row is the longest of the turns of its phase, by processor and by wall clock.
What the transport does with the answers has turns of its own, which are not in the figures.
"""

from __future__ import annotations

import argparse
import gc
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from msgspec import structs

from kraft.limits import NAMED_TOPICS, OFFSETS_PER_TRANSACTION
from kraft.node.gc_freeze import EVERY_S, THRESHOLDS, Survivors
from kraft.wire import Answer
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from metadata_log.records.coordinator import encode_key, encode_value
from metadata_log.records.metadata import FeatureLevelRecord, PartitionChangeRecord, RemoveTopicRecord
from metadata_log.records.record import Record
from metadata_log.serde import Message, schema_of
from metadata_log.types import Uuid
from support.broker.group_clients import GROUPS, GROUPS_KEY, GroupBrokers, joining
from support.broker.request_brokers import NewTopic, due_of, topic_id, wire_request
from transport.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from transport.protocol.messages.delete_groups import DeleteGroupsRequest
from transport.protocol.messages.join_group import JoinGroupRequest
from transport.protocol.messages.list_groups import ListGroupsRequest
from transport.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from transport.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from transport.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from transport.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

RECORDS: Final = 5000
"""The records of a batch of the prepared log."""
SESSION_MS: Final = 1_800_000
MINUTE_MS: Final = 60_000
SUBSCRIPTION: Final = struct.pack(">hih", 1, 1, 6) + b"orders" + struct.pack(">i", -1)
VERSIONS: Final = {27: 1, 28: 3, 68: 1}


class Bench:
    """A broker, and the longest turns of each phase."""

    def __init__(self, *topics: NewTopic, **settings: Any) -> None:
        settings = {"initial_rebalance_delay_ms": 0, "commit_timeout_ms": 10**9} | settings
        self.world = GroupBrokers(GROUPS, *topics, max_session_timeout_ms=SESSION_MS, **settings)
        self.brokers = self.world.brokers
        self.requests = self.brokers.requests[101]
        self.answers: dict[int, Any] = {}
        self._last_id = 1 << 20
        self.longest = (0.0, 0.0, 0, 0.0)
        self._freeze_s = 0.0
        self._survivors = Survivors()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Print the longest turn of the block."""
        self.longest = (0.0, 0.0, 0, 0.0)
        yield
        cpu, wall, turns, total = self.longest
        print(f"{name:74}{cpu:9.1f}{wall:9.1f}{turns:9}{total:12.0f}", flush=True)

    def measured(self, turn: Callable[[], Any]) -> Any:
        """Run one turn, and then, when it is time for it, one that freezes the survivors, as `kraft serve` does."""
        result = self._measured(turn)
        if time.monotonic() > self._freeze_s:
            self._measured(self._survivors.freeze)
            self._freeze_s = time.monotonic() + EVERY_S
        return result

    def _measured(self, turn: Callable[[], Any]) -> Any:
        cpu, wall = time.thread_time(), time.perf_counter()
        result = turn()
        cpu_ms, wall_ms = 1000 * (time.thread_time() - cpu), 1000 * (time.perf_counter() - wall)
        before = self.longest
        self.longest = max(before[0], cpu_ms), max(before[1], wall_ms), before[2] + 1, before[3] + cpu_ms
        return result

    def poll(self) -> None:
        """One poll."""
        brokers = self.brokers
        self.requests.use(brokers.image)
        for one in self.measured(lambda: list(due_of(self.requests, brokers.now_ms))):
            if isinstance(one, Answer):
                self.answers[one.request_id] = one.message

    def settle(self) -> None:
        """Poll until nothing is due."""
        self.poll()
        while True:
            due_ms = self.requests.agenda.deadline_ms
            if due_ms > self.brokers.now_ms + 2:
                return
            self.brokers.now_ms = max(self.brokers.now_ms, due_ms)
            self.poll()

    def wait(self, ms: int) -> None:
        """Let time pass."""
        end_ms = self.brokers.now_ms + ms
        while (due_ms := self.requests.agenda.deadline_ms) <= end_ms:
            self.brokers.now_ms = max(self.brokers.now_ms, due_ms)
            self.poll()
        self.brokers.now_ms = end_ms

    def send(self, message: Message, version: int) -> int:
        """Send a request, and poll once."""
        key = schema_of(type(message)).api_key
        assert key is not None
        self._last_id += 1
        request = wire_request(self._last_id, key, version, message, client_id="c")
        brokers = self.brokers
        found = self.measured(lambda: self.requests.on_request(request, brokers.image, brokers.now_ms))
        if isinstance(found, Answer):
            self.answers[found.request_id] = found.message
        return self._last_id

    def ask(self, message: Message, version: int) -> Any:
        """Send a request, and poll until its answer is there."""
        number = self.send(message, version)
        self.settle()
        return self.answers.pop(number)

    def append(self, *pairs: tuple[Message, Message]) -> None:
        """Write records into the log before it is loaded."""
        part = self.brokers.part(101, GROUPS_KEY)
        for begin in range(0, len(pairs), RECORDS):
            records = [
                Record(at, self.brokers.now_ms, 0, encode_key(key), encode_value(value))
                for at, (key, value) in enumerate(pairs[begin : begin + RECORDS])
            ]
            self.brokers.managers[101].leaders.append(
                part, write_batch(records, epoch=part.leader_epoch), self.brokers.now_ms, is_client=False
            )

    def load(self, name: str) -> None:
        """Lead the partition anew."""
        change = PartitionChangeRecord(partition_id=0, topic_id=GROUPS.id, leader=101)
        with self.phase(f"unload, and load {name}"):
            self.measured(lambda: self.brokers.change(change))
            self.settle()


def of_group(group_id: str, topic: str, partitions: int, members: int, now_ms: int) -> list[tuple[Message, Message]]:
    """The records of a group with members and offsets."""
    group = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="member-0",
        current_state_timestamp=now_ms,
        members=tuple(
            MemberMetadata(
                member_id=f"member-{at}",
                client_id="c",
                client_host="/127.0.0.1",
                rebalance_timeout=60_000,
                session_timeout=SESSION_MS,
                subscription=SUBSCRIPTION,
                assignment=b"a" * 40,
            )
            for at in range(members)
        ),
    )
    offsets = [
        (OffsetCommitKey(group_id, topic, at), OffsetCommitValue(at, commit_timestamp=now_ms, topic_id=Uuid.ZERO))
        for at in range(partitions)
    ]
    return [(GroupMetadataKey(group_id), group), *offsets]


def many_groups(count: int, _offsets: int, _members: int) -> None:
    """Very many small groups."""
    bench = Bench(NewTopic("orders", topic_id(2), ((101,),)), retention_minutes=1, retention_check_ms=10**7)
    now_ms = bench.brokers.now_ms
    bench.append(*(one for at in range(count) for one in of_group(f"group-{at}", "orders", 1, 1, now_ms)))
    bench.load(f"{count:,} groups")
    with bench.phase("list them"):
        assert len(bench.ask(ListGroupsRequest(), 5).groups) == count
    with bench.phase("expire their sessions"):
        bench.wait(SESSION_MS + 1000)
    with bench.phase("delete their topic"):
        bench.brokers.change(RemoveTopicRecord(topic_id=topic_id(2)))
        bench.settle()
    with bench.phase("expire the groups"):
        bench.wait(10**7)
        bench.settle()
    assert not bench.ask(ListGroupsRequest(), 5).groups
    bench.append(*(one for at in range(count) for one in of_group(f"group-{at}", "orders", 1, 1, now_ms)))
    bench.load("them again")
    with bench.phase("resign"):
        bench.measured(
            lambda: bench.brokers.change(PartitionChangeRecord(partition_id=0, topic_id=GROUPS.id, leader=102))
        )
        bench.settle()


def many_offsets(_groups: int, count: int, _members: int) -> None:
    """A group with very many offsets."""
    topic = NewTopic("orders", topic_id(2), ((101,),) * 10)
    bench = Bench(topic, retention_minutes=10**6, retention_check_ms=10**7)
    now_ms = bench.brokers.now_ms
    bench.append(*of_group("g", "orders", count, 0, now_ms), *of_group("h", "gone", count, 0, now_ms))
    bench.load(f"2 groups of {count:,} offsets")
    with bench.phase("delete one of them"):
        answer = bench.ask(DeleteGroupsRequest(["h"]), 2)
    assert [one.error_code for one in answer.results] == [0], answer
    with bench.phase("delete the topic of the other"):
        bench.brokers.change(RemoveTopicRecord(topic_id=topic_id(2)))
        bench.settle()
    shard: Any = bench.requests.groups.partitions[0]
    assert not shard.state.offsets.get("g", ())


def expire_offsets(_groups: int, count: int, _members: int) -> None:
    """The offsets of a group expire."""
    topic = NewTopic("orders", topic_id(2), ((101,),))
    bench = Bench(topic, retention_minutes=1, retention_check_ms=10**6)
    bench.append(*of_group("g", "orders", count, 0, bench.brokers.now_ms))
    bench.load(f"a group of {count:,} offsets")
    with bench.phase("expire the offsets"):
        bench.wait(10**6)
        bench.settle()
    shard: Any = bench.requests.groups.partitions[0]
    assert not shard.state.groups


def transaction(_groups: int, _count: int, _members: int) -> None:
    """A transaction with as many offsets as it may have."""
    count = OFFSETS_PER_TRANSACTION
    bench = Bench(NewTopic("orders", topic_id(2), ((200,),) * count))
    bench.requests.load_coordinators().transaction_offsets._settings = _without_verification(bench)
    parts = [TxnOffsetCommitRequestPartition(at, at) for at in range(count)]
    with bench.phase(f"TxnOffsetCommit of {count:,} partitions"):
        for begin in range(0, count, 20_000):
            topics = [TxnOffsetCommitRequestTopic("orders", Uuid.ZERO, parts[begin : begin + 20_000])]
            message = TxnOffsetCommitRequest(
                transactional_id="t", group_id="g", producer_id=7, producer_epoch=0, topics=topics
            )
            answer = bench.ask(message, 3)
            assert {one.error_code for one in answer.topics[0].partitions} == {0}
    marker = WritableTxnMarker(7, 0, transaction_result=True, topics=[WritableTxnMarkerTopic(GROUPS.name, [0])])
    with bench.phase("commit the transaction"):
        answer = bench.ask(WriteTxnMarkersRequest([marker]), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == 0
    shard: Any = bench.requests.groups.partitions[0]
    assert len(shard.state.offsets["g"]) == count
    bench.load("that")
    shard = bench.requests.groups.partitions[0]
    assert len(shard.state.offsets["g"]) == count


def _without_verification(bench: Bench) -> Any:
    room = bench.requests.load_coordinators().transaction_offsets
    return structs.replace(room._settings, verifies_transactions=False)


def large_group(_groups: int, _offsets: int, count: int) -> None:
    """A classic group with very many members."""
    bench = Bench(NewTopic("orders", topic_id(2), ((101,),)))
    protocols = (("range", SUBSCRIPTION),)

    def join(member_id: str = "", **fields: Any) -> JoinGroupRequest:
        return joining(
            member_id=member_id, protocols=protocols, session_ms=SESSION_MS, rebalance_ms=SESSION_MS, **fields
        )

    number = bench.send(join(), 3)
    bench.settle()
    ids = {bench.answers.pop(number).member_id: 0}
    with bench.phase(f"{count:,} members join"):
        numbers = [bench.send(join(), 3) for _ in range(count - 1)]
    (leader,) = ids
    with bench.phase("the last one joins, and all are answered"):
        number = bench.send(join(leader), 3)
        bench.settle()
        while len(bench.answers) < count:
            bench.poll()
    numbers.append(number)
    answers = [bench.answers.pop(one) for one in numbers]
    assert {one.error_code for one in answers} == {0}
    generation = answers[0].generation_id
    leader = answers[0].leader
    members = [one.member_id for one in answers]
    with bench.phase("all but the leader sync"):
        for one in members:
            if one != leader:
                bench.send(SyncGroupRequest("g", generation, one), 3)
    assignments = [SyncGroupRequestAssignment(one, b"a" * 40) for one in members]
    with bench.phase("the leader syncs, and all are answered"):
        bench.send(SyncGroupRequest("g", generation, leader, assignments=assignments), 3)
        bench.settle()
        while len(bench.answers) < count:
            bench.poll()
    assert {one.error_code for one in bench.answers.values()} == {0}
    bench.load("the group")
    with bench.phase("the first member joins again"):
        bench.send(join(leader), 3)
        bench.settle()
    with bench.phase("all sessions and the rebalance end"):
        bench.wait(2 * SESSION_MS)


def consumer_group(_groups: int, _offsets: int, count: int) -> None:
    """A consumer group with many members and partitions."""
    members, partitions = count // 5, count * 2
    bench = Bench(NewTopic("orders", topic_id(2), ((200,),) * partitions))
    bench.brokers.change(FeatureLevelRecord(name="group.version", feature_level=1))
    bench.settle()

    def beat(member_id: str, epoch: int, names: list[str] | None) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if epoch == 0 else -1,
            subscribed_topic_names=names,
            topic_partitions=[] if epoch == 0 else None,
        )

    ids = [str(Uuid(at.to_bytes(16, "big"))) for at in range(1, members + 1)]
    epochs: dict[str, int] = {}
    with bench.phase(f"{members:,} members join for {partitions:,} partitions"):
        for one in ids:
            answer = bench.ask(beat(one, 0, ["orders"]), 1)
            assert answer.error_code == 0, answer
            epochs[one] = answer.member_epoch
    bench.brokers.now_ms += 5000
    with bench.phase("a heartbeat brings a new target"):
        bench.ask(beat(ids[0], epochs[ids[0]], None), 1)
    bench.load("the group")


def heartbeat(member: bytes, epoch: int, names: Sequence[str] = (), regex: str | None = None) -> Message:
    """The heartbeat of a member of a consumer group; with epoch 0 it joins, for topics or an expression."""
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=str(Uuid(member * 16)),
        member_epoch=epoch,
        rebalance_timeout_ms=60_000 if epoch == 0 else -1,
        subscribed_topic_names=list(names) if epoch == 0 else None,
        subscribed_topic_regex=regex,
        topic_partitions=[] if epoch == 0 else None,
    )


def share(bench: Bench, what: str, **wish: Any) -> None:
    """A second member joins, and the first one gives up half of what it has."""
    epoch = bench.ask(heartbeat(b"m", 0, **wish), 1).member_epoch
    bench.brokers.now_ms += 5000
    with bench.phase(f"another one joins for {what}"):
        bench.ask(heartbeat(b"n", 0, **wish), 1)
    with bench.phase("the first one gives up half of them"):
        answer = bench.ask(heartbeat(b"m", epoch), 1)
    assert answer.error_code == 0, answer
    bench.load("the group")


def large_topic(_groups: int, _offsets: int, _count: int) -> None:
    """A consumer of a topic of 70,000 partitions: not many more fit into a record."""
    bench = Bench(NewTopic("orders", topic_id(2), ((101,),)), NewTopic("large", topic_id(3), ((200,),) * 70_000))
    bench.brokers.change(FeatureLevelRecord(name="group.version", feature_level=1))
    bench.settle()
    with bench.phase("one consumer joins for 70,000 partitions"):
        answer = bench.ask(heartbeat(b"m", 0, names=["large"]), 1)
    assert answer.error_code == 0, answer
    share(bench, "70,000 partitions", names=["large"])


def expressions(_groups: int, _offsets: int, _count: int) -> None:
    """A consumer wants all topics of a regular expression."""
    for count in (1500, 3000, 5000):
        topics = [NewTopic(f"t{at}", Uuid(at.to_bytes(16, "big")), ((200,),)) for at in range(100, 100 + count)]
        bench = Bench(*topics)
        bench.brokers.change(FeatureLevelRecord(name="group.version", feature_level=1))
        bench.settle()
        with bench.phase(f"the topics of an expression are found, {count:,}"):
            epoch = bench.ask(heartbeat(b"m", 0, regex="t.*"), 1).member_epoch
        bench.wait(5000)
        with bench.phase("its member gets them"):
            answer = bench.ask(heartbeat(b"m", epoch), 1)
        assert len(answer.assignment.topic_partitions) == count, answer
        share(bench, "the same expression", regex="t.*")


def many_names(_groups: int, _offsets: int, _count: int) -> None:
    """A consumer names as many topics as it may, which exist, and then as many others."""
    topics = [NewTopic(f"t{at}", Uuid(at.to_bytes(16, "big")), ((200,),)) for at in range(100, 100 + 2 * NAMED_TOPICS)]
    bench = Bench(*topics)
    bench.brokers.change(FeatureLevelRecord(name="group.version", feature_level=1))
    bench.settle()
    names = [one.name for one in topics]
    member_id, epoch = str(Uuid(b"m" * 16)), 0
    for what, some in (("names", names[:NAMED_TOPICS]), ("names others", names[NAMED_TOPICS:])):
        message = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=some,
            topic_partitions=[],
        )
        with bench.phase(f"one consumer {what} of {NAMED_TOPICS:,} topics"):
            answer = bench.ask(message, 1)
        assert answer.error_code == 0, answer
        epoch = answer.member_epoch
        bench.brokers.now_ms += 5000


def many_deleted(groups: int, _offsets: int, _members: int) -> None:
    """Very many topics are deleted at once, each with an offset of a tenth of the groups."""
    count = min(10_000, groups // 10)
    topics = [NewTopic(f"t{at}", Uuid(at.to_bytes(16, "big")), ((200,),)) for at in range(100, 100 + count)]
    bench = Bench(*topics, retention_minutes=10**6, retention_check_ms=10**9)
    now_ms = bench.brokers.now_ms
    bench.append(
        *(one for at in range(groups // 10) for one in of_group(f"g{at}", f"t{100 + at % count}", 1, 0, now_ms)),
    )
    bench.load(f"{groups // 10:,} groups")
    with bench.phase(f"delete {count:,} topics"):
        bench.brokers.change(*(RemoveTopicRecord(topic_id=one.id) for one in topics))
        bench.settle()


def waiting_commits(_groups: int, _offsets: int, _members: int) -> None:
    """Very many commits wait for the high watermark."""
    replicated = NewTopic(GROUPS.name, GROUPS.id, ((101, 102, 103),))
    bench = Bench(NewTopic("orders", topic_id(2), ((101,),)))
    bench.world = GroupBrokers(replicated, NewTopic("orders", topic_id(2), ((101,),)), commit_timeout_ms=10**9)
    bench.brokers = bench.world.brokers
    bench.requests = bench.brokers.requests[101]
    for how in ("commit", "resign"):
        with bench.phase("20,000 commits"):
            for at in range(20_000):
                topics = [OffsetCommitRequestTopic("orders", Uuid.ZERO, [OffsetCommitRequestPartition(0, at)])]
                bench.send(OffsetCommitRequest(f"g{at % 100}", topics=topics), 9)
                if at % 100 == 0:
                    bench.settle()
        assert not bench.answers
        with bench.phase(f"{how}: all are answered"):
            if how == "commit":
                bench.brokers.replicate(GROUPS_KEY)
            else:
                bench.brokers.change(PartitionChangeRecord(partition_id=0, topic_id=GROUPS.id, leader=102))
            bench.settle()
            while len(bench.answers) < 20_000:
                bench.poll()
        bench.answers.clear()


PHASES: Final = {
    one.__name__: one
    for one in (
        many_groups,
        many_offsets,
        expire_offsets,
        transaction,
        large_group,
        consumer_group,
        large_topic,
        expressions,
        many_names,
        many_deleted,
        waiting_commits,
    )
}


def main() -> None:
    """Run the phases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--offsets", type=int, default=200_000)
    parser.add_argument("--members", type=int, default=5000)
    parser.add_argument("--only", default=",".join(PHASES))
    options = parser.parse_args()
    gc.set_threshold(*THRESHOLDS)
    gc.freeze()
    print(f"{'longest turn of a coordinator':74}{'CPU ms':>9}{'wall ms':>9}{'turns':>9}{'all CPU ms':>12}")
    for name in options.only.split(","):
        PHASES[name](options.groups, options.offsets, options.members)


if __name__ == "__main__":
    main()
