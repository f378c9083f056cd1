"""Do two commits behave alike? Digests of simulated runs of every kind, to compare two states of the code.

    python bench/digests.py [--seeds 5] [--first 0] [--only KIND] [--jobs 1] --out FILE
    python bench/digests.py --against FILE [--jobs 1]

The first form runs seeds of each kind of members that `kraft sim run` knows, with their profiles in turn, and writes
one digest for each part of each run. The second form repeats the runs that a file has, names each digest that differs,
and ends with exit code 1 if one does. The parts say where to look:

- trace: what happened to which node at what time, and its state after it
- messages: the bytes of each request and answer of a node, where it goes and how long it waits, in the order of sending
- disk: each operation on a disk that changes it or makes it durable, with its bytes, in order; at the end all files
- result: events, elections, records, voters and snapshots; or what invariant was violated

No digest has the name of a class or a module, the text of a `repr`, or an id that only a node itself reads. So code
can move and get other names, and what a peer, a disk or a client sees keeps its digest. Another
commit is measured from its own working tree, whose packages come first on the path:

    git worktree add --detach ../base COMMIT
    PYTHONPATH=../base python bench/digests.py --out base.json     # the names that this script imports must be there
    python bench/digests.py --against base.json
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from enum import Enum
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from unittest import mock

import msgspec
from msgspec import Struct

from kraft.sim.nodes.frames import Frame
from kraft.sim.runs.seeded_run import Result
from kraft.sim.search.schedule import Schedule
from kraft.sim.search.seed_search import KINDS, SeedSearch
from kraft.sim.world.host import Host
from kraft.sim.world.member_interface import Administered, Answer, Corrupted, Done, Flush, Output, SimulatedRequest
from kraft.sim.world.world import World
from metadata_log.errors import EncodeError
from metadata_log.memory_disk import MemoryDisk, MemoryFile
from metadata_log.serde import Message, encode
from transport.protocol.broker_apis import ALL_APIS

OBJECTS_AT_ONCE: Final = 50_000
"""The number of added objects after which garbage is collected."""


class Digests(Struct, frozen=True):
    """The digests of one run, in hexadecimal."""

    trace: str
    messages: str
    disk: str
    result: str


Stored = dict[str, dict[str, Digests]]
"""By kind, and then by seed."""


class Observer:
    """Digests what the nodes of a run send and write."""

    def __init__(self) -> None:
        self.messages = blake2b(digest_size=16)
        self.disk = blake2b(digest_size=16)
        self.world: World | None = None

    def sent(self, world: World, node_id: int, output: Output) -> None:
        """A node has an output."""
        self.world = world
        match output:
            case SimulatedRequest():
                facts: tuple[object, ...] = (output.peer_id, output.kind, output.timeout_ms, output.fetch_offset)
                content = content_of(output.message)
            case Answer():
                facts = (output.granted, output.pre_granted)
                content = content_of(output.message)
            case Administered():
                facts, content = (), content_of(output.response)
            case Done():
                facts, content = (output.submit_id, output.outcome.value, output.base_offset), output.record or b""
            case Flush():
                facts, content = ("flush",), b""
            case _:
                return
        head = f"{world.now_ms} {node_id} {facts} {len(content)}\n"
        self.messages.update(head.encode())
        self.messages.update(content)

    def wrote(self, operation: str, path: str, data: bytes = b"") -> None:
        """A node changes its disk."""
        self.disk.update(f"{operation} {path} {len(data)}\n".encode())
        self.disk.update(data)

    def ended(self) -> None:
        """The run is over: whatever is on the disks, and in the logs of bare cores, counts."""
        assert self.world is not None
        for node_id, host in self.world.hosts.items():
            disk = getattr(host.member, "disk", None)
            if disk is None:
                self.wrote("log", str(node_id), msgspec.msgpack.encode(host.member.read(0)))
                continue
            for path in disk.files.files():
                self.wrote(f"file of {node_id}", path, disk.files.peek(path))


def content_of(message: object) -> bytes:
    """The content of a message: the bytes of a frame, or the values of a message between bare cores."""
    match message:
        case Frame(api_key=key, version=version, body=body):
            return f"{key} {version} ".encode() + (body if isinstance(body, bytes) else encoded(body, key, version))
        case Corrupted():
            return content_of(message.message)
        case Message():
            api_key = message.__schema__.api_key
            assert api_key is not None, message
            return f"{api_key} ".encode() + encoded(message, api_key, ALL_APIS[api_key].versions.highest)
        case _:
            return repr(values_of(message)).encode()


def encoded(message: Message, key: int, version: int) -> bytes:
    """A message of a run without the codecs, where a version may carry what none can on a wire."""
    for one in (version, ALL_APIS[key].versions.highest):
        with suppress(EncodeError):
            return encode(message, one)
    return repr(values_of(message)).encode()


def values_of(value: object) -> object:
    """A value without names of classes and fields."""
    match value:
        case Enum():
            return values_of(value.value)
        case Struct():
            return tuple(values_of(getattr(value, name)) for name in value.__struct_fields__)
        case tuple() | list():
            return tuple(values_of(one) for one in value)
        case dict():
            return tuple((values_of(key), values_of(one)) for key, one in value.items())
        case frozenset() | set():
            return tuple(sorted(repr(values_of(one)) for one in value))
        case _:
            return value


@contextmanager
def observing() -> Iterator[Observer]:
    """Digest what the simulated nodes do within the block."""
    observer = Observer()
    carry_out, about_to, append = World._carry_out, MemoryDisk._about_to, MemoryFile.append

    def carried_out(world: World, host: Host, node_id: int, output: Output) -> None:
        observer.sent(world, node_id, output)
        carry_out(world, host, node_id, output)

    def changed(disk: MemoryDisk, operation: str, path: str) -> None:
        observer.wrote(operation, path)
        about_to(disk, operation, path)

    def appended(file: MemoryFile, data: bytes) -> None:
        observer.wrote("bytes", file.path, bytes(data))
        append(file, data)

    with (
        mock.patch.object(World, "_carry_out", carried_out),
        mock.patch.object(MemoryDisk, "_about_to", changed),
        mock.patch.object(MemoryFile, "append", appended),
    ):
        yield observer


def digests_of(kind: str, seed: int) -> Digests:
    """Run one seed of one kind."""
    gc.set_threshold(OBJECTS_AT_ONCE)
    with observing() as observer:
        outcome = SeedSearch(members=kind, allow_undecided=True).run(seed)
    observer.ended()
    trace, counted = "", ""
    match outcome:
        case Result():
            trace = outcome.digest
            counted = f"{outcome.events} {outcome.elapsed_ms} {outcome.leaders} {outcome.committed}"
            counted += f" {outcome.acknowledged} {outcome.voter_sets} {outcome.snapshots} {outcome.undecided}"
        case Schedule():
            counted = f"violated: {outcome.violated} {outcome.message}"
    return Digests(trace, observer.messages.hexdigest(), observer.disk.hexdigest(), counted)


def run(pairs: list[tuple[str, int]], jobs: int) -> Iterator[tuple[str, int, Digests]]:
    """The digests of these kinds and seeds, in order."""
    if jobs == 1:
        for kind, seed in pairs:
            yield kind, seed, digests_of(kind, seed)
        return
    with ProcessPoolExecutor(jobs) as pool:
        found = pool.map(digests_of, *zip(*pairs, strict=True))
        for (kind, seed), digests in zip(pairs, found, strict=True):
            yield kind, seed, digests


def differing(old: Digests, new: Digests) -> list[str]:
    """The parts that are not equal."""
    return [name for name in Digests.__struct_fields__ if getattr(old, name) != getattr(new, name)]


def compare(path: Path, only: list[str] | None, jobs: int) -> int:
    """Repeat the runs of a file, and print what differs; the number of runs that do."""
    stored = msgspec.json.decode(path.read_bytes(), type=Stored)
    pairs = [(kind, int(seed)) for kind, runs in stored.items() for seed in runs if kind in (only or stored)]
    changed = 0
    for kind, seed, digests in run(pairs, jobs):
        if parts := differing(stored[kind][str(seed)], digests):
            changed += 1
            print(f"{kind}, seed {seed}: {', '.join(parts)} differ", flush=True)
    print(f"{len(pairs) - changed} of {len(pairs)} runs are equal")
    return changed


def write(path: Path, pairs: list[tuple[str, int]], jobs: int) -> None:
    """Run these and store their digests."""
    stored: Stored = {}
    for kind, seed, digests in run(pairs, jobs):
        stored.setdefault(kind, {})[str(seed)] = digests
    path.write_bytes(msgspec.json.format(msgspec.json.encode(stored)) + b"\n")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="how many of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed of each kind")
    parser.add_argument("--only", action="append", choices=KINDS, metavar="KIND", help="only this; may be repeated")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    where: Any = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", type=Path, metavar="FILE", help="write the digests")
    where.add_argument("--against", type=Path, metavar="FILE", help="repeat the runs of a file, and compare")
    options = parser.parse_args(arguments)
    if options.against is not None:
        return 1 if compare(options.against, options.only, options.jobs) else 0
    seeds = range(options.first, options.first + options.seeds)
    write(options.out, [(kind, seed) for kind in options.only or KINDS for seed in seeds], options.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
