"""The connections of a broker to the active controller: a heartbeat that is not answered breaks none of the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random

import trio

from kraft.config import Config
from kraft.node.run import run_node
from kraft.process.hosting import broker_with_data, host_controller
from metadata_log.log.log_dir import format_directory
from metadata_log.memory_disk import MemoryDisk
from metadata_log.serde import Message
from metadata_log.types import random_uuid
from transport.faults import Faults
from transport.interface import Endpoint, Inbound, Reply, Request, no_more
from transport.memory import MemoryNetwork, MemoryTransport
from transport.protocol.apis import ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.broker_listener import AT_BROKERS
from transport.protocol.errors import Error
from transport.protocol.messages import CreateTopicsRequest, CreateTopicsResponse, EnvelopeResponse
from transport.protocol.messages.create_topics import CreatableTopic

SETTINGS = """\
process.roles={role}
node.id={node}
controller.quorum.voters=1@controller:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
listeners={listener}
log.dirs=d
"""
CONTROLLER = SETTINGS.format(role="controller", node=1, listener="CONTROLLER://controller:9093")
BROKER = SETTINGS.format(role="broker", node=101, listener="PLAINTEXT://broker:9092")
HEARTBEATS = 3
"""With so many after the Envelope, one of them had no answer in time."""


class SlowController(MemoryTransport):
    """A controller's transport that leaves heartbeats unanswered for a time, and holds an Envelope back."""

    def __init__(self, network: MemoryNetwork) -> None:
        super().__init__(network, host="controller")
        self.is_slow = False
        self.unanswered = 0
        self.held: list[tuple[Request, Message]] = []
        self.repeated = trio.Event()
        """Set when an Envelope is held back, and a heartbeat has come again for want of an answer."""

    def answer(self, request: Request, message: Message) -> None:
        """Answer, unless the controller is slow."""
        if not self.is_slow:
            super().answer(request, message)
        elif request.api_key == ApiKey.BROKER_HEARTBEAT:
            self.unanswered += 1
        elif isinstance(message, EnvelopeResponse):
            self.held.append((request, message))
            self.unanswered = 0
        else:
            super().answer(request, message)
        if self.held and self.unanswered >= HEARTBEATS:
            self.repeated.set()

    def recover(self) -> None:
        """Answer everything again, and what was held back."""
        self.is_slow = False
        for request, message in self.held:
            super().answer(request, message)


async def run(
    config: Config, transport: MemoryTransport, cluster_id: str, *, task_status: trio.TaskStatus[object]
) -> None:
    disk, rng = MemoryDisk(), Random(config.node_id)
    format_directory(disk, "d", node_id=config.node_id, cluster_id=cluster_id, rng=rng, now_ms=0)
    application = broker_with_data(config, disk) if config.is_broker else host_controller
    await run_node(
        config,
        transport=transport,
        disk=disk,
        rng=rng,
        application=application,
        inline_flush=True,
        task_status=task_status,
    )


@asynccontextmanager
async def cluster(network: MemoryNetwork, controller: MemoryTransport) -> AsyncIterator[None]:
    broker = MemoryTransport(network, host="broker", served=AT_BROKERS, requested=ALL_APIS)
    cluster_id = str(random_uuid(Random(7)))
    async with trio.open_nursery() as nursery:
        for text, transport in ((CONTROLLER, controller), (BROKER, broker)):
            await nursery.start(partial(run, Config.parse(text), transport, cluster_id))
        yield
        nursery.cancel_scope.cancel()


class Client:
    """A client of the broker."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.transport = MemoryTransport(network, host="client", requested=AT_BROKERS)
        self._send, self._replies = trio.open_memory_channel[Message](1)
        self._token = 0

    def deliver(self, thing: Inbound) -> None:
        assert isinstance(thing, Reply), thing
        self._send.send_nowait(thing.message)

    def ask(self, message: Message) -> None:
        self._token += 1
        broker = Endpoint("broker", 9092)
        self.transport.request(broker, self._token, message, timeout_ms=60_000, client_id="client")

    async def error(self) -> Error:
        """What the next answer says of its topic."""
        answer = await self._replies.receive()
        assert isinstance(answer, CreateTopicsResponse), answer
        return Error(answer.topics[0].error_code)


def creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


async def test_a_heartbeat_without_an_answer_repeats_no_request_of_a_client(autojump_clock: object) -> None:
    """On one connection its end would be that of the CreateTopics, which would be made again and answered 36."""
    network = MemoryNetwork(seed=3, faults=Faults(delay_ms=(1, 1)))
    controller, client = SlowController(network), Client(network)
    async with cluster(network, controller), trio.open_nursery() as nursery:
        await nursery.start(partial(client.transport.run, client.deliver, batch_delivered=no_more))
        client.ask(creation("first"))
        while await client.error() is not Error.NONE:  # the broker is fenced
            client.ask(creation("first"))
        controller.is_slow = True
        client.ask(creation("orders"))
        await controller.repeated.wait()
        controller.recover()
        assert await client.error() is Error.NONE
        nursery.cancel_scope.cancel()
