"""The attacks, each a bounded program of its own: `python attack.py NAME TARGET_JSON`. Prints what it did as JSON.

An attacker that can reach the port needs no credentials here. `FORGERIES` speak for a voter with values that a voter
could send; only authentication (TLS) stops these. A correct node survives all other attacks without losing its leader.
"""

from __future__ import annotations

import json
import resource
import select
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count, islice
from random import Random
from typing import Any, Final

from msgspec import Struct, convert

from metadata_log.types import METADATA_TOPIC
from support.hostile.fake_leader import FakeLeader
from support.hostile.frames import any_request, framed, metadata_fetch, mutated, random_message, request_frame, vote
from transport.protocol.apis import APIS, ApiKey
from transport.protocol.headers import encode_request
from transport.protocol.messages import (
    ApiVersionsRequest,
    BeginQuorumEpochRequest,
    BrokerHeartbeatRequest,
    DeleteTopicsRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    EndQuorumEpochRequest,
    IncrementalAlterConfigsRequest,
)
from transport.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequestPartitionData,
    BeginQuorumEpochRequestTopicData,
    LeaderEndpoint,
)
from transport.protocol.messages.describe_quorum import (
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from transport.protocol.messages.end_quorum_epoch import (
    EndQuorumEpochRequestPartitionData,
    EndQuorumEpochRequestTopicData,
)
from transport.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource

MAX_INT32: Final = (1 << 31) - 1
QUORUM_KEYS: Final = {
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
}
CLIENT_METRICS: Final = 16
FLOOD_FRAMES: Final = 50
PATIENCE_SECONDS: Final = 0.2


class Target(Struct, frozen=True):
    """The quorum under attack, and for how long."""

    ports: dict[int, int]
    leader: int
    epoch: int
    end_offset: int
    cluster_id: str
    seed: int
    seconds: float


class SeededAttack:
    """The tools of each attack: a seeded source of choices, its time, and a count of what happened."""

    def __init__(self, seed: int, seconds: float) -> None:
        self.rng = Random(seed)
        self.did: Counter[str] = Counter()
        self._seconds = seconds
        self._until: float | None = None
        self._never = threading.Event()

    @property
    def goes_on(self) -> bool:
        """Whether there is time left, which begins when the attack first asks: bombs take a while to build."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._seconds
        return now < self._until

    def pause(self, seconds: float) -> None:
        """Wait: an attack is bounded in its rate as well."""
        self._never.wait(seconds)


class Attacker(SeededAttack):
    """The attack on a quorum, with its target and sockets."""

    def __init__(self, target: Target) -> None:
        super().__init__(target.seed, target.seconds)
        self.target = target

    def any_port(self) -> int:
        """The port of some node."""
        return self.rng.choice(sorted(self.target.ports.values()))

    @property
    def leader_port(self) -> int:
        """The port of the leader."""
        return self.target.ports[self.target.leader]

    def connect(self, port: int) -> socket.socket | None:
        """A connection, or None where the node takes none."""
        try:
            connection = socket.create_connection(("127.0.0.1", port), 2)
        except OSError:
            self.did["refused connections"] += 1
            return None
        connection.settimeout(PATIENCE_SECONDS)
        self.did["connections"] += 1
        return connection

    @contextmanager
    def connection(self, port: int) -> Iterator[socket.socket | None]:
        """A connection that is closed at the end of the block; what the node does to it is only counted."""
        connection = self.connect(port)
        try:
            yield connection
        except OSError as gone:
            self.did[type(gone).__name__] += 1
        finally:
            if connection is not None:
                connection.close()

    def send(self, connection: socket.socket, data: bytes) -> None:
        """Send as much as the node takes within a moment."""
        try:
            connection.sendall(data)
            self.did["bytes sent"] += len(data)
        except TimeoutError:
            self.did["sends that the node did not take"] += 1

    def read(self, connection: socket.socket) -> int:
        """Read what comes within a moment; how many bytes that was."""
        try:
            got = len(connection.recv(1 << 20))
        except TimeoutError:
            return 0
        self.did["bytes read"] += got
        return got

    def read_all(self, connections: list[socket.socket]) -> None:
        """Read what has come on any of these."""
        ready, _, _ = select.select(connections, [], [], 0.01)
        for one in ready:
            if self.read(one) == 0:
                connections.remove(one)
                one.close()
                self.did["connections closed by the node"] += 1


def garbage(attacker: Attacker) -> None:
    """Bytes of no protocol, TLS, HTTP, and frames with garbage in them."""
    rng = attacker.rng
    while attacker.goes_on:
        with attacker.connection(attacker.any_port()) as connection:
            if connection is None:
                continue
            noise = rng.randbytes(rng.randint(1, 3000))
            http, tls = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", bytes.fromhex("16030100f8010000f40303") + noise
            attacker.send(connection, rng.choice((noise, framed(noise), http, tls, b"\xff\xff\xff\xff", framed(b""))))
        attacker.pause(0.002)


def half_frames(attacker: Attacker) -> None:
    """Many connections announce large frames and send their bytes slowly."""
    held: list[socket.socket] = []
    while attacker.goes_on:
        if len(held) < 150 and (connection := attacker.connect(attacker.any_port())) is not None:
            held.append(connection)
            with suppress(OSError):
                attacker.send(
                    connection, (90 << 20).to_bytes(4, "big") + encode_request(43, 2, 1, "x", ElectLeadersRequest())
                )
        for one in attacker.rng.sample(held, min(len(held), 20)):
            try:
                attacker.send(one, bytes(1 << 16))
            except OSError:
                held.remove(one)
                attacker.did["connections closed by the node"] += 1
        attacker.pause(0.005)


def unread_answers(attacker: Attacker) -> None:
    """Connections pipeline 200 Fetches for the whole log, and read nothing."""
    target = attacker.target
    burst = b"".join(metadata_fetch(1, target.epoch, correlation_id=one) for one in range(200))
    held: list[Any] = []
    while attacker.goes_on:
        if len(held) < 8 and (connection := attacker.connect(attacker.leader_port)) is not None:
            held.append(connection)
            with suppress(OSError):
                attacker.send(connection, burst)
        attacker.pause(0.05)


def old_offsets(attacker: Attacker) -> None:
    """A greedy reader asks for 300 old offsets at a time, and reads the answers."""
    target = attacker.target
    burst = b"".join(metadata_fetch(1 + one, target.epoch, correlation_id=one) for one in range(300))
    connections = [one for one in (attacker.connect(attacker.leader_port) for _ in range(2)) if one is not None]
    for one in connections:
        one.setblocking(False)
    left = dict.fromkeys(connections, b"")
    while attacker.goes_on and connections:
        readable, writable, _ = select.select(connections, connections, [], 0.05)
        for one in writable:
            left[one] = left[one] or burst
            with suppress(BlockingIOError, OSError):
                left[one] = left[one][one.send(left[one][: 1 << 14]) :]
        for one in readable:
            with suppress(BlockingIOError):
                attacker.did["bytes read"] += len(one.recv(1 << 20))
        attacker.pause(0.001)


def parked_fetches(attacker: Attacker) -> None:
    """Fetches that ask to wait for 25 days at the end of the log, from connections that close."""
    target = attacker.target
    one_fetch = metadata_fetch(target.end_offset + 1_000_000, target.epoch, max_wait_ms=MAX_INT32)
    at_end = metadata_fetch(target.end_offset, target.epoch, max_wait_ms=MAX_INT32)
    while attacker.goes_on:
        with attacker.connection(attacker.leader_port) as connection:
            if connection is not None:
                attacker.send(connection, (at_end + one_fetch) * 512)
                attacker.pause(0.05)


def idle_thousands(attacker: Attacker) -> None:
    """Thousands of connections that say nothing."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wanted = min(3000, hard - 100)
    held: list[Any] = []
    while attacker.goes_on and len(held) < wanted:
        if (connection := attacker.connect(attacker.any_port())) is None:
            attacker.pause(0.02)
            continue
        held.append(connection)
    while attacker.goes_on:
        attacker.pause(0.05)


def connect_storm(attacker: Attacker) -> None:
    """Connections that open and close at once, some of them with a reset."""
    while attacker.goes_on:
        with attacker.connection(attacker.any_port()) as connection:
            if connection is not None and attacker.rng.random() < 0.5:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        attacker.pause(0.001)


def mutated_frames(attacker: Attacker) -> None:
    """Requests of every API and version, with random values and broken bytes; elections are in a forgery below."""
    rng = attacker.rng
    while attacker.goes_on:
        with attacker.connection(attacker.any_port()) as connection:
            if connection is None:
                continue
            for _ in range(5):
                api, version, message = any_request(rng)
                if api.key in QUORUM_KEYS:
                    continue
                try:
                    frame = request_frame(message, version)
                except Exception:  # the random message has a field that this version cannot carry
                    attacker.did["messages that cannot be encoded"] += 1
                    continue
                attacker.send(connection, mutated(frame, rng) if rng.random() < 0.7 else frame)
                attacker.did["frames"] += 1
            attacker.read(connection)
        attacker.pause(0.002)


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def _header(key: ApiKey, version: int) -> bytes:
    return struct.pack(">hhih", key, version, 1, 1) + b"x" + b"\x00"


def bombs(attacker: Attacker) -> None:
    """Frames that are small or cheap to make, and expensive to decode: counts and tags by the million, patterns."""
    million = 1_000_000
    partitions = _varint(million + 1) + bytes(4) * million
    elect = _header(ApiKey.ELECT_LEADERS, 2) + b"\x00" + b"\x02" + b"\x02t" + partitions + b"\x00" + bytes(4) + b"\x00"
    names = _varint(million + 1) + b"\x02t" + bytes(16) + b"\x00"
    delete = (
        _header(ApiKey.DELETE_TOPICS, 6) + _varint(million + 1) + (b"\x02t" + bytes(16) + b"\x00") * million + bytes(5)
    )
    tags = b"".join(_varint(number) + b"\x00" for number in range(200_000))
    versions = _header(ApiKey.API_VERSIONS, 3) + b"\x02x\x02x" + _varint(200_000) + tags
    old = framed(struct.pack(">hhih", ApiKey.DELETE_TOPICS, 1, 1, 1) + b"x" + MAX_INT32.to_bytes(4, "big") + names)
    pattern = AlterableConfig(name="match", value="client_id=" + "(a*)*" * 4000 + "b")
    resource_ = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="bomb", configs=[pattern])
    regex = request_frame(IncrementalAlterConfigsRequest(resources=[resource_]), 1)
    many = DeleteTopicsRequest(topic_names=[f"t{number}" for number in range(20_000)])
    kinds = (framed(elect), framed(delete), framed(versions), old, regex, request_frame(many, 5))
    while attacker.goes_on:
        with attacker.connection(attacker.leader_port) as connection:
            if connection is not None:
                attacker.send(connection, attacker.rng.choice(kinds))
                attacker.read(connection)
                attacker.did["bombs"] += 1
        attacker.pause(0.05)


