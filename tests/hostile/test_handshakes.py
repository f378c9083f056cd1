"""Two thousand half-done handshakes: the quorum keeps its leader and its writes, and their cost is measured."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import trio

from kraft.admin import AdminClient, QuorumDescription, open_admin
from kraft.admin.client import ConfigChange, ResourceType
from support.controller_processes import IDS, Processes
from support.eventually import eventually, pause
from support.interop.certificates import Stores, client_context, leaf
from transport.interface import PEERS, Endpoint
from transport.limits import UNSECURED_CONNECTIONS
from transport.tcp import TcpTransport
from transport.tls import Tls, TlsSession

STRANGERS = 2_000
MOST_CPU_MS = 5
"""The most processor time of the attacked node for each stranger, its ordinary work included."""
MOST_MEMORY_MIB = 64
UNHURRIED = {"controller.quorum.election.timeout.ms": 1000, "controller.quorum.fetch.timeout.ms": 4000}


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    stores = Stores(tmp_path / "stores", leaf("node"))
    settings = {
        **UNHURRIED,
        "listener.security.protocol.map": "CONTROLLER:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": stores.pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": stores.trust_pem,
    }
    found = Processes(tmp_path, settings)
    for node in IDS:
        found.start(node)
    yield found
    print(found.errors())
    for node in tuple(found.running):
        found.kill(node)


def cpu_seconds(pid: int) -> float:
    """The processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> float:
    """The resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def hello() -> bytes:
    """The first bytes of a client."""
    session = TlsSession(client_context(), "localhost")
    session.advance()
    return session.take()


async def write(admin: AdminClient, value: int) -> None:
    change = ConfigChange(
        resource_type=ResourceType.BROKER, resource_name="", key="message.max.bytes", value=str(10_000 + value)
    )
    await admin.alter_configs([change])


async def led(admin: AdminClient) -> QuorumDescription:
    while True:
        found = await admin.describe_quorum()
        if found.leader_id > 0:
            return found
        await pause()


async def test_half_done_handshakes_cost_little_and_the_quorum_goes_on(processes: Processes) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    transport = TcpTransport(tls=Tls(outgoing={PEERS: client_context()}))
    with trio.fail_after(120):
        async with open_admin(list(processes.endpoints.values()), transport=transport) as admin:
            before = await led(admin)
            await write(admin, 0)
            process = processes.running[before.leader_id]
            cpu, memory, began = cpu_seconds(process.pid), memory_mib(process.pid), time.monotonic()
            written = await _storm(admin, processes.endpoints[before.leader_id])
            seconds = time.monotonic() - began
            cpu, memory = cpu_seconds(process.pid) - cpu, memory_mib(process.pid) - memory
            print(f"{STRANGERS} half-done handshakes: {cpu:.2f} s of processor, {memory:+.1f} MiB, in {seconds:.1f} s")
            after = await led(admin)
            assert (after.leader_id, after.leader_epoch) == (before.leader_id, before.leader_epoch)
            assert written > 0
            assert cpu * 1000 < STRANGERS * MOST_CPU_MS
            assert memory < MOST_MEMORY_MIB
    log = processes.directory / f"node-{before.leader_id}.err"
    refused = f"{UNSECURED_CONNECTIONS} connections have not finished their TLS handshake"
    ended = "the peer closed the connection in the middle of the TLS handshake"
    eventually(lambda: refused in log.read_text() and ended in log.read_text(), "both causes are named")


async def _storm(admin: AdminClient, target: Endpoint) -> int:
    """Strangers begin handshakes and do not end them, beside a writer; returns the number of its writes."""
    written, first = 0, hello()
    is_over = trio.Event()

    async def keep_writing() -> None:
        nonlocal written
        while not is_over.is_set():
            written += 1
            await write(admin, written)

    def begin(strangers: ExitStack) -> None:
        for _ in range(STRANGERS):
            one = strangers.enter_context(socket.create_connection((target.host, target.port)))
            with suppress(OSError):  # the node has closed the connection already: too many are half done
                one.sendall(first)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_writing)
        with ExitStack() as strangers:
            await trio.to_thread.run_sync(begin, strangers)
            with trio.move_on_after(1):
                await trio.sleep_forever()
            is_over.set()
    return written
