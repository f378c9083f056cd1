"""How long is the way of one write, and of one vote? Counted, not timed, so that every host prints the same figures.

    python bench/path.py [--times 100] [--dir DIR] [--top 0] [--json]

Three nodes run in this process, each as a program runs it: TCP over epoll, files and fsync. They share one thread.

- commit: the nodes keep a raw log (`kraft.open_node`), and one caller appends one value after the other. What the
  leader and one follower do from one commit to the next.
- write: the nodes are controllers, and one client asks one thing after the other (IncrementalAlterConfigs over TCP, as
  in `commit.py`). The same, with a request, a decision, its replay and an answer.
- vote: one controller is asked again and again for its vote in a higher epoch. What it does from the request to the
  answer.

For each the bench prints:

- calls: calls of functions of `kraft`, `metadata_log` and `transport`, compiled codecs and resumed generators included
- modules: how many modules these functions are from
- syncs: calls of fsync and fdatasync
- bytecode: instructions that the interpreter executes in these functions

Each figure is the one that most commits, writes or votes have. While the bench counts, the clock of the nodes stands
still, so that no timer comes in between, and the files are in memory unless --dir says otherwise.
--top N lists the N functions that are called most, for each line.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import itertools
import json
import os
import socket
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any, Final

import trio
from load import frame_of
from msgspec import Struct, to_builtins
from trio.testing import MockClock

import kraft
import metadata_log
import transport
from kraft import Config
from kraft.node.embed import tcp_transport
from kraft.node.node import Node
from kraft.node.run import run_node
from kraft.replica.hosts.controller_host import host_controller
from kraft.replica.interface.application import ApplicationFactory, host_silent_raw_log
from metadata_log.disk import OsDisk
from metadata_log.log.log_dir import format_directory
from metadata_log.types import random_uuid
from transport.protocol.apis import ApiKey
from transport.protocol.headers import decode_response, encode_request
from transport.protocol.messages.vote import (
    VoteRequest,
    VoteRequestPartitionData,
    VoteRequestTopicData,
    VoteResponse,
)

NODES: Final = (1, 2, 3)
ROOTS: Final = (
    *(f"{Path(str(package.__file__)).parent}{os.sep}" for package in (kraft, metadata_log, transport)),
    "<codec",
)
"""What the file names of our code begin with; that of a compiled codec is no file."""
SYNCS: Final = frozenset({os.fsync, os.fdatasync})
VALUE_BYTES: Final = 128
MEMORY: Final = Path("/dev/shm")
WARM_UP: Final = 50
SETTLING: Final = 3
"""So often every task gets its turn before one commit is over."""
NUMBERS: Final = itertools.count()
"""Epochs and values that never repeat."""
FIRST_EPOCH: Final = 100
VOTE_VERSION: Final = 2
SETTINGS: Final = """\
process.roles=controller
node.id={node}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listeners=CONTROLLER://127.0.0.1:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT
log.dirs={directory}
controller.quorum.append.linger.ms=0
{more}"""
PATIENT: Final = "controller.quorum.election.timeout.ms=3600000\n"
"""A voter that never campaigns itself."""

Exchange = Callable[[bytes], Awaitable[bytes]]
"""Sends a frame, and returns the answer."""


class Walk(Struct, kw_only=True):
    """What one node usually does for one commit, write or vote."""

    name: str
    calls: int
    modules: int
    syncs: int
    bytecode: int


class Sample(Struct):
    """What one node did between two marks."""

    functions: Counter[CodeType]
    syncs: int = 0
    opcodes: int = 0


@functools.cache
def is_ours(code: CodeType) -> bool:
    """Whether a function is one of this project."""
    return code.co_filename.startswith(ROOTS)


class Counting(trio.abc.Instrument):
    """Counts what happens in the tasks of one node, call by call, or opcode by opcode."""

    def __init__(self) -> None:
        self.clock = MockClock(rate=1.0)
        self.samples: list[Sample] = []
        self._owners: dict[trio.lowlevel.Task, int] = {}
        self._counted = 0
        self._hook: Callable[[], None] | None = None
        self._now = Sample(Counter())

    def own(self, node: int) -> None:
        """The tasks below the running one are those of this node."""
        self._owners[trio.lowlevel.current_task()] = node

    def begin(self, node: int, *, opcodes: bool) -> None:
        """Count for this node from now on, while no time passes."""
        self.clock.rate = 0.0
        self.samples = []
        self._counted = node
        self._now = Sample(Counter())
        self._hook = self._trace_opcodes if opcodes else self._profile

    def mark(self) -> None:
        """One commit, or one vote, ends here."""
        self.samples.append(self._now)
        self._now = Sample(Counter())

    def end(self) -> None:
        """Count nothing more, and let the time pass again."""
        self.clock.rate = 1.0
        self._counted = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._counted and self._owner(task) == self._counted and self._hook is not None:
            self._hook()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        sys.setprofile(None)
        sys.settrace(None)

    def _owner(self, task: trio.lowlevel.Task) -> int:
        owner = self._owners.get(task)
        if owner is None:
            nursery = task.parent_nursery
            owner = self._owners[task] = 0 if nursery is None else self._owner(nursery.parent_task)
        return owner

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
                self._now.opcodes += 1
            return on_opcode

        def on_call(frame: FrameType, event: str, _: object) -> Any:
            if not is_ours(frame.f_code):
                return None
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
            return on_opcode

        sys.settrace(on_call)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nothing listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Quorum:
    """Nodes of one quorum, each with its tasks below a task that `Counting` knows."""

    def __init__(
        self, root: Path, counting: Counting, *, application: ApplicationFactory = host_controller, more: str = ""
    ) -> None:
        self.ports = dict(zip(NODES, free_ports(len(NODES)), strict=True))
        self.cluster_id = str(random_uuid(Random(7)))
        self._root = root
        self._counting = counting
        self._application = application
        self._more = more

    async def start(self, node: int, *, task_status: trio.TaskStatus[Node] = trio.TASK_STATUS_IGNORED) -> None:
        """Format and run one node until cancelled."""
        self._counting.own(node)
        directory = str(self._root / f"node-{node}")
        disk, rng = OsDisk(), Random(node)
        format_directory(disk, directory, node_id=node, cluster_id=self.cluster_id, rng=rng, now_ms=0)
        voters = ",".join(f"{one}@127.0.0.1:{port}" for one, port in self.ports.items())
        text = SETTINGS.format(node=node, voters=voters, port=self.ports[node], directory=directory, more=self._more)
        config = Config.parse(text, source=f"node {node}")
        await run_node(
            config,
            transport=tcp_transport(config),
            disk=disk,
            rng=rng,
            application=self._application,
            task_status=task_status,
        )

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


def usual(numbers: list[int]) -> int:
    """What most have."""
    return statistics.mode(numbers)


async def count(
    counting: Counting, name: str, node: int, options: argparse.Namespace, once: Callable[[int], Awaitable[None]]
) -> Walk:
    """Do something often for calls, and again for opcodes; `once` gets a number that never repeats."""
    for _ in range(WARM_UP):
        await once(next(NUMBERS))
    samples: dict[bool, list[Sample]] = {}
    for opcodes in (False, True):
        counting.begin(node, opcodes=opcodes)
        for _ in range(options.times):
            await once(next(NUMBERS))
            # What the other tasks still have to do for this one.
            for _ in range(SETTLING):
                await trio.lowlevel.checkpoint()
            counting.mark()
        counting.end()
        samples[opcodes] = counting.samples
    by_calls = samples[False]
    calls = usual([one.functions.total() for one in by_calls])
    list_functions(name, next(one for one in by_calls if one.functions.total() == calls), options.top)
    return Walk(
        name=name,
        calls=calls,
        modules=usual([len({code.co_filename for code in one.functions}) for one in by_calls]),
        syncs=usual([one.syncs for one in by_calls]),
        bytecode=usual([one.opcodes for one in samples[True]]),
    )


def list_functions(name: str, sample: Sample, top: int) -> None:
    """Print the functions that are called most."""
    if top:
        print(f"\n{name}: {sample.functions.total()} calls")
        for code, calls in sample.functions.most_common(top):
            print(f"{calls:6} {code.co_qualname:50} {Path(code.co_filename).name}:{code.co_firstlineno}")


async def active_leader(nodes: dict[int, Node]) -> int:
    """The node that leads, once it takes appends and requests."""
    leader_id = (await nodes[NODES[0]].wait_for_leader()).leader_id
    while not nodes[leader_id].is_active:
        await nodes[leader_id].wait_for_change()
    return leader_id


def roles(leader_id: int) -> tuple[tuple[str, int], tuple[str, int]]:
    """The leader and one of its followers."""
    return ("leader", leader_id), ("follower", next(node for node in NODES if node != leader_id))


async def walk_commits(root: Path, counting: Counting, options: argparse.Namespace) -> list[Walk]:
    """What the leader and a follower of a raw log do for one append of the leader's own program."""
    quorum = Quorum(root, counting, application=host_silent_raw_log)
    async with quorum.running(NODES) as nodes:
        leader_id = await active_leader(nodes)
        counting.own(leader_id)
        value = b"x" * VALUE_BYTES

        async def once(_: int) -> None:
            await nodes[leader_id].append([value])

        return [await count(counting, f"commit, {role}", node, options, once) for role, node in roles(leader_id)]