def absurd_elections(attacker: Attacker) -> None:
    """Votes, BeginQuorumEpoch and EndQuorumEpoch with epochs that no quorum reaches, of voters and of strangers."""
    target, rng = attacker.target, attacker.rng
    epochs = (MAX_INT32, MAX_INT32 - 1, MAX_INT32 - 1000, -1, -MAX_INT32 - 1)
    while attacker.goes_on:
        with attacker.connection(attacker.any_port()) as connection:
            if connection is None:
                continue
            for _ in range(4):
                epoch, replica = rng.choice(epochs), rng.choice((*target.ports, 99, -1, MAX_INT32))
                voter = rng.choice((*target.ports, -1))
                send_election(attacker, connection, voter, replica, epoch, offset=1 << 62, last_epoch=epoch)
            attacker.read(connection)
        attacker.pause(0.002)


def send_election(
    attacker: Attacker,
    connection: socket.socket,
    voter: int,
    replica: int,
    epoch: int,
    *,
    offset: int,
    last_epoch: int,
) -> None:
    """Send a Vote of `replica` to `voter`, or a BeginQuorumEpoch or EndQuorumEpoch in the name of `replica`."""
    match attacker.rng.randrange(3):
        case 0:
            pre_vote = attacker.rng.random() < 0.5
            frame = vote(voter, replica, epoch, pre_vote=pre_vote, offset=offset, last_epoch=last_epoch)
        case 1:
            frame = begin_epoch(attacker.target, replica, epoch, attacker.any_port())
        case _:
            frame = end_epoch(attacker.target, replica, epoch)
    attacker.send(connection, frame)
    attacker.did["frames"] += 1


