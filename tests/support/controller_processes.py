"""Three controllers of ours, each a process of its own, over real sockets and real files."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from metadata_log.disk import OsDisk
from metadata_log.log.log_dir import format_directory
from metadata_log.reading.damage import Damage
from metadata_log.reading.reader import read_log
from metadata_log.records.batch import RecordBatch
from support.loopback import free_ports
from transport.interface import Endpoint

IDS = (1, 2, 3)
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
QUICK_TIMEOUTS = {"controller.quorum.election.timeout.ms": 300, "controller.quorum.fetch.timeout.ms": 600}
STOP_SECONDS = 30


class Processes:
    """Three controllers, each a process of its own."""

    def __init__(
        self, directory: Path, settings: Mapping[str, object] = QUICK_TIMEOUTS, *, tells_steps: bool = False
    ) -> None:
        """Format three directories below `directory`; `settings` go into the configuration of each node.

        With `tells_steps` each node writes its steps of the protocol, see `steps`.
        """
        self.tells_steps = tells_steps
        self.directory = directory
        self.settings = settings
        self.ports = dict(zip(IDS, free_ports(len(IDS)), strict=True))
        self.endpoints = {node_id: Endpoint("127.0.0.1", port) for node_id, port in self.ports.items()}
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        for node_id in IDS:
            self._prepare(node_id)

    def _prepare(self, node_id: int) -> None:
        format_directory(
            OsDisk(),
            self.log_dir(node_id),
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            rng=random.Random(node_id),
            now_ms=1_700_000_000_000,
            release="4.3",
        )
        entries = {
            "process.roles": "controller",
            "node.id": node_id,
            "controller.quorum.voters": ",".join(f"{one}@{at}" for one, at in self.endpoints.items()),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{self.endpoints[node_id]}",
            "log.dirs": self.log_dir(node_id),
            "controller.quorum.append.linger.ms": 0,
            "metadata.log.segment.bytes": 8_388_608,
            **self.settings,
        }
        self.config(node_id).write_text("".join(f"{key}={value}\n" for key, value in entries.items()))

    def config(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}.properties"

    def log_dir(self, node_id: int) -> str:
        return str(self.directory / f"node-{node_id}")

    def start(self, node_id: int) -> None:
        with open(self.directory / f"node-{node_id}.err", "ab") as errors:
            command = [sys.executable, "-m", "kraft", "serve", "-c", str(self.config(node_id))]
            if self.tells_steps:
                command += ["--protocol", str(self.steps(node_id))]
            self.running[node_id] = subprocess.Popen(command, stderr=errors)

    def steps(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}.steps"

    def kill(self, node_id: int) -> None:
        process = self.running.pop(node_id)
        process.kill()
        process.wait()

    def stop(self) -> dict[int, int]:
        """Ask all nodes for a graceful shutdown; their exit codes."""
        for process in self.running.values():
            process.terminate()
        codes = {node_id: process.wait(STOP_SECONDS) for node_id, process in self.running.items()}
        self.running.clear()
        return codes

    def batches(self, node_id: int) -> list[RecordBatch]:
        found = list(read_log(OsDisk(), f"{self.log_dir(node_id)}/__cluster_metadata-0"))
        damaged = [str(one) for one in found if isinstance(one, Damage)]
        assert not damaged, damaged
        return [one for one in found if isinstance(one, RecordBatch)]

    def errors(self) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.directory.glob("*.err"))
        )