async def walk_writes(root: Path, counting: Counting, options: argparse.Namespace) -> list[Walk]:
    """What the active controller and a standby do for one request."""
    quorum = Quorum(root, counting)
    async with quorum.running(NODES) as nodes:
        leader_id = await active_leader(nodes)
        frames = [frame_of(0, turn, VALUE_BYTES) for turn in (0, 1)]
        async with quorum.client(leader_id) as exchange:
            expected = await exchange(frames[1])

            async def once(number: int) -> None:
                answer = await exchange(frames[number % 2])
                assert answer == expected, "an answer was not that of a committed write"

            return [await count(counting, f"write, {role}", node, options, once) for role, node in roles(leader_id)]


async def walk_votes(root: Path, counting: Counting, options: argparse.Namespace) -> list[Walk]:
    """What a voter does to give its vote in a higher epoch; the other two voters are deaf."""
    quorum = Quorum(root, counting, more=PATIENT)
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
        frame = encode_request(ApiKey.VOTE, VOTE_VERSION, number, "bench", request)
        answer = await exchange(len(frame).to_bytes(4, "big") + frame)
        _, reply = decode_response(ApiKey.VOTE, VOTE_VERSION, answer)
        assert isinstance(reply, VoteResponse), reply
        assert reply.topics[0].partitions[0].vote_granted, reply

    with ExitStack() as deaf:
        # The voter asks these listeners for the leader. They accept its connections, and send no answer.
        for other in set(NODES) - {voter}:
            deaf.enter_context(socket.create_server(("127.0.0.1", quorum.ports[other])))
        async with quorum.running((voter,)), quorum.client(voter) as exchange:
            return [await count(counting, "vote, voter", voter, options, functools.partial(vote, exchange))]


