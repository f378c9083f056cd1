"""Quorums of three etcd servers, and clients that put values.

Each client has a connection of its own to the leader, as with `--target-leader` of etcd's own benchmark, and puts a key
of its own (`etcdserverpb.KV/Put`, API version 3).
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from load import Address, Refused
from peer_quorums.grpc_wire import GrpcConnection, grpc_message
from quorums import free_ports, start_process, wait_until

INSTALL: Final = "apt-get install etcd-server, or a release of etcd on PATH"
SERVERS: Final = 3
PUT: Final = "/etcdserverpb.KV/Put"
STATUS: Final = "/etcdserverpb.Maintenance/Status"
VARINT, LENGTH_DELIMITED = 0, 2


def find_etcd() -> str | None:
    """The path of the server's program."""
    return shutil.which("etcd")


def version_of(program: str) -> str:
    """The first line of `etcd --version`."""
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def start_etcd(program: str, root: Path, stack: ExitStack) -> list[Address]:
    """Three servers with their default settings, with a leader, until the stack closes; returns their addresses."""
    ports = free_ports(2 * SERVERS)
    client_urls = [f"http://127.0.0.1:{port}" for port in ports[:SERVERS]]
    peer_urls = [f"http://127.0.0.1:{port}" for port in ports[SERVERS:]]
    cluster = ",".join(f"n{number}={url}" for number, url in enumerate(peer_urls))
    for number in range(SERVERS):
        command = [program, "--name", f"n{number}", "--data-dir", str(root / f"etcd-{number}"), "--log-level", "error"]
        command += ["--listen-client-urls", client_urls[number], "--advertise-client-urls", client_urls[number]]
        command += ["--listen-peer-urls", peer_urls[number], "--initial-advertise-peer-urls", peer_urls[number]]
        start_process([*command, "--initial-cluster", cluster], root / f"etcd-{number}.log", stack)
    addresses = [("127.0.0.1", port) for port in ports[:SERVERS]]
    wait_until(lambda: leader_of(addresses) is not None, "etcd has a leader")
    return addresses


def leader_of(addresses: list[Address]) -> Address | None:
    """The server that says that it leads, if there is one."""
    for address in addresses:
        try:
            status = GrpcConnection(address, STATUS)
            with status.connection:
                found = dict(fields(status.call(b"")))
        except (OSError, Refused):
            continue
        header, leader = found.get(1), found.get(4)
        if isinstance(header, bytes) and leader is not None and dict(fields(header)).get(2) == leader:
            return address
    return None


class EtcdClient:
    """A client that puts two values in turn under one key."""

    def __init__(self, leader: Address, number: int, value_bytes: int) -> None:
        key = f"bench-{number}".encode()
        values = (f"bench-{number}-{turn}-".ljust(value_bytes, "x").encode() for turn in (0, 1))
        self._calls = GrpcConnection(leader, PUT)
        requests = [field(1, key) + field(2, value) for value in values]
        self._calls.call(requests[1])
        self._messages = [grpc_message(request) for request in requests]
        self._turn = 0
        self.connection = self._calls.connection
        self.connection.setblocking(False)
        self.sent_at = 0.0

    def send(self) -> None:
        """Put the next of the two values."""
        self._calls.send(self._messages[self._turn])
        self._turn ^= 1

    def receive(self) -> bool:
        """Read what has arrived; returns whether the put is committed, and raises `Refused` if the put failed."""
        return self._calls.receive() is not None


def open_clients(addresses: list[Address], clients: int, value_bytes: int) -> list[EtcdClient]:
    """Clients of the leader."""
    leader = leader_of(addresses)
    if leader is None:
        raise Refused("etcd has no leader")
    return [EtcdClient(leader, number, value_bytes) for number in range(clients)]


def varint(number: int) -> bytes:
    """An unsigned varint of Protocol Buffers."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))


def field(number: int, content: bytes) -> bytes:
    """A field of bytes of Protocol Buffers."""
    return varint(number << 3 | LENGTH_DELIMITED) + varint(len(content)) + content


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The numbers and contents of a message's fields: integers, and bytes."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = number()
        if key & 7 == VARINT:
            yield key >> 3, number()
        elif key & 7 == LENGTH_DELIMITED:
            size = number()
            yield key >> 3, data[at : at + size]
            at += size
        else:
            raise Refused(f"a field of wire type {key & 7}, which etcd's responses do not have")
