"""Does a request cost more at a broker that has much? Counted, as in `guard.py`, at an empty broker and at a full one.

    python bench/full_broker.py [--many 10000] [--segments 100] [--starts] [--dir DIR] [--json]

One controller and one broker run in this process, as in `guard.py`, and one thing is asked after the other. The full
broker leads --many partitions, coordinates --many groups that have committed an offset and as many transactional ids,
and one partition has --segments closed segments of a gibibyte, with a hole in each. The bench stops the full broker,
makes the holes, and starts it again before it counts. Each figure is for one request of the median round:

- produce acks=1, fetch of a consumer, offset commit, heartbeat: as in `guard.py`.
- tail of the log: a Produce for the partition with the closed segments.

The ratio is that of the full broker to the empty one. Memory is the resident memory of this process (controller,
broker and bench) that each kind of thing has added when it was there, after a garbage collection, for one of it. A
start is from the call until the broker listens: processor time of this process, with the controller. `--starts` stops
the broker after each kind, too: the difference is what the kind adds.
"""

from __future__ import annotations

import argparse
import gc
import os
import struct
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import msgspec
import trio
from data_brokers.conversations import GROUP, SESSION_MS, SOON, TRANSACTION, ClassicMember, M, asking, finding
from guard import (
    ALONE,
    BATCHES_BETWEEN_ENTRIES,
    CONTROLLER,
    CREATE_VERSION,
    HOURS_MS,
    LEADER,
    MEMORY,
    ROUNDS,
    WARM_UP,
    Counted,
    Counting,
    Exchange,
    Guard,
    Processes,
    Reader,
    Topics,
    Walk,
    active_leader,
    counted_alike,
    framed,
    hold,
)
from msgspec import Struct

from kraft.node.node import Node
from metadata_log.records.batch_builder import build_batch
from metadata_log.types import LATEST_TIMESTAMP as LATEST
from transport.protocol.errors import Error
from transport.protocol.messages import create_topics, produce
from transport.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from transport.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from transport.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

LONG: Final = "long"
"""The topic whose partition has many segments."""
LOOKS, LOOK_S = 6000, 0.05
SESSION_S: Final = 9
"""A new process of a broker is refused as long as the session of the former one lasts."""
HEAD: Final = struct.Struct(">qi")
"""How a batch begins: its first offset, and how many bytes follow."""
GIB: Final = 1 << 30
SEGMENT_BYTES: Final = 1 << 20
PARTITIONS_PER_TOPIC: Final = 100
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Filled(Struct):
    """What a kind of thing costs a broker that has it."""

    what: str
    count: int
    bytes_each: float


class Report(Struct, rename="camel"):
    """The figures of one broker."""

    walks: dict[str, Walk]
    filled: list[Filled]
    starts_cpu_ms: dict[str, float]
    """Of the broker that has nothing, and of the same one once it has what is named, and all that is named before."""


