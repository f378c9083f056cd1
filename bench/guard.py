"""How long is the way of a request? Counted, not timed, so that every host prints the same figures.

    python bench/guard.py [--only NAME] [--dir DIR] [--top 0] [--protocol] [--json]
    python bench/guard.py --check [--lower]

All nodes run in this process, each as a program runs it: TCP over epoll, files and fsync. They share one thread. The
clients are in the same process, and what they do is not counted. With 1 in flight a client asks one thing after the
other; with 128 in flight so many clients ask at the same time, and the next time once all have their answers.

- commit: three nodes keep a raw log (`kraft.open_node`), and callers of the leader's own program append values.
- append_many: the same nodes; one caller appends 128 values one by one, each for itself, and this is one request.
- write: three controllers, and clients that ask for IncrementalAlterConfigs over TCP, as in `commit.py`.
- vote: one controller is asked again and again for its vote in a higher epoch.
- produce: one controller and three brokers; a batch of one record for a partition, with acks=all for one with three
  replicas, and with acks=1 for one that has a single replica.
- fetch: a client or a follower reads the next batch in a session; the follower is one of two replicas.
- offset commit, heartbeat: the only member of a classic group commits one offset, or says that it lives; the groups of
  128 members are in 50 partitions. The coordinator is the only replica.
- transaction of offsets: TxnOffsetCommit for one offset and EndTxn, with the marker that follows. The coordinators of
  the group and of the transaction are the same broker.

For each the bench prints what one node does for one request, from one round of requests to the next:

- calls: calls of functions of `kraft`, `metadata_log` and `transport`, compiled codecs and resumed generators included
- modules: how many modules these functions are from; --json names them, in the order of the way
- syncs: calls of fsync and fdatasync
- bytecode: instructions that the interpreter executes in these functions
- objects: objects that the garbage collector tracks and that these functions made. Those that the interpreter reuses
  (small tuples, floats, frames) count as made only when it has none to reuse.

Each figure is that of the median round, by the requests in flight. While the bench counts, the clock of the nodes
stands still, so that no timer comes in between, and flushes run in place. The files are in memory unless --dir says
otherwise. --top N lists the N functions that are called most.

`--check` compares with the ceilings in `ceilings.json`, and ends with exit code 1 if a figure is above its ceiling
in three counts.
`--check --lower` also puts lower figures in the place of ceilings. To raise one, append it to its list in that file
and say why in a file of changelog.d, in a line with the name, and "calls 363 to 370" (a test asks for that line).

Another commit is counted from its own working tree, as long as this script finds there what it imports; if not, run
the script of that commit:

    git worktree add --detach ../base COMMIT
    PYTHONPATH=../base python bench/guard.py
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import itertools
import json
import os
import socket
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any, Final
from unittest import mock

import msgspec
import trio
from data_brokers.conversations import GROUP, ClassicMember, Talk, TransactionalProducer, finding
from load import frame_of
from msgspec import Struct
from trio.testing import MockClock, wait_all_tasks_blocked

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from kraft import Config
from kraft.node import run
from kraft.node.background import Flusher
from kraft.node.embed import tcp_transport
from kraft.node.node import Node
from kraft.node.run import run_node
from kraft.process.hosting import host_controller, host_silent_raw_log, node_with_data
from kraft.process.parts import ApplicationFactory
from metadata_log.disk import OsDisk
from metadata_log.log.log_dir import format_directory
from metadata_log.records.batch_builder import build_batch
from metadata_log.serde import Message
from metadata_log.types import Uuid, random_uuid
from support.loopback import free_ports
from support.work_counted import ROOTS, Owners, count_opcodes, is_ours
from transport.protocol.apis import ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.headers import decode_response, encode_request
from transport.protocol.messages import create_topics, fetch, produce
from transport.protocol.messages.vote import (
    VoteRequest,
    VoteRequestPartitionData,
    VoteRequestTopicData,
    VoteResponse,
)

ROOT: Final = Path(__file__).parent.parent
CEILINGS: Final = Path(__file__).parent / "ceilings.json"
NODES: Final = (1, 2, 3)
CONTROLLER: Final = 1
LEADER, FOLLOWER, THIRD = BROKERS = (101, 102, 103)
SYNCS: Final = frozenset({os.fsync, os.fdatasync})
VALUE_BYTES: Final = 128
MEMORY: Final = Path("/dev/shm")
MANY: Final = 128
WARM_UP: Final = {1: 50, MANY: 3}
"""How many rounds come before the count, by the requests in flight."""
ROUNDS: Final = {1: 40, MANY: 5}
NUMBERS: Final = itertools.count()
"""Epochs and values that never repeat."""
FIRST_EPOCH: Final = 100
VOTE_VERSION: Final = 2
CREATE_VERSION: Final = 7
PRODUCE_VERSION: Final = 13
FETCH_VERSION: Final = 18
ACKS_ALL: Final = -1
BATCHES_BETWEEN_ENTRIES: Final = 20
"""How many batches of this bench are from one entry of the offset index to the next: half of the rounds, so that the
median is that of all distances from an entry."""
HOURS_MS: Final = 3_600_000
TRIES, RETRY_S = 3000, 0.01
"""How often, and after which pause, to ask whether a broker is ready."""
REPLICATED, ALONE, FOLLOWED = "replicated", "alone", "followed"
"""Topics with three replicas, with one, and with two."""
OF_OFFSETS: Final = "transaction of offsets"
STREAM: Final = f"append_many of {MANY}"
TOPICS: Final = {REPLICATED: BROKERS, ALONE: (LEADER,), FOLLOWED: (LEADER, THIRD)}
CONTROLLERS: Final = """\
process.roles=controller
node.id={node}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listeners=CONTROLLER://127.0.0.1:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT
log.dirs={directory}
controller.quorum.append.linger.ms=0
broker.session.timeout.ms=3600000
{more}"""
BROKER: Final = """\
process.roles=broker
node.id={node}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={directory}
auto.create.topics.enable=false
replica.lag.time.max.ms=3600000
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""
PATIENT: Final = "controller.quorum.election.timeout.ms=3600000\n"
"""A voter that never campaigns itself."""