def begin_epoch(target: Target, leader: int, epoch: int, port: int) -> bytes:
    """A BeginQuorumEpoch that names a leader that listens at `port`."""
    part = BeginQuorumEpochRequestPartitionData(leader_id=leader, leader_epoch=epoch)
    topic = BeginQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    endpoint = LeaderEndpoint(name="CONTROLLER", host="127.0.0.1", port=port)
    request = BeginQuorumEpochRequest(cluster_id=target.cluster_id, topics=[topic], leader_endpoints=[endpoint])
    return request_frame(request, 1)


def end_epoch(target: Target, leader: int, epoch: int) -> bytes:
    """An EndQuorumEpoch in the name of a leader."""
    part = EndQuorumEpochRequestPartitionData(leader_id=leader, leader_epoch=epoch)
    topic = EndQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    return request_frame(EndQuorumEpochRequest(cluster_id=target.cluster_id, topics=[topic]), 1)


def absurd_fetches(attacker: Attacker) -> None:
    """Fetch and FetchSnapshot with offsets, epochs and positions of all sizes, from strangers."""
    target, rng = attacker.target, attacker.rng
    numbers = (-(1 << 63), -1, 0, 1, target.end_offset, (1 << 62), (1 << 63) - 1)
    epochs = (-MAX_INT32, -1, 0, target.epoch, target.epoch + 1, MAX_INT32)
    snapshot = APIS[ApiKey.FETCH_SNAPSHOT]
    while attacker.goes_on:
        with attacker.connection(attacker.leader_port) as connection:
            if connection is None:
                continue
            for _ in range(10):
                replica = rng.choice((-1, 99, MAX_INT32, rng.randrange(1000, 9999)))
                offset, epoch, last = rng.choice(numbers), rng.choice(epochs), rng.choice(epochs)
                attacker.send(connection, metadata_fetch(offset, epoch, replica_id=replica, last_epoch=last))
                version = rng.randint(snapshot.versions.lowest, snapshot.versions.highest)
                with suppress(Exception):
                    attacker.send(connection, request_frame(random_message(snapshot.request, version, rng), version))
                attacker.did["frames"] += 2
            attacker.read(connection)
        attacker.pause(0.002)


