"""Quorums of three ZooKeeper servers, and clients that set the data of a node.

Each client has a session of its own. The sessions are spread over the three servers, as ZooKeeper's client does, and
each sets the data of a node of its own, whatever its version.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from load import Address, Refused, ask, connect
from quorums import free_ports, start_process, wait_until

INSTALL: Final = "apt-get install libzookeeper-java libslf4j-java, or ZK_CLASSPATH with ZooKeeper's jars"
JARS: Final = tuple(Path("/usr/share/java") / name for name in ("zookeeper.jar", "slf4j-nop.jar"))
"""Where Debian's packages have them. The first one names its dependencies."""
MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
SERVERS: Final = 3
READ_BYTES: Final = 4096
SESSION_TIMEOUT_MS: Final = 30_000
CREATE, SET_DATA = 1, 5
NODE_EXISTS: Final = -110
ANY_VERSION: Final = -1
ALL_PERMISSIONS: Final = 31
ERROR_AT: Final = slice(16, 20)
"""Where a response, length included, has its error: after its length, xid and zxid."""
SETTINGS: Final = """\
tickTime=2000
initLimit=10
syncLimit=5
dataDir={directory}
clientPortAddress=127.0.0.1
clientPort={port}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
{servers}
"""
"""The times of ZooKeeper's sample; the rest is default, so each server forces its log to the disk."""


def find_classpath() -> str | None:
    """The jars, of the environment or of Debian's packages."""
    given = os.environ.get("ZK_CLASSPATH")
    if given:
        return given
    return os.pathsep.join(map(str, JARS)) if all(jar.exists() for jar in JARS) else None


def start_zookeeper(java: Sequence[str], classpath: str, root: Path, stack: ExitStack) -> list[Address]:
    """Three servers, with a leader, until the stack closes; `java` is the program with its flags."""
    ports = free_ports(3 * SERVERS)
    addresses = [("127.0.0.1", port) for port in ports[:SERVERS]]
    quorum, election = ports[SERVERS : 2 * SERVERS], ports[2 * SERVERS :]
    servers = "\n".join(
        f"server.{number + 1}=127.0.0.1:{quorum[number]}:{election[number]}" for number in range(SERVERS)
    )
    for number, (_, port) in enumerate(addresses):
        directory = root / f"zookeeper-{number}"
        directory.mkdir()
        (directory / "myid").write_text(str(number + 1))
        settings = root / f"zookeeper-{number}.cfg"
        settings.write_text(SETTINGS.format(directory=directory, port=port, servers=servers))
        start_process([*java, "-cp", classpath, MAIN, str(settings)], root / f"zookeeper-{number}.log", stack)
    serving = re.compile("Mode: (leader|follower)")
    wait_until(lambda: all(serving.search(told(each)) for each in addresses), "ZooKeeper serves")
    return addresses


def told(address: Address) -> str:
    """The answer of a server to the command `srvr`; empty if it does not listen."""
    try:
        with connect(address) as connection:
            connection.sendall(b"srvr")
            with connection.makefile("rb") as answer:
                return answer.read().decode()
    except OSError:
        return ""


def version_of(addresses: Sequence[Address]) -> str:
    """The version that the first server tells."""
    found = re.search(r"Zookeeper version: ([^-,]+)", told(addresses[0]))
    return f"ZooKeeper {found[1]}" if found else "ZooKeeper, of unknown version"


class ZooKeeperClient:
    """A session that sets two values in turn on one node."""

    def __init__(self, server: Address, number: int, value_bytes: int) -> None:
        self.connection = connect(server)
        path = f"/bench-{number}"
        open_session(self.connection)
        create(self.connection, path)
        values = [f"bench-{number}-{turn}-".ljust(value_bytes, "x") for turn in (0, 1)]
        self._frames = [
            request(1 + turn, SET_DATA, string(path) + string(value) + ANY_VERSION.to_bytes(4, "big", signed=True))
            for turn, value in enumerate(values)
        ]
        self._turn = 0
        self.connection.setblocking(False)
        self.sent_at = 0.0

    def send(self) -> None:
        """Set the next of the two values."""
        self.connection.send(self._frames[self._turn])
        self._turn ^= 1

    def receive(self) -> bool:
        """Read a response; raises `Refused` if the write failed."""
        answer = self.connection.recv(READ_BYTES)
        is_whole = len(answer) > ERROR_AT.stop and len(answer) == 4 + int.from_bytes(answer[:4], "big")
        # A write that succeeds has an error of zero, and after it the node's new state.
        if not is_whole or any(answer[ERROR_AT]):
            raise Refused(f"an answer was not that of a committed write: {answer!r}")
        return True


def open_clients(addresses: Sequence[Address], clients: int, value_bytes: int) -> list[ZooKeeperClient]:
    """Sessions with the servers in turn."""
    return [ZooKeeperClient(addresses[number % len(addresses)], number, value_bytes) for number in range(clients)]


def string(text: str) -> bytes:
    """A string, or bytes, of ZooKeeper's serialization."""
    return len(text).to_bytes(4, "big") + text.encode()


def framed(content: bytes) -> bytes:
    """A frame with its length."""
    return len(content).to_bytes(4, "big") + content


def request(xid: int, operation: int, content: bytes) -> bytes:
    """A framed request."""
    return framed(xid.to_bytes(4, "big") + operation.to_bytes(4, "big") + content)


def open_session(connection: socket.socket) -> None:
    """Open a new session; raises `Refused` if the server gives none."""
    protocol, last_zxid, session, password = bytes(4), bytes(8), bytes(8), framed(bytes(16))
    timeout = SESSION_TIMEOUT_MS.to_bytes(4, "big")
    read_only = b"\0"
    answer = ask(connection, framed(protocol + last_zxid + timeout + session + password + read_only))
    if not any(answer[4:8]):
        raise Refused("the server gives no session")


def create(connection: socket.socket, path: str) -> None:
    """Create a persistent node that everything may use, unless the node exists."""
    acl = (1).to_bytes(4, "big") + ALL_PERMISSIONS.to_bytes(4, "big") + string("world") + string("anyone")
    persistent = bytes(4)
    answer = ask(connection, request(1, CREATE, string(path) + string("x") + acl + persistent))
    error = int.from_bytes(answer[12:16], "big", signed=True)
    if error not in (0, NODE_EXISTS):
        raise Refused(f"error {error} for the creation of {path}")