Exchange = Callable[[bytes], Awaitable[bytes]]
"""Sends a frame, and returns the answer."""
Once = Callable[[int], Awaitable[None]]
"""Sends one request in flight, by its number, and checks its answer."""
Application = Callable[[Config], ApplicationFactory]


class Walk(Struct, frozen=True, kw_only=True):
    """The usual work of one node for one request."""

    calls: float
    modules: int
    syncs: float
    bytecode: float
    objects: float
    way: tuple[str, ...] = ()
    """The modules of these functions, in the order in which the way comes to them; a compiled codec has none."""


class Counted(Struct, frozen=True, kw_only=True):
    """The request that is counted, and the nodes that count."""

    what: str
    roles: dict[str, int]
    """The nodes."""
    in_flight: int = 1

    def name(self, role: str) -> str:
        """The name of a line."""
        return f"{self.what}, {role}, {self.in_flight}"


class Sample(Struct):
    """The work of one node between two marks."""

    functions: Counter[CodeType]
    syncs: int = 0
    opcodes: int = 0
    objects: int = 0


class Counting(trio.abc.Instrument):
    """Counts what happens in the tasks of one node, call by call, or opcode by opcode."""

    def __init__(self) -> None:
        self.clock = MockClock(rate=1.0)
        self.samples: list[Sample] = []
        self._owners = Owners()
        self._counted = 0
        self._hook: Callable[[], None] | None = None
        self._now = Sample(Counter())
        self._tracked = 0

    def own(self, node: int) -> None:
        """The tasks below the running one are those of this node."""
        self._owners.own(node)

    def begin(self, node: int, *, opcodes: bool) -> None:
        """Count for this node from now on, while no time passes."""
        gc.collect()
        gc.disable()
        self.clock.rate = 0.0
        self.samples = []
        self._counted = node
        self._now = Sample(Counter())
        self._hook = self._trace_opcodes if opcodes else self._profile

    def mark(self) -> None:
        """A round of requests ends here."""
        self.samples.append(self._now)
        self._now = Sample(Counter())

    def end(self) -> None:
        """Count nothing more, and let the time pass again."""
        self.clock.rate = 1.0
        self._counted = 0
        gc.enable()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._counted and self._owners.of(task) == self._counted and self._hook is not None:
            self._hook()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        sys.setprofile(None)
        sys.settrace(None)

    def _profile(self) -> None:
        def on_event(frame: FrameType, event: str, what: Any) -> None:
            if event == "call":
                if is_ours(frame.f_code):
                    self._now.functions[frame.f_code] += 1
            elif event == "c_call" and what in SYNCS:
                self._now.syncs += 1

        sys.setprofile(on_event)

    def _trace_opcodes(self) -> None:
        def on_opcode(frame: FrameType, event: str, _: object) -> Any:
            if event == "opcode":
                now = self._now
                now.opcodes += 1
                tracked = gc.get_count()[0]
                if tracked > self._tracked:
                    now.objects += tracked - self._tracked
                self._tracked = tracked
            return on_opcode

        def on_call(frame: FrameType, event: str, _: object) -> Any:
            if not is_ours(frame.f_code):
                return None
            count_opcodes(frame)
            # The frame has become an object only because it is traced.
            self._tracked = gc.get_count()[0]
            return on_opcode

        self._tracked = gc.get_count()[0]
        sys.settrace(on_call)


