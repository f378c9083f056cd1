"""A running quorum of `kraft serve` processes goes from PLAINTEXT to mutual TLS, one node at a time, under writes.

The page docs/howto/from-plaintext-to-tls.md describes the same stages.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from kraft.admin import AdminClient, QuorumDescription, open_admin
from kraft.admin.client import ConfigChange, ResourceType
from kraft.security.clients import ClientSecurity, load_client
from metadata_log.disk import OsDisk
from metadata_log.log.log_dir import format_directory
from support.eventually import pause
from support.interop.certificates import Stores, issue
from support.loopback import free_ports
from transport.interface import Endpoint

IDS = (1, 2, 3)
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
STAGES = (("OLD",), ("OLD", "NEW"), ("NEW", "OLD"), ("NEW",))
"""`controller.listener.names` of each stage; the first listener is the one that controllers use among themselves."""
SECONDS = 300


class Roll:
    """Three processes, and the files of each stage."""

    def __init__(self, root: Path) -> None:
        self.root = root
        ports = free_ports(2 * len(IDS))
        self.ports = {"OLD": dict(zip(IDS, ports[:3], strict=True)), "NEW": dict(zip(IDS, ports[3:], strict=True))}
        self.admin_files = Stores(root / "stores", issue("admin"), "admin")
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        for node in IDS:
            Stores(root / "stores", issue(f"c{node}"), f"c{node}")
            format_directory(
                OsDisk(),
                str(root / f"node-{node}"),
                node_id=node,
                cluster_id=CLUSTER_ID,
                rng=random.Random(node),
                now_ms=1_700_000_000_000,
            )

    def _write(self, node: int, stage: tuple[str, ...]) -> str:
        """The file of a node in a stage; the voters have the ports of the first listener."""
        path = self.root / f"node-{node}.properties"
        path.write_text(
            f"""process.roles=controller
node.id={node}
log.dirs={self.root / f"node-{node}"}
controller.listener.names={",".join(stage)}
listeners={",".join(f"{name}://127.0.0.1:{self.ports[name][node]}" for name in stage)}
listener.security.protocol.map=OLD:PLAINTEXT,NEW:SSL
controller.quorum.voters={",".join(f"{id}@127.0.0.1:{port}" for id, port in self.ports[stage[0]].items())}
controller.quorum.election.timeout.ms=1000
controller.quorum.fetch.timeout.ms=4000
listener.name.new.ssl.keystore.type=PEM
listener.name.new.ssl.keystore.location={self.root}/stores/c{node}.pem
listener.name.new.ssl.truststore.type=PEM
listener.name.new.ssl.truststore.location={self.admin_files.trust_pem}
listener.name.new.ssl.client.auth=required
"""
        )
        return str(path)

    def start(self, node: int, stage: tuple[str, ...]) -> None:
        with open(self.root / f"node-{node}.log", "ab") as log:
            command = [sys.executable, "-m", "kraft", "serve", "-c", self._write(node, stage)]
            self.processes[node] = subprocess.Popen(command, stderr=log)

    async def stop(self, node: int) -> None:
        """A graceful shutdown, as by SIGTERM."""
        process = self.processes.pop(node)
        process.terminate()
        assert await trio.to_thread.run_sync(process.wait) == 0

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    @asynccontextmanager
    async def admin(self, listener: str) -> AsyncIterator[AdminClient]:
        """A client of the controllers at the listeners of this name."""
        security = ClientSecurity()
        if listener == "NEW":
            path = self.root / "admin.properties"
            path.write_text(
                "security.protocol=SSL\nssl.keystore.type=PEM\nssl.truststore.type=PEM\n"
                f"ssl.keystore.location={self.admin_files.pem}\nssl.truststore.location={self.admin_files.trust_pem}\n"
            )
            security = load_client(str(path))
        addresses = [Endpoint("127.0.0.1", port) for port in self.ports[listener].values()]
        async with open_admin(addresses, transport=security.transport()) as admin:
            yield admin

    def logs(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()[-4000:]}" for path in sorted(self.root.glob("*.log")))


async def settled(admin: AdminClient, node: int | None = None) -> QuorumDescription:
    """The quorum, when each voter, and the given one since now, has fetched what the leader has now."""
    first = await admin.describe_quorum()
    now_ms = max(one.last_fetch_ms for one in first.voters)
    while True:
        found = await admin.describe_quorum()
        leads = next((one for one in found.voters if one.id == found.leader_id), None)
        if leads is not None and all(
            one.id == leads.id
            or (one.log_end_offset >= leads.log_end_offset - 5 and (one.id != node or one.last_fetch_ms > now_ms))
            for one in found.voters
        ):
            return found
        await pause()


async def test_a_quorum_goes_from_plaintext_to_mutual_tls_under_writes(tmp_path: Path) -> None:
    roll = Roll(tmp_path)
    try:
        await _roll(roll)
    except BaseException:
        print(roll.logs())
        raise
    finally:
        roll.end()


async def _roll(roll: Roll) -> None:
    written = {"OLD": 0, "NEW": 0}
    wanted = {"OLD": trio.Event(), "NEW": trio.Event()}

    async def write(listener: str) -> None:
        """Write until told to stop. A failed write ends the test."""
        async with roll.admin(listener) as admin:
            while not wanted[listener].is_set():
                written[listener] += 1
                value = str(10_000 + written["OLD"] + written["NEW"])
                change = ConfigChange(
                    resource_type=ResourceType.BROKER, resource_name="", key="message.max.bytes", value=value
                )
                await admin.alter_configs([change])

    with trio.fail_after(SECONDS):
        for node in IDS:
            roll.start(node, STAGES[0])
        async with roll.admin("OLD") as admin:
            first = await settled(admin)
        epoch, led = first.leader_epoch, 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, "OLD")
            for stage in STAGES[1:]:
                if stage == STAGES[3]:
                    wanted["OLD"].set()
                    nursery.start_soon(write, "NEW")
                name = "OLD" if "OLD" in stage else "NEW"
                async with roll.admin(name) as admin:
                    for node in IDS:
                        before = await settled(admin)
                        assert before.leader_epoch == epoch, "no election without a restart of the leader"
                        led += before.leader_id == node
                        await roll.stop(node)
                        roll.start(node, stage)
                        after = await settled(admin, node)
                        assert after.leader_epoch == epoch + (before.leader_id == node)
                        epoch = after.leader_epoch
            wanted["NEW"].set()
        async with roll.admin("NEW") as admin:
            last = await settled(admin)
            assert last.leader_epoch == first.leader_epoch + led
            assert min(written.values()) > 0
            assert {name for voter in last.voters for name, _ in voter.listeners} == {"NEW"}
        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream("127.0.0.1", roll.ports["OLD"][1])
    for node in IDS:
        log = (roll.root / f"node-{node}.log").read_text()
        assert " error " not in log