def invented_observers(attacker: Attacker) -> None:
    """Thousands of observer ids fetch, one after the other."""
    target = attacker.target
    numbers = count(1000)

    def fetches() -> bytes:
        ids = islice(numbers, FLOOD_FRAMES)
        return b"".join(metadata_fetch(target.end_offset, target.epoch, replica_id=one) for one in ids)

    attacker.did["observers"] = flood_the_leader(attacker, fetches)


def invented_heartbeats(attacker: Attacker) -> None:
    """Heartbeats of brokers and epochs that were never registered."""
    rng = attacker.rng

    def heartbeat() -> bytes:
        broker, epoch = rng.randrange(1 << 30), rng.randrange(1 << 40)
        return request_frame(BrokerHeartbeatRequest(broker_id=broker, broker_epoch=epoch, want_fence=False), 1)

    attacker.did["heartbeats"] = flood_the_leader(attacker, lambda: b"".join(heartbeat() for _ in range(FLOOD_FRAMES)))


def flood_the_leader(attacker: Attacker, burst: Callable[[], bytes]) -> int:
    """Send burst after burst to the leader, on a new connection after each failure; returns how many frames.

    Each burst has `FLOOD_FRAMES` frames. The flood ends when the leader takes no connection.
    """
    connection, frames = attacker.connect(attacker.leader_port), 0
    while attacker.goes_on and connection is not None:
        try:
            attacker.send(connection, burst())
            attacker.read(connection)
        except OSError:
            connection = attacker.connect(attacker.leader_port)
        frames += FLOOD_FRAMES
        attacker.pause(0.01)
    return frames


def flood_of_questions(attacker: Attacker) -> None:
    """Eight connections ask small questions, a hundred at a time, as fast as the answers are read."""
    part = DescribeQuorumRequestPartitionData(partition_index=0)
    topic = DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    frame = request_frame(DescribeQuorumRequest(topics=[topic]), 2) + request_frame(ApiVersionsRequest(), 0)
    connections = [one for one in (attacker.connect(attacker.leader_port) for _ in range(8)) if one is not None]
    while attacker.goes_on and connections:
        for one in list(connections):
            try:
                attacker.send(one, frame * 50)
            except OSError:
                connections.remove(one)
        attacker.did["questions"] += 100 * len(connections)
        attacker.read_all(connections)