class Processes:
    """Nodes in this process, each with its tasks below a task that `Counting` knows."""

    def __init__(
        self,
        root: Path,
        counting: Counting,
        *,
        voters: tuple[int, ...] = NODES,
        brokers: tuple[int, ...] = (),
        application: ApplicationFactory = host_controller,
        more: str = "",
    ) -> None:
        nodes = (*voters, *brokers)
        self.ports = dict(zip(nodes, free_ports(len(nodes)), strict=True))
        self.cluster_id = str(random_uuid(Random(7)))
        self.counting = counting
        self._root = root
        self._voters = voters
        self._application = application
        self._more = more
        self._scopes: dict[int, trio.CancelScope] = {}
        self._starts: Counter[int] = Counter()

    async def start(self, node: int, *, task_status: trio.TaskStatus[Node] = trio.TASK_STATUS_IGNORED) -> None:
        """Format and run one node until cancelled."""
        self.counting.own(node)
        directory = str(self._root / f"node-{node}")
        self._starts[node] += 1
        disk, rng = OsDisk(), Random(1000 * node + self._starts[node])
        format_directory(
            disk, directory, node_id=node, cluster_id=self.cluster_id, rng=rng, now_ms=0, ignore_formatted=True
        )
        voters = ",".join(f"{one}@127.0.0.1:{self.ports[one]}" for one in self._voters)
        text = BROKER if node in BROKERS else CONTROLLERS
        text = text.format(node=node, voters=voters, port=self.ports[node], directory=directory, more=self._more)
        config = Config.parse(text, source=f"node {node}")
        with trio.CancelScope() as self._scopes[node]:
            await run_node(
                config,
                transport=tcp_transport(config, serves_clients=config.is_broker),
                disk=disk,
                rng=rng,
                application=node_with_data(config, disk) if config.is_broker else self._application,
                serves_loggers=True,
                task_status=task_status,
            )

    def kill(self, node: int) -> None:
        """End a node without a word to the others."""
        self._scopes[node].cancel()

    @asynccontextmanager
    async def running(self, nodes: tuple[int, ...]) -> AsyncIterator[dict[int, Node]]:
        """These nodes, until the block ends."""
        async with trio.open_nursery() as nursery:
            yield {node: await nursery.start(self.start, node) for node in nodes}
            nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def client(self, node: int) -> AsyncIterator[Exchange]:
        """A connection to a node that asks one thing at a time."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.ports[node])

        async def exchange(frame: bytes) -> bytes:
            await stream.send_all(frame)
            answer = b""
            while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
                piece = await stream.receive_some(1 << 16)
                assert piece, "the node closed the connection instead of an answer"
                answer += piece
            return answer[4:]

        async with stream:
            yield exchange

    async def until_open(self, node: int) -> None:
        """Wait until a broker listens, which it does once the controller has unfenced it."""
        for _ in range(TRIES):
            try:
                async with self.client(node):
                    return
            except OSError:
                await trio.sleep(RETRY_S)
        raise AssertionError(f"node {node} does not listen")

    @asynccontextmanager
    async def clients(self, node: int, count: int) -> AsyncIterator[list[Exchange]]:
        """Connections to a node."""
        async with AsyncExitStack() as stack:
            yield [await stack.enter_async_context(self.client(node)) for _ in range(count)]


def usual(numbers: list[int], in_flight: int) -> float:
    """The median round, for one request."""
    return round(statistics.median(numbers) / in_flight, 0 if in_flight == 1 else 1)


class Guard:
    """Counts what the command line asks for."""

    def __init__(self, only: list[str], top: int) -> None:
        self.walks: dict[str, Walk] = {}
        self._only = only
        self._top = top

    def wants(self, what: str) -> bool:
        """Whether to count this."""
        return not self._only or any(what.startswith(one) for one in self._only)

    async def count(self, counting: Counting, counted: Counted, once: Once) -> None:
        """Send rounds of requests and count what each node does for calls, and again for opcodes."""
        in_flight = counted.in_flight

        async def rounds(number: int, node: int | None, *, opcodes: bool) -> list[Sample]:
            if node is not None:
                counting.begin(node, opcodes=opcodes)
            for _ in range(number):
                if in_flight == 1:
                    await once(next(NUMBERS))
                else:
                    async with trio.open_nursery() as nursery:
                        for _ in range(in_flight):
                            nursery.start_soon(once, next(NUMBERS))
                # What the nodes still have to do for these requests.
                await wait_all_tasks_blocked()
                counting.mark()
            counting.end()
            return counting.samples

        await rounds(WARM_UP[in_flight], None, opcodes=False)
        for role, node in counted.roles.items():
            by_calls = await rounds(ROUNDS[in_flight], node, opcodes=False)
            by_opcodes = await rounds(ROUNDS[in_flight], node, opcodes=True)
            totals = [one.functions.total() for one in by_calls]
            usual_round = by_calls[totals.index(statistics.median_low(totals))]
            list_functions(counted.name(role), usual_round, in_flight, self._top)
            self.walks[counted.name(role)] = Walk(
                calls=usual(totals, in_flight),
                modules=statistics.mode(len({code.co_filename for code in one.functions}) for one in by_calls),
                syncs=round(statistics.median(one.syncs for one in by_calls) / in_flight, 3),
                bytecode=usual([one.opcodes for one in by_opcodes], in_flight),
                objects=usual([one.objects for one in by_opcodes], in_flight),
                way=way_of(usual_round),
            )


def way_of(sample: Sample) -> tuple[str, ...]:
    """The modules, in the order of their first calls, as paths below the roots of the packages."""
    files = dict.fromkeys(code.co_filename for code in sample.functions)
    return tuple(
        Path(file).relative_to(root.parent).as_posix()
        for file in files
        for root in map(Path, ROOTS)
        if file.startswith(f"{root}{os.sep}")
    )


def list_functions(name: str, sample: Sample, in_flight: int, top: int) -> None:
    """Print the functions that are called most."""
    if top:
        print(f"\n{name}: {sample.functions.total() / in_flight:,.1f} calls")
        for code, calls in sample.functions.most_common(top):
            where = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
            print(f"{calls / in_flight:8.2f} {code.co_qualname:50} {where}")


async def active_leader(nodes: dict[int, Node]) -> int:
    """The node that leads, once it takes appends and requests."""
    leader_id = (await next(iter(nodes.values())).wait_for_leader()).leader_id
    while not nodes[leader_id].is_active:
        await nodes[leader_id].wait_for_change()
    return leader_id


def roles(leader_id: int) -> dict[str, int]:
    """The leader and one of its followers."""
    return {"leader": leader_id, "follower": next(node for node in NODES if node != leader_id)}


async def count_commits(guard: Guard, root: Path, counting: Counting) -> None:
    """Count the work of the leader and a follower of a raw log for one append of the leader's own program."""
    quorum = Processes(root, counting, application=host_silent_raw_log)
    async with quorum.running(NODES) as nodes:
        leader_id = await active_leader(nodes)
        counting.own(leader_id)
        value = b"x" * VALUE_BYTES

        async def once(_: int) -> None:
            await nodes[leader_id].append([value])

        for in_flight in (1, MANY):
            if guard.wants("commit"):
                await guard.count(counting, Counted(what="commit", roles=roles(leader_id), in_flight=in_flight), once)

        async def stream(_: int) -> None:
            async for _ in nodes[leader_id].append_many(itertools.repeat([value], MANY), outstanding=MANY):
                pass

        if guard.wants(STREAM):
            await guard.count(counting, Counted(what=STREAM, roles=roles(leader_id)), stream)


