"""A controller and a broker whose instructions are counted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Final

import trio

from kraft.admin import open_admin
from kraft.admin.topics import create_topic
from kraft.config import Config
from kraft.limits import TURN_MS
from kraft.node.embed import tcp_transport
from kraft.node.node import Node
from kraft.node.run import run_node
from kraft.process.hosting import broker_with_data, host_controller
from metadata_log.log.log_dir import format_directory
from metadata_log.memory_disk import MemoryDisk
from metadata_log.types import random_uuid
from support.eventually import pause
from support.hostile.instructions import SECONDS_PER_INSTRUCTION, InstructionClock
from support.loopback import free_ports
from transport.interface import Endpoint
from transport.protocol.apis import APIS, Api, ApiKey
from transport.protocol.broker_listener import AT_BROKERS
from transport.protocol.frames import FrameReader

DEARER: Final = {
    ApiKey.WRITE_TXN_MARKERS: 800,  # An append to a log for each four bytes.
    ApiKey.ELECT_LEADERS: 130,  # A decision on each partition, by the controller, for each four bytes.
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 90,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 160,  # The rights of the client on each topic, for each two bytes.
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 140,
    ApiKey.DESCRIBE_QUORUM: 125,  # Decoded by the broker and by the controller, with the errors of each partition.
    ApiKey.FIND_COORDINATOR: 220,
    ApiKey.DESCRIBE_GROUPS: 210,  # The right to each group, and its partition by a hash of its name.
    ApiKey.DESCRIBE_TRANSACTIONS: 210,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 210,
    ApiKey.DELETE_GROUPS: 240,
    ApiKey.DESCRIBE_PRODUCERS: 140,
    ApiKey.ALTER_CONFIGS: 120,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 110,
    ApiKey.CREATE_TOPICS: 75,
    ApiKey.DESCRIBE_CONFIGS: 75,
    ApiKey.OFFSET_FETCH: 70,
    ApiKey.STREAMS_GROUP_DESCRIBE: 210,
    ApiKey.STREAMS_GROUP_HEARTBEAT: 130,  # The right to each topic.
    ApiKey.CREATE_PARTITIONS: 80,  # A decision on each name, with its error, forwarded by the broker.
    ApiKey.ALTER_CLIENT_QUOTAS: 80,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 90,  # The answer has a topic with a partition for each four bytes.
    ApiKey.SHARE_GROUP_HEARTBEAT: 85,  # The right to each topic.
    ApiKey.SHARE_GROUP_DESCRIBE: 210,
    ApiKey.READ_SHARE_GROUP_STATE: 110,  # An operation on a share partition for each four bytes.
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: 110,
    ApiKey.DELETE_SHARE_GROUP_STATE: 205,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 330,  # A call of a share coordinator for each partition.
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: 180,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: 110,
}
"""What an element of these APIs may cost, by its bytes: 1.3 times the highest figure (`bench/margins.py`)."""
TURN: Final = int(TURN_MS / 1000 / SECONDS_PER_INSTRUCTION)
ANSWER_SECONDS: Final = 20
NODES: Final = {"controller": 1, "broker": 101}
AUTHORIZER: Final = """\
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{user}
"""
SUPER_USERS: Final = {
    "open": {},
    "no rights": {"controller": "ANONYMOUS", "broker": "somebody"},
}
"""Who may do everything at a node. The broker that has no name may do its work at the controller."""
CASES: Final = (("controller", "open"), ("broker", "open"), ("broker", "no rights"))
SETTINGS: Final = """\
process.roles={role}
node.id={node}
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
listeners={listener}://127.0.0.1:{port}
log.dirs=d
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
kraft.client.telemetry.enable=true
{more}"""


def config_of(role: str, ports: dict[str, int], rights: str) -> Config:
    user = SUPER_USERS[rights].get(role)
    text = SETTINGS.format(
        role=role,
        node=NODES[role],
        controller=ports["controller"],
        listener="CONTROLLER" if role == "controller" else "PLAINTEXT",
        port=ports[role],
        more="" if user is None else AUTHORIZER.format(user=user),
    )
    return Config.parse(text, source=role)


async def run_role(
    clock: InstructionClock,
    role: str,
    config: Config,
    cluster_id: str,
    *,
    task_status: trio.TaskStatus[Node],
) -> None:
    """A controller or a broker with data, on a disk in memory, until cancelled."""
    clock.own()
    disk, rng = MemoryDisk(), Random(NODES[role])
    format_directory(disk, "d", node_id=NODES[role], cluster_id=cluster_id, rng=rng, now_ms=0)
    is_broker = role == "broker"
    await run_node(
        config,
        transport=tcp_transport(config, serves_clients=is_broker),
        disk=disk,
        rng=rng,
        application=broker_with_data(config, disk) if is_broker else host_controller,
        inline_flush=True,
        task_status=task_status,
    )


async def exchange(port: int, frame: bytes) -> bytes | str:
    """Send a frame on a connection of its own; the answer, or why there is none."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        reader = FrameReader()
        with trio.move_on_after(ANSWER_SECONDS):
            try:
                await stream.send_all(frame)
                while data := await stream.receive_some(1 << 16):
                    for answer in reader.feed(data):
                        return answer
            except (trio.BrokenResourceError, OSError):
                pass
            return "closed"
    return "no answer"


async def listens(port: int) -> bool:
    """Whether a broker's listener is open: it opens once the broker is unfenced."""
    try:
        async with await trio.open_tcp_stream("127.0.0.1", port):
            return True
    except OSError:
        return False


def apis_of(role: str) -> list[Api]:
    """The APIs that a listener serves."""
    return list(AT_BROKERS.values()) if role == "broker" else list(APIS.values())


@asynccontextmanager
async def both(clock: InstructionClock, rights: str) -> AsyncIterator[tuple[dict[str, int], dict[str, Node]]]:
    """A controller and an unfenced broker with the topic `orders`: their ports, and the nodes."""
    ports = dict(zip(NODES, free_ports(len(NODES)), strict=True))
    cluster_id = str(random_uuid(Random(7)))
    async with trio.open_nursery() as nursery:
        nodes: dict[str, Node] = {
            one: await nursery.start(partial(run_role, clock, one, config_of(one, ports, rights), cluster_id))
            for one in NODES
        }
        while not await listens(ports["broker"]):
            await pause()
        async with open_admin([Endpoint("127.0.0.1", ports["controller"])]) as admin:
            await create_topic(admin, "orders", partitions=3, replication_factor=1)
        yield ports, nodes
        assert not any(node.is_stopping for node in nodes.values())
        nursery.cancel_scope.cancel()
