"""Our broker agents as processes, beside controllers of whatever make."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.interop.our_nodes import told
from support.interop.real_kafka import Process, QuorumLayout, free_ports

AGENTS = (101, 102)


def agent_properties(layout: QuorumLayout, broker: int, port: int) -> Path:
    path = layout.root / f"agent-{broker}.properties"
    lines = [
        "process.roles=broker",
        f"node.id={broker}",
        f"log.dirs={layout.root / f'agent-{broker}'}",
        "controller.listener.names=CONTROLLER",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        f"listeners=PLAINTEXT://127.0.0.1:{port}",
        f"controller.quorum.voters={layout.voters}",
        "broker.heartbeat.interval.ms=500",
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


class Agents:
    """Agents as processes beside controllers of whatever make."""

    def __init__(self, layout: QuorumLayout) -> None:
        self.processes: dict[int, Process] = {}
        self._layout = layout
        self._properties = {
            broker: agent_properties(layout, broker, port)
            for broker, port in zip(AGENTS, free_ports(len(AGENTS)), strict=True)
        }
        for path in self._properties.values():
            told("format", "-c", str(path), "--cluster-id", layout.cluster_id)

    def start(self, broker: int) -> None:
        command = [sys.executable, "-m", "kraft", "serve", "-c", str(self._properties[broker])]
        self.processes[broker] = Process(command, self._layout.root / f"agent-{broker}.log")


@contextmanager
def agents_running(layout: QuorumLayout) -> Iterator[Agents]:
    agents = Agents(layout)
    with ExitStack() as stack:
        stack.callback(lambda: [process.kill() for process in agents.processes.values()])
        for broker in AGENTS:
            agents.start(broker)
        yield agents