async def count_writes(guard: Guard, root: Path, counting: Counting) -> None:
    """Count the work of the active controller and a standby for one request."""
    quorum = Processes(root, counting)
    async with quorum.running(NODES) as nodes:
        leader_id = await active_leader(nodes)
        async with quorum.clients(leader_id, MANY) as clients:
            frames = [[frame_of(client, turn, VALUE_BYTES) for turn in (0, 1)] for client in range(MANY)]
            expected = [await exchange(frames[client][1]) for client, exchange in enumerate(clients)]
            turns = [0] * MANY

            for in_flight in (1, MANY):

                async def once(number: int, in_flight: int = in_flight) -> None:
                    client = number % in_flight
                    answer = await clients[client](frames[client][turns[client]])
                    turns[client] ^= 1
                    assert answer == expected[client], "an answer was not that of a committed write"

                await guard.count(counting, Counted(what="write", roles=roles(leader_id), in_flight=in_flight), once)


async def count_votes(guard: Guard, root: Path, counting: Counting) -> None:
    """Count the work of a voter that gives its vote in a higher epoch; the other two voters are deaf."""
    quorum = Processes(root, counting, more=PATIENT)
    voter, candidate = NODES[0], NODES[1]

    async def vote(exchange: Exchange, number: int) -> None:
        data = VoteRequestPartitionData(
            replica_epoch=FIRST_EPOCH + number,
            replica_id=candidate,
            last_offset_epoch=FIRST_EPOCH - 1,
            last_offset=1,
        )
        topic = VoteRequestTopicData(topic_name="__cluster_metadata", partitions=[data])
        request = VoteRequest(cluster_id=quorum.cluster_id, voter_id=voter, topics=[topic])
        _, reply = decode_response(ApiKey.VOTE, VOTE_VERSION, await exchange(framed(request, VOTE_VERSION)))
        assert isinstance(reply, VoteResponse), reply
        assert reply.topics[0].partitions[0].vote_granted, reply

    with ExitStack() as deaf:
        # The voter asks these listeners for the leader. They accept its connections, and send no answer.
        for other in set(NODES) - {voter}:
            deaf.enter_context(socket.create_server(("127.0.0.1", quorum.ports[other])))
        async with quorum.running((voter,)), quorum.client(voter) as exchange:
            await guard.count(counting, Counted(what="vote", roles={"voter": voter}), functools.partial(vote, exchange))