def resident() -> int:
    """The resident memory of this process in bytes, without garbage."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * PAGE_BYTES


class Broker:
    """The broker, which can stop and start again."""

    def __init__(self, cluster: Processes, nursery: trio.Nursery) -> None:
        self.cluster = cluster
        self._nursery = nursery
        self._node: Node | None = None
        self._ended = trio.Event()

    async def start(self) -> float:
        """Run it; returns the CPU milliseconds of this process until it listens."""
        began = time.process_time()
        self._node = await self._nursery.start(self._run)
        for _ in range(LOOKS):
            if await self._listens():
                break
            await trio.sleep(LOOK_S)
        return 1000 * (time.process_time() - began)

    async def _listens(self) -> bool:
        try:
            async with self.cluster.client(LEADER):
                return True
        except OSError:
            return False

    async def stop(self) -> None:
        """Shut down gracefully, and wait until its session has ended."""
        assert self._node is not None
        await self._node.shutdown()
        await self._ended.wait()
        await trio.sleep(SESSION_S)

    async def _run(self, *, task_status: trio.TaskStatus[Node] = trio.TASK_STATUS_IGNORED) -> None:
        self._ended = trio.Event()
        await self.cluster.start(LEADER, task_status=task_status)
        self._ended.set()


async def fill(broker: Broker, topics: Topics, root: Path, options: argparse.Namespace) -> Report:
    """Give the broker much of everything; returns what each kind has added to the memory, and to a start."""
    many: int = options.many
    kinds: dict[str, tuple[int, Callable[[Exchange], Awaitable[None]]]] = {
        "closed segments": (options.segments, lambda exchange: write_segments(exchange, topics, options.segments)),
        "partitions": (many, lambda exchange: make_partitions(exchange, root, many)),
        "groups": (many, lambda exchange: commit_for_groups(exchange, many)),
        "transactional ids": (many, lambda exchange: make_ids(exchange, many)),
    }
    report = Report({}, [], {})
    for what, (count, make) in kinds.items():
        before = resident()
        async with broker.cluster.client(LEADER) as exchange:
            await make(exchange)
        report.filled.append(Filled(what, count, (resident() - before) / count))
        is_last = what == next(reversed(kinds))
        if options.starts or is_last:
            await broker.stop()
            assert make_holes(root) >= options.segments
            report.starts_cpu_ms[what] = await broker.start()
    return report


async def make_partitions(exchange: Exchange, root: Path, count: int) -> None:
    """Topics of a hundred partitions each; returns once their logs are made."""
    for first in range(0, count, PARTITIONS_PER_TOPIC):
        partitions = min(PARTITIONS_PER_TOPIC, count - first)
        topic = create_topics.CreatableTopic(name=f"many-{first}", num_partitions=partitions, replication_factor=1)
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=HOURS_MS)
        answer = await ask(exchange, asking(request, CREATE_VERSION, create_topics.CreateTopicsResponse))
        assert not answer.topics[0].error_code, answer
    for _ in range(LOOKS):
        if len(list((root / f"node-{LEADER}").glob("many-*/*.log"))) == count:
            return
        await trio.sleep(LOOK_S)
    raise AssertionError("the broker has not made all logs")


async def commit_for_groups(exchange: Exchange, count: int) -> None:
    """An offset of each of so many groups without members."""
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=42, committed_leader_epoch=0)
    for number in range(count):
        request = OffsetCommitRequest(
            group_id=f"many-{number}",
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(name=ALONE, partitions=[part])],
        )
        error: int = Error.NOT_COORDINATOR
        while error in SOON:
            answer = await ask(exchange, asking(request, 9, OffsetCommitResponse))
            error = answer.topics[0].partitions[0].error_code
        assert not error, Error.of(error)


async def make_ids(exchange: Exchange, count: int) -> None:
    """InitProducerId for so many transactional ids."""
    await hold(exchange, finding("many-0", TRANSACTION))
    for number in range(count):
        request = InitProducerIdRequest(transactional_id=f"many-{number}", transaction_timeout_ms=SESSION_MS)
        error: int = Error.NOT_COORDINATOR
        while error in SOON:
            error = (await ask(exchange, asking(request, 5, InitProducerIdResponse))).error_code
        assert not error, Error.of(error)


async def write_segments(exchange: Exchange, topics: Topics, count: int) -> None:
    """Batches, each of which fills a segment."""
    batch = build_batch(0, -1, 0, [b"x" * (SEGMENT_BYTES - 100)])
    part = produce.PartitionProduceData(index=0, records=batch)
    topic = produce.TopicProduceData(topic_id=topics.ids[LONG], partition_data=[part])
    frame = framed(produce.ProduceRequest(acks=1, timeout_ms=HOURS_MS, topic_data=[topic]), 13)
    for _ in range(count + 1):
        assert not topics.error_of_produce(await exchange(frame))


async def ask(exchange: Exchange, talk: Generator[bytes, bytes, M]) -> M:
    """Hold a conversation of one request; returns what came of it."""
    try:
        talk.send(await exchange(next(talk)))
    except StopIteration as end:
        answer: M = end.value
        return answer
    raise AssertionError("the conversation goes on")


async def end_of(exchange: Exchange, topic: str) -> int:
    """The end of partition 0."""
    part = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[part])])
    answer = await ask(exchange, asking(request, 8, ListOffsetsResponse))
    return answer.topics[0].partitions[0].offset


def make_holes(root: Path) -> int:
    """Let the last batch of each closed segment of the long log fill a gibibyte, with a hole; returns their number."""
    *closed, _ = sorted((root / f"node-{LEADER}" / f"{LONG}-0").glob("*.log"))
    for segment in (one for one in closed if one.stat().st_size < GIB):
        with segment.open("r+b") as file:
            at, end, size = 0, 0, segment.stat().st_size
            while end < size:
                at = end
                offset, length = HEAD.unpack(os.pread(file.fileno(), HEAD.size, at))
                end = at + HEAD.size + length
            file.truncate(GIB)
            os.pwrite(file.fileno(), HEAD.pack(offset, GIB - at - HEAD.size), at)
    return len(closed)


async def count_requests(guard: Guard, counting: Counting, cluster: Processes, topics: Topics) -> None:
    """Count one request of each kind."""
    async with cluster.client(LEADER) as exchange:
        for topic in (ALONE, LONG):
            await topics.until_led(topic, exchange)
        produces = {"produce acks=1": topics.produce(ALONE, 1), "tail of the log": topics.produce(LONG, 1)}
        for what, frame in produces.items():

            async def write(_: int, frame: bytes = frame) -> None:
                assert not topics.error_of_produce(await exchange(frame))

            await guard.count(counting, Counted(what=what, roles={"leader": LEADER}), write)
        end = await end_of(exchange, ALONE)
        for _ in range(BATCHES_BETWEEN_ENTRIES + WARM_UP[1] + 2 * ROUNDS[1]):
            assert not topics.error_of_produce(await exchange(topics.produce(ALONE, 1)))
        reader = Reader(topics.ids[ALONE], exchange, leader_epoch=-1, offset=end)
        await guard.count(counting, Counted(what="fetch of a consumer", roles={"leader": LEADER}), reader.next)
        member = ClassicMember("counted", ALONE)
        await hold(exchange, finding(member.group, GROUP))
        await hold(exchange, member.joining())
        for what, frame in (("offset commit", member.commit()), ("heartbeat", member.heartbeat())):
            expected = await exchange(frame)

            async def once(_: int, frame: bytes = frame, expected: bytes = expected) -> None:
                assert await exchange(frame) == expected

            await guard.count(counting, Counted(what=what, roles={"leader": LEADER}), once)


async def count_broker(guard: Guard, root: Path, counting: Counting, options: argparse.Namespace) -> Report:
    """Count at one broker; with `many` of 0 it stays empty."""
    cluster = Processes(
        root, counting, voters=(CONTROLLER,), brokers=(LEADER,), more=f"broker.session.timeout.ms={1000 * SESSION_S}\n"
    )
    async with cluster.running((CONTROLLER,)) as controllers, trio.open_nursery() as nursery:
        await active_leader(controllers)
        broker, topics = Broker(cluster, nursery), Topics()
        await broker.start()
        async with cluster.client(LEADER) as exchange:
            await topics.create(exchange, {ALONE: (LEADER,)})
            await topics.create(exchange, {LONG: (LEADER,)}, SEGMENT_BYTES)
            await hold(exchange, finding("counted", GROUP))
        await broker.stop()
        nothing = await broker.start()
        filled = await fill(broker, topics, root, options) if options.many else Report({}, [], {})
        await count_requests(guard, counting, cluster, topics)
        nursery.cancel_scope.cancel()
    return Report(guard.walks, filled.filled, {"nothing": nothing, **filled.starts_cpu_ms})


def measure(given: argparse.Namespace, many: int) -> Report:
    """Count at one broker."""
    options = argparse.Namespace(**{**vars(given), "many": many})
    counting = Counting()
    with counted_alike(), tempfile.TemporaryDirectory(prefix="bench-full-broker-", dir=options.dir) as scratch:
        run = partial(trio.run, clock=counting.clock, instruments=[counting])
        report: Report = run(count_broker, Guard([], 0), Path(scratch), counting, options)
    return report


def show(empty: Report, full: Report) -> None:
    """Print the tables."""
    print("| for one request | calls, empty | full | ratio | bytecode, empty | full | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, before in empty.walks.items():
        now = full.walks[name]
        cells = [name.split(",")[0]]
        for one, other in ((before.calls, now.calls), (before.bytecode, now.bytecode)):
            cells += [f"{one:,.0f}", f"{other:,.0f}", f"{other / one:.2f}"]
        print("|", " | ".join(cells), "|")
    print("\n| what the broker has | bytes each |\n| --- | --- |")
    for kind in full.filled:
        print(f"| {kind.count:,} {kind.what} | {kind.bytes_each:,.0f} |")
    print("\n| a start with | CPU ms |\n| --- | --- |")
    for what, cpu_ms in full.starts_cpu_ms.items():
        print(f"| {what} | {cpu_ms:,.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--many", type=int, default=10_000, help="how many of each kind")
    parser.add_argument("--segments", type=int, default=100, help="how many closed segments")
    memory = MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir())
    parser.add_argument("--dir", type=Path, default=memory, help="where the nodes keep their files")
    parser.add_argument("--starts", action="store_true", help="start the broker again after each kind")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    # Each in a process of its own, since a process learns what its messages have in common.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        empty, full = pool.map(partial(measure, options), (0, options.many))
    if options.json:
        print(msgspec.json.encode({"empty": empty, "full": full}).decode())
    else:
        show(empty, full)


if __name__ == "__main__":
    main()
