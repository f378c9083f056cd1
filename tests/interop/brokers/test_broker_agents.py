"""Our broker agents on controllers of Apache Kafka, which treat the agents as brokers, dead and alive."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from kraft.admin import AdminClient, open_admin
from kraft.admin.topics import create_topic
from kraft.observer.live_image import read_image
from metadata_log.image import MetadataImage
from support.interop.agent_processes import AGENTS, Agents, agents_running
from support.interop.our_nodes import told
from support.interop.real_kafka import (
    CLUSTER_ID,
    KafkaInstallation,
    QuorumLayout,
    free_ports,
    kafka_controller,
    running,
)
from transport.interface import Endpoint

pytestmark = pytest.mark.kafka
SECONDS = 120
NEVER = threading.Event()
SETTINGS = ("broker.session.timeout.ms=3000",)


async def until(admin: AdminClient, wanted: Callable[[MetadataImage], bool]) -> MetadataImage:
    """The metadata, read from the active controller as a broker reads it, once it is as wanted."""
    image = MetadataImage()
    with trio.move_on_after(SECONDS):
        while not wanted(image := await read_image(admin)):
            await trio.to_thread.run_sync(NEVER.wait, 0.1)
        return image
    raise AssertionError(f"not within {SECONDS} s: {image.brokers}, {image.topics.by_id}")


def are_active(image: MetadataImage) -> bool:
    found = image.brokers.by_id
    return all(broker in found and found[broker].is_active for broker in AGENTS)


def isrs(image: MetadataImage) -> list[set[int]]:
    return [set(one.isr) for one in image.topics["orders"].partitions]


async def live(layout: QuorumLayout, agents: Agents, kill_leader: Callable[[int], None] | None) -> None:
    endpoints = [Endpoint("127.0.0.1", port) for port in layout.ports.values()]
    async with open_admin(endpoints, client_id="test", timeout_ms=SECONDS * 1000) as admin:
        image = await until(admin, are_active)
        assert all(len(image.brokers.by_id[one].directories) == 1 for one in AGENTS)
        await create_topic(admin, "orders", partitions=4, replication_factor=2)
        image = await until(admin, lambda image: "orders" in image.topics)
        assert isrs(image) == [set(AGENTS)] * 4
        assert {one.leader for one in image.topics["orders"].partitions} == set(AGENTS)

        agents.processes[102].kill()
        image = await until(admin, lambda image: isrs(image) == [{101}] * 4)
        assert image.brokers.by_id[102].fenced
        epoch = image.brokers.by_id[102].epoch
        if kill_leader is not None:
            kill_leader((await admin.describe_quorum()).leader_id)
        agents.start(102)
        image = await until(admin, lambda image: isrs(image) == [set(AGENTS)] * 4)
        assert image.brokers.by_id[102].epoch > epoch

        process = agents.processes[101]
        process.signal(signal.SIGTERM)
        assert await trio.to_thread.run_sync(partial(process.wait, timeout=SECONDS)) == 0, process.text
        image = await until(admin, lambda image: image.brokers.by_id[101].fenced)
        assert image.brokers.by_id[101].in_controlled_shutdown
        assert [one.leader for one in image.topics["orders"].partitions] == [102] * 4
        assert (layout.root / "agent-101" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize(
    "controllers", [pytest.param(1, id="one"), pytest.param(3, id="three", marks=pytest.mark.soak)]
)
def test_broker_agents_register_lead_and_fail_over_under_kafkas_controllers(
    kafka: KafkaInstallation, tmp_path: Path, controllers: int
) -> None:
    """They register, are unfenced, lead, are fenced when they die, enter ISRs when they return, and hand over before
    they stop; with three controllers the leading one is killed meanwhile.
    """
    ports = dict(zip(range(1, controllers + 1), free_ports(controllers), strict=True))
    layout = QuorumLayout(tmp_path, CLUSTER_ID, ports, SETTINGS)
    for node in ports:
        told("format", "-c", str(layout.properties(node)), "--cluster-id", layout.cluster_id)
    with running(layout, kafka_controller(kafka, layout), name="kafka") as nodes, agents_running(layout) as agents:

        def kill_leader(node: int) -> None:
            nodes.processes.pop(node).kill()

        trio.run(live, layout, agents, kill_leader if controllers > 1 else None)