def framed(message: Message, version: int) -> bytes:
    """A request with its length in front."""
    api_key = message.__schema__.api_key
    assert api_key is not None, message
    frame = encode_request(api_key, version, 1, "bench", message, apis=ALL_APIS)
    return len(frame).to_bytes(4, "big") + frame


class Topics:
    """The topics of the brokers, and requests about partition 0 of each."""

    def __init__(self) -> None:
        self.ids: dict[str, Uuid] = {}

    async def create(
        self, exchange: Exchange, topics: Mapping[str, tuple[int, ...]] = TOPICS, segment_bytes: int | None = None
    ) -> None:
        """Make the topics, and wait until a broker leads each."""
        configs = []
        if segment_bytes is not None:
            configs.append(create_topics.CreatableTopicConfig(name="segment.bytes", value=str(segment_bytes)))
        wanted = [
            create_topics.CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[create_topics.CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))],
                configs=configs,
            )
            for name, replicas in topics.items()
        ]
        request = create_topics.CreateTopicsRequest(topics=wanted, timeout_ms=HOURS_MS)
        answer = await exchange(framed(request, CREATE_VERSION))
        _, made = decode_response(ApiKey.CREATE_TOPICS, CREATE_VERSION, answer, apis=ALL_APIS)
        assert isinstance(made, create_topics.CreateTopicsResponse), made
        for topic in made.topics:
            assert not topic.error_code, topic
            assert topic.name is not None
            self.ids[topic.name] = topic.topic_id
        for name in topics:
            await self.until_led(name, exchange)

    async def until_led(self, name: str, exchange: Exchange) -> None:
        """Wait until the broker takes a record for a topic."""
        for _ in range(TRIES):
            if not self.error_of_produce(await exchange(self.produce(name, ACKS_ALL))):
                return
            await trio.sleep(RETRY_S)
        raise AssertionError(f"nobody leads {name}")

    def produce(self, name: str, acks: int) -> bytes:
        """A request for a batch of one record."""
        batch = build_batch(0, -1, 0, [b"x" * VALUE_BYTES])
        part = produce.PartitionProduceData(index=0, records=batch)
        topic = produce.TopicProduceData(topic_id=self.ids[name], partition_data=[part])
        return framed(produce.ProduceRequest(acks=acks, timeout_ms=HOURS_MS, topic_data=[topic]), PRODUCE_VERSION)

    def error_of_produce(self, answer: bytes) -> int:
        """The error in an answer; 0 for none."""
        _, reply = decode_response(ApiKey.PRODUCE, PRODUCE_VERSION, answer, apis=ALL_APIS)
        assert isinstance(reply, produce.ProduceResponse), reply
        return reply.responses[0].partition_responses[0].error_code