def forged_elections(attacker: Attacker) -> None:
    """Votes, BeginQuorumEpoch and EndQuorumEpoch in a voter's name, with epochs that come next."""
    target, rng = attacker.target, attacker.rng
    epoch = target.epoch
    while attacker.goes_on:
        with attacker.connection(attacker.any_port()) as connection:
            if connection is None:
                continue
            epoch += rng.choice((0, 0, 1))
            replica, voter = rng.choice(sorted(target.ports)), rng.choice(sorted(target.ports))
            send_election(attacker, connection, voter, replica, epoch, offset=1 << 40, last_epoch=epoch - 1)
            attacker.read(connection)
        attacker.pause(0.05)


def random_elections(attacker: Attacker) -> None:
    """Vote, BeginQuorumEpoch and EndQuorumEpoch with random values, some of them in range."""
    rng = attacker.rng
    while attacker.goes_on:
        with attacker.connection(attacker.any_port()) as connection:
            if connection is None:
                continue
            for _ in range(5):
                api = APIS[rng.choice(sorted(QUORUM_KEYS))]
                version = rng.randint(api.versions.lowest, api.versions.highest)
                with suppress(ValueError):
                    frame = request_frame(random_message(api.request, version, rng), version)
                    attacker.send(connection, mutated(frame, rng) if rng.random() < 0.5 else frame)
                    attacker.did["frames"] += 1
            attacker.read(connection)
        attacker.pause(0.005)


def forged_acknowledgements(attacker: Attacker) -> None:
    """Fetches in the name of voters, at ends that they have not reached."""
    target = attacker.target
    voters = [one for one in target.ports if one != target.leader]
    offset = target.end_offset
    while attacker.goes_on:
        with attacker.connection(attacker.leader_port) as connection:
            if connection is not None:
                offset += attacker.rng.choice((0, 1, 100))
                for voter in voters:
                    attacker.send(connection, metadata_fetch(offset, target.epoch, replica_id=voter))
                attacker.read(connection)
                attacker.did["acknowledgements"] += len(voters)
        attacker.pause(0.01)


def malicious_leader(attacker: Attacker) -> None:
    """A BeginQuorumEpoch in the next epoch names a voter that listens at the attacker's port, and serves poison."""
    lead(attacker, forges=False)


def forging_leader(attacker: Attacker) -> None:
    """The same, but what is served could be a leader's, and is said to be committed."""
    lead(attacker, forges=True)


def lead(attacker: Attacker, *, forges: bool) -> None:
    """Take the leadership again and again, and serve what the followers ask for."""
    target = attacker.target
    epoch = target.epoch
    with FakeLeader(target.cluster_id, attacker.rng, attacker.did) as fake:
        fake.forges = forges
        while attacker.goes_on:
            epoch += 1
            fake.lead(leader_id=attacker.rng.choice(sorted(target.ports)), epoch=epoch, end_offset=target.end_offset)
            for node, port in target.ports.items():
                if node == fake.leader_id:
                    continue
                with attacker.connection(port) as connection:
                    if connection is not None:
                        attacker.send(connection, begin_epoch(target, fake.leader_id, epoch, fake.port))
                        attacker.read(connection)
                        attacker.did["frames"] += 1
            attacker.pause(0.15)


Attack = Callable[[Attacker], None]
ATTACKS: Final[dict[str, Attack]] = {
    one.__name__: one
    for one in (
        garbage,
        half_frames,
        unread_answers,
        old_offsets,
        parked_fetches,
        idle_thousands,
        connect_storm,
        mutated_frames,
        bombs,
        absurd_elections,
        absurd_fetches,
        invented_observers,
        invented_heartbeats,
        flood_of_questions,
    )
}
FORGERIES: Final[dict[str, Attack]] = {
    one.__name__: one
    for one in (random_elections, forged_elections, forged_acknowledgements, malicious_leader, forging_leader)
}


def main() -> None:
    """Run one attack, and print what it did."""
    name, target = sys.argv[1], convert(json.loads(sys.argv[2]), Target, strict=False)
    attacker = Attacker(target)
    (ATTACKS | FORGERIES)[name](attacker)
    print(json.dumps(attacker.did))


if __name__ == "__main__":
    main()
