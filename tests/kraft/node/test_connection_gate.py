"""The limits of connections follow the settings of the file, and the metadata as soon as it changes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from kraft import Config
from kraft.node.clock import NodeClock
from kraft.node.connection_gate import ConnectionGate
from kraft.node.embed import tcp_transport
from metadata_log.image import MetadataImage
from metadata_log.records.metadata import ClientQuotaRecord, ConfigRecord, EntityData
from support.broker.request_brokers import replayed
from transport.wire import WireTransport

BROKER = 4
LINES = (
    "process.roles=broker,controller",
    "node.id=1",
    "controller.listener.names=CONTROLLER",
    "listener.security.protocol.map=CONTROLLER:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    "listeners=INSIDE://127.0.0.1:19092,OUTSIDE://127.0.0.1:19093,CONTROLLER://127.0.0.1:19094",
    "inter.broker.listener.name=INSIDE",
    "controller.quorum.voters=1@127.0.0.1:19094",
)


class World:
    """A node's gate, and the metadata that the test changes."""

    def __init__(self, root: Path, *lines: str) -> None:
        text = "".join(f"{line}\n" for line in (*LINES, f"log.dirs={root / 'node'}", *lines))
        config = Config.parse(text)
        self.image = MetadataImage()
        self.transport: WireTransport = tcp_transport(config, serves_clients=True)
        self.gate = ConnectionGate(config, NodeClock(), self.transport, lambda: self.image)

    def change(self, name: str, key: str, value: str | None) -> None:
        """A setting of the node, or of all brokers with the empty name."""
        record = ConfigRecord(resource_type=BROKER, resource_name=name, name=key, value=value)
        self.image = replayed(self.image, record)
        self.gate.wait_s("CONTROLLER")

    def waits(self, listener: str, count: int) -> int:
        """How many of so many connections at once have to wait."""
        return sum(self.gate.wait_s(listener) > 0 for _ in range(count))

    @property
    def limits(self) -> tuple[int, int]:
        limits = self.transport.serving.limits
        return limits.max_connections, limits.max_per_ip


async def test_the_settings_of_the_file_hold(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        "max.connection.creation.rate=20",
        "listener.name.outside.max.connection.creation.rate=10",
        "listener.name.outside.max.connections=7",
        "quota.window.num=3",
        "max.connections=100",
    )
    # Three windows: two of them count for what may come at once.
    assert world.waits("OUTSIDE", 30) == 10
    # The rates of brokers and controllers are apart, and the listener between brokers has its own only.
    assert world.waits("INSIDE", 50) == 10
    assert world.waits("CONTROLLER", 50) == 10
    assert dict(world.transport.serving.per_listener) == {"OUTSIDE": 7}
    assert world.limits[0] == 100


async def test_nothing_is_bound_by_default(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.waits("OUTSIDE", 5000) == 0
    assert world.gate.hold_s("OUTSIDE", "10.0.0.1") == 0
    assert world.transport.serving.per_listener == {}


async def test_changes_in_the_metadata_take_effect(tmp_path: Path) -> None:
    world = World(tmp_path, "max.connections=100", "max.connections.per.ip=50")
    assert world.limits == (100, 50)
    world.change("", "max.connections", "90")
    assert world.limits == (90, 50)
    world.change("1", "max.connections", "80")
    world.change("2", "max.connections", "70")
    world.change("1", "max.connections.per.ip", "40")
    assert world.limits == (80, 40)
    world.change("1", "listener.name.outside.max.connections", "7")
    assert dict(world.transport.serving.per_listener) == {"OUTSIDE": 7}
    for name, key in (("1", "max.connections"), ("", "max.connections"), ("1", "max.connections.per.ip")):
        world.change(name, key, None)
    world.change("1", "listener.name.outside.max.connections", None)
    assert world.limits == (100, 50)
    assert world.transport.serving.per_listener == {}
    assert world.waits("OUTSIDE", 200) == 0
    world.change("", "max.connection.creation.rate", "10")
    assert world.waits("OUTSIDE", 10) == 10
    world.change("1", "listener.name.outside.max.connection.creation.rate", "100000")
    world.change("", "max.connection.creation.rate", None)
    assert world.waits("OUTSIDE", 10) == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [("max.connections", "many"), ("max.connections.per.ip", "-1"), ("max.connections.per.ip.overrides", "a")],
)
async def test_a_value_that_cannot_be_read_changes_nothing(tmp_path: Path, key: str, value: str) -> None:
    world = World(tmp_path, "max.connections=100", "max.connections.per.ip=50")
    world.change("1", key, value)
    assert world.limits == (100, 50)


async def test_overrides_of_addresses_take_effect(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with trio.open_nursery() as nursery:
        await nursery.start(world.transport.run, lambda _: None)
        world.change("1", "max.connections.per.ip.overrides", "10.0.0.1:3,::1:4")
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert world.transport.serving.per_ip == {"10.0.0.1": 3, "::1": 4}
        nursery.cancel_scope.cancel()


async def test_quotas_of_addresses_take_effect(tmp_path: Path) -> None:
    world = World(tmp_path)
    entity = (EntityData(entity_type="ip", entity_name="10.0.0.1"),)
    world.image = replayed(
        world.image, ClientQuotaRecord(entity=entity, key="connection_creation_rate", value=1.0, remove=False)
    )
    holds = []
    for _ in range(11):
        assert world.gate.wait_s("OUTSIDE") == 0
        holds.append(world.gate.hold_s("OUTSIDE", "10.0.0.1"))
    assert holds[:10] == [0.0] * 10
    assert 0.9 <= holds[10] <= 1.0
    assert world.gate.hold_s("OUTSIDE", "10.0.0.2") == 0