class Reader:
    """A fetch session about one partition that gets one batch after the other."""

    def __init__(
        self,
        topic_id: Uuid,
        exchange: Exchange,
        *,
        replica: fetch.ReplicaState | None = None,
        offset: int = 0,
        leader_epoch: int = 0,
    ) -> None:
        self._topic_id = topic_id
        self._exchange = exchange
        self._replica = replica or fetch.ReplicaState()
        self._session = self._epoch = 0
        self._offset = offset
        self._leader_epoch = leader_epoch

    async def next(self, number: int) -> None:
        """Fetch the next batch; the number says nothing."""
        part = fetch.FetchPartition(
            partition=0,
            fetch_offset=self._offset,
            current_leader_epoch=self._leader_epoch,
            last_fetched_epoch=0 if self._replica.replica_id >= 0 else -1,
            log_start_offset=0 if self._replica.replica_id >= 0 else -1,
            partition_max_bytes=1,
        )
        request = fetch.FetchRequest(
            replica_state=self._replica,
            max_wait_ms=HOURS_MS,
            min_bytes=1,
            session_id=self._session,
            session_epoch=self._epoch,
            topics=[fetch.FetchTopic(topic_id=self._topic_id, partitions=[part])],
        )
        answer = await self._exchange(framed(request, FETCH_VERSION))
        _, reply = decode_response(ApiKey.FETCH, FETCH_VERSION, answer, apis=ALL_APIS)
        assert isinstance(reply, fetch.FetchResponse), reply
        assert not reply.error_code, reply
        [found] = reply.responses[0].partitions
        assert not found.error_code, found
        assert found.records, found
        self._session, self._epoch, self._offset = reply.session_id, self._epoch + 1, self._offset + 1


async def count_brokers(guard: Guard, root: Path, counting: Counting) -> None:
    """Count the work of brokers for records that a client writes, and for readers of them."""
    cluster = Processes(root, counting, voters=(CONTROLLER,), brokers=BROKERS)
    async with cluster.running((CONTROLLER,)) as controllers, trio.open_nursery() as nursery:
        await active_leader(controllers)
        registrations = controllers[CONTROLLER].watch(("RegisterBrokerRecord",))
        for broker in BROKERS:
            await nursery.start(cluster.start, broker)
        epochs = {}
        async for change in registrations:
            epochs[change.record.broker_id] = change.record.broker_epoch
            if len(epochs) == len(BROKERS):
                break
        for broker in BROKERS:
            await cluster.until_open(broker)
        topics = Topics()
        async with cluster.clients(LEADER, MANY) as clients:
            await topics.create(clients[0])
            await count_produce(guard, counting, topics, clients)
            # From now on the third broker is this bench.
            cluster.kill(THIRD)
            await count_fetches(guard, counting, topics, clients, epochs[THIRD])
        nursery.cancel_scope.cancel()


async def count_produce(guard: Guard, counting: Counting, topics: Topics, clients: list[Exchange]) -> None:
    """Count the work of a leader and a follower for a record."""
    for what, topic, acks, parts in (
        ("produce acks=all", REPLICATED, ACKS_ALL, {"leader": LEADER, "follower": FOLLOWER}),
        ("produce acks=1", ALONE, 1, {"leader": LEADER}),
    ):
        frame = topics.produce(topic, acks)
        for in_flight in (1, MANY):

            async def once(number: int, in_flight: int = in_flight, frame: bytes = frame) -> None:
                answer = await clients[number % in_flight](frame)
                assert not topics.error_of_produce(answer), "the record was not acknowledged"

            if guard.wants(what):
                await guard.count(counting, Counted(what=what, roles=parts, in_flight=in_flight), once)


async def count_fetches(guard: Guard, counting: Counting, topics: Topics, clients: list[Exchange], epoch: int) -> None:
    """Count the work of a leader for the next batch of a consumer, and of a follower."""
    batches = BATCHES_BETWEEN_ENTRIES + WARM_UP[1] + 2 * ROUNDS[1] + WARM_UP[MANY] + 2 * ROUNDS[MANY]
    for topic in (ALONE, FOLLOWED):
        for _ in range(batches):
            assert not topics.error_of_produce(await clients[0](topics.produce(topic, 1)))
    # An offset is looked for from the index entry before it: a round has all distances from one.
    at = itertools.cycle(range(BATCHES_BETWEEN_ENTRIES))
    consumers = [
        Reader(topics.ids[ALONE], exchange, offset=offset) for exchange, offset in zip(clients, at, strict=False)
    ]
    for in_flight in (1, MANY):

        async def once(number: int, in_flight: int = in_flight) -> None:
            await consumers[number % in_flight].next(number)

        if guard.wants("fetch of a consumer"):
            counted = Counted(what="fetch of a consumer", roles={"leader": LEADER}, in_flight=in_flight)
            await guard.count(counting, counted, once)
    if guard.wants("fetch of a follower"):
        state = fetch.ReplicaState(replica_id=THIRD, replica_epoch=epoch)
        follower = Reader(topics.ids[FOLLOWED], clients[0], replica=state)
        await guard.count(counting, Counted(what="fetch of a follower", roles={"leader": LEADER}), follower.next)