def measure(options: argparse.Namespace) -> list[Walk]:
    """All figures."""
    # Trio shuffles the tasks of one moment; with the same seed it does so in the same way each time.
    scheduler = importlib.import_module("trio._core._run")
    scheduler.__dict__["_ALLOW_DETERMINISTIC_SCHEDULING"] = True
    scheduler.__dict__["_r"].seed(0)
    walks: list[Walk] = []
    with tempfile.TemporaryDirectory(prefix="bench-path-", dir=options.dir) as scratch:
        for walk in (walk_commits, walk_writes, walk_votes):
            counting = Counting()
            run = functools.partial(trio.run, clock=counting.clock, instruments=[counting])
            walks += run(walk, Path(scratch) / walk.__name__, counting, options)
    return walks


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100, help="how many of each to count")
    memory = MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir())
    parser.add_argument("--dir", type=Path, default=memory, help="where the nodes keep their files")
    parser.add_argument("--top", type=int, default=0, help="list so many functions of each walk")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    walks = measure(options)
    if options.json:
        print(json.dumps(to_builtins(walks)))
        return
    print(f"{'':24}{'calls':>8}{'modules':>9}{'syncs':>7}{'bytecode':>10}")
    for walk in walks:
        print(f"{walk.name:24}{walk.calls:8}{walk.modules:9}{walk.syncs:7}{walk.bytecode:10}")


if __name__ == "__main__":
    main()