async def hold(exchange: Exchange, talk: Talk) -> None:
    """Hold a conversation to its end."""
    frame = next(talk)
    while True:
        answer = await exchange(frame)
        try:
            frame = talk.send(answer)
        except StopIteration:
            return


async def count_coordinators(guard: Guard, root: Path, counting: Counting) -> None:
    """Count the work of a broker as the coordinator of groups and of transactions."""
    cluster = Processes(root, counting, voters=(CONTROLLER,), brokers=(LEADER,))
    async with cluster.running((CONTROLLER,)) as controllers, trio.open_nursery() as nursery:
        await active_leader(controllers)
        await nursery.start(cluster.start, LEADER)
        await cluster.until_open(LEADER)
        async with cluster.clients(LEADER, MANY) as clients:
            await Topics().create(clients[0], {ALONE: TOPICS[ALONE]})
            members = [ClassicMember(f"group-{number}", ALONE) for number in range(MANY)]
            for exchange, member in zip(clients, members, strict=True):
                await hold(exchange, finding(member.group, GROUP))
                await hold(exchange, member.joining())
            await count_members(guard, counting, clients, members)
            if guard.wants(OF_OFFSETS):
                await count_transactions(guard, counting, clients, members)
        nursery.cancel_scope.cancel()


async def count_members(
    guard: Guard, counting: Counting, clients: list[Exchange], members: list[ClassicMember]
) -> None:
    """Count the work of a coordinator for the requests that members repeat."""
    for what, frames in (
        ("offset commit", [member.commit() for member in members]),
        ("heartbeat", [member.heartbeat() for member in members]),
    ):
        if not guard.wants(what):
            continue
        expected = [await exchange(frame) for exchange, frame in zip(clients, frames, strict=True)]
        for in_flight in (1, MANY):

            async def once(
                number: int,
                in_flight: int = in_flight,
                frames: list[bytes] = frames,
                expected: list[bytes] = expected,
            ) -> None:
                client = number % in_flight
                answer = await clients[client](frames[client])
                assert answer == expected[client], "the same request has another answer"

            await guard.count(counting, Counted(what=what, roles={"leader": LEADER}, in_flight=in_flight), once)


async def count_transactions(
    guard: Guard, counting: Counting, clients: list[Exchange], members: list[ClassicMember]
) -> None:
    """Count the work of the coordinators for a transaction that has offsets alone."""
    producers = [TransactionalProducer(f"id-{number}", ALONE, 0) for number in range(MANY)]
    for exchange, producer in zip(clients, producers, strict=True):
        await hold(exchange, producer.starting())
    for in_flight in (1, MANY):

        async def once(number: int, in_flight: int = in_flight) -> None:
            client = number % in_flight
            await hold(clients[client], producers[client].consuming(members[client]))

        await guard.count(counting, Counted(what=OF_OFFSETS, roles={"leader": LEADER}, in_flight=in_flight), once)


COUNTS: Final[dict[tuple[str, ...], Callable[[Guard, Path, Counting], Awaitable[None]]]] = {
    ("commit", STREAM): count_commits,
    ("write",): count_writes,
    ("vote",): count_votes,
    ("produce acks=all", "produce acks=1", "fetch of a consumer", "fetch of a follower"): count_brokers,
    ("offset commit", "heartbeat", OF_OFFSETS): count_coordinators,
}
"""What each function counts."""


@contextmanager
def counted_alike() -> Iterator[None]:
    """Each run has its tasks and flushes in the same order."""
    # Trio shuffles the tasks of one moment; with the same seed it does so in the same way each time.
    scheduler = importlib.import_module("trio._core._run")
    scheduler.__dict__["_ALLOW_DETERMINISTIC_SCHEDULING"] = True
    scheduler.__dict__["_r"].seed(0)
    begin = Flusher.begin

    def in_place(flusher: Flusher, *, is_busy: bool) -> bool:
        """A thread would take its time."""
        return begin(flusher, is_busy=False)

    with mock.patch.object(Flusher, "begin", in_place):
        yield


def measure(options: argparse.Namespace) -> dict[str, Walk]:
    """All figures."""
    guard = Guard(options.only or [], options.top)
    recording = run._recording
    with (
        counted_alike(),
        tempfile.TemporaryDirectory(prefix="bench-guard-", dir=options.dir) as scratch,
        ExitStack() as stack,
    ):
        if options.protocol:
            places = (str(Path(scratch) / f"{number}.steps") for number in itertools.count())
            recorded = mock.patch.object(run, "_recording", lambda path, log: recording(next(places), log))
            stack.enter_context(recorded)
        for what, count in COUNTS.items():
            if any(map(guard.wants, what)):
                counting = Counting()
                run_counted = functools.partial(trio.run, clock=counting.clock, instruments=[counting])
                run_counted(count, guard, Path(scratch) / count.__name__, counting)
    return guard.walks


SLACK: Final = {"calls": (0.015, 0.5), "syncs": (0, 0), "bytecode": (0.08, 5), "objects": (0.05, 0.5)}
"""What has a ceiling, and by how much two runs of the same code may differ: a part of it, and a number besides. Which
of two nodes has its turn first differs with the tracing of instructions, so that bytecode differs most."""
Ceilings = dict[str, dict[str, list[float]]]
"""By the name of a line and of a figure: all ceilings so far, the present one last."""


def above(walks: dict[str, Walk], ceilings: Ceilings) -> list[str]:
    """List the figures that are above their ceilings, or have none, or counted nothing."""
    found = []
    for name, walk in walks.items():
        for figure in SLACK:
            value, history = getattr(walk, figure), ceilings.get(name, {}).get(figure)
            if history is None:
                found.append(f"{name}: {figure} {value:,g} has no ceiling")
            elif value <= 0 and figure != "syncs":
                found.append(f"{name}: {figure} {value:,g} is no count")
            elif value > history[-1] * (1 + SLACK[figure][0]) + SLACK[figure][1]:
                found.append(f"{name}: {figure} {value:,g} > {history[-1]:,g}")
    return found


def counted_again(walks: dict[str, Walk], ceilings: Ceilings, options: argparse.Namespace) -> dict[str, Walk]:
    """Count such lines twice more: on a busy machine work may take a turn more, or fall between two rounds."""
    for _ in range(2):
        names = {one.partition(":")[0] for one in above(walks, ceilings)}
        if not names:
            break
        options.only = sorted({name.partition(", ")[0] for name in names})
        again = measure(options)
        walks = walks | {name: again[name] for name in names if not above({name: again[name]}, ceilings)}
    return walks


def lower(walks: dict[str, Walk], ceilings: Ceilings) -> None:
    """Let each figure be its own ceiling, if it is below the present one."""
    for name, walk in walks.items():
        for figure in SLACK:
            history = ceilings.setdefault(name, {}).setdefault(figure, [])
            if not history or getattr(walk, figure) < history[-1]:
                history[:] = [getattr(walk, figure)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="NAME", help="what begins so; may be repeated")
    memory = MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir())
    parser.add_argument("--dir", type=Path, default=memory, help="where the nodes keep their files")
    parser.add_argument("--top", type=int, default=0, help="list so many functions of each line")
    parser.add_argument(
        "--protocol", action="store_true", help="the nodes write their steps, as for `serve --protocol`"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="compare with the ceilings")
    parser.add_argument("--ceilings", type=Path, default=CEILINGS, help="another file of ceilings")
    parser.add_argument("--lower", action="store_true", help="write lower ceilings")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    ceilings = msgspec.json.decode(options.ceilings.read_bytes(), type=Ceilings)
    walks = measure(options)
    if options.check:
        walks = counted_again(walks, ceilings, options)
    if options.json:
        print(json.dumps(msgspec.to_builtins(walks)))
    else:
        print("| for one request | in flight | calls | modules | syncs | bytecode | objects |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for name, walk in walks.items():
            what, in_flight = name.rsplit(", ", 1)
            print(
                f"| {what} | {in_flight} | {walk.calls:,g} | {walk.modules} | {walk.syncs:g} | {walk.bytecode:,.0f} "
                f"| {walk.objects:,g} |"
            )
    if options.check:
        if options.lower:
            lower(walks, ceilings)
            lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(figures)}" for name, figures in ceilings.items())
            options.ceilings.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
        if found := above(walks, ceilings):
            sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
