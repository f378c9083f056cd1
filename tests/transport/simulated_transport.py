"""The network of the simulator as a `Transport`: each transport is a node of one `Simulator`, and what is sent goes the
way of everything in a run. The world delivers, and its network decides when.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import Any

import trio
from msgspec import Struct

from kraft.quorum.events import FailureCause
from kraft.quorum.values import QuorumConfig
from kraft.quorum.voters import VoterSet
from kraft.sim import Scenario, Simulator
from kraft.sim.nodes.core_member import CoreMember
from kraft.sim.world.actions import Fail, Start, Tick
from kraft.sim.world.member_interface import Answer, Output, SimulatedRequest
from metadata_log.serde import Message
from metadata_log.serde.fields import OPEN_END
from transport import Cause, Endpoint, Failed, Inbound, Listener, Reply, Request
from transport.faults import NO_FAULTS, Faults
from transport.interface import PEERS, no_more
from transport.protocol.apis import APIS
from transport.protocol.headers import decode_request, decode_response, encode_request, encode_response

CLIENT_ID = "raft-client-1"
FOR_EVER_MS = 2**60


class Talker(CoreMember):
    """A node with a user in place of its core: the user sends the node's messages and receives those to the node."""

    def __init__(self, node_id: int, *, voters: VoterSet, config: QuorumConfig) -> None:
        super().__init__(node_id, voters=voters, config=config)
        self.saying: list[Output] = []
        self.on_inbound: Callable[[Inbound], None] = lambda inbound: None

    def start(self, rng: Random, now_ms: int) -> list[Output]:
        super().start(rng, now_ms)
        return []

    def deadline_ms(self) -> int:
        return FOR_EVER_MS

    def tick(self, now_ms: int) -> list[Output]:
        """Send the messages queued since the last tick."""
        saying, self.saying = self.saying, []
        return saying

    def on_request(self, request_id: int, message: object, now_ms: int) -> list[Output]:
        assert isinstance(message, bytes)
        header, body = decode_request(message)
        self.on_inbound(
            Request(
                handle=request_id,
                sequence=request_id,
                api_key=header.request_api_key,
                version=header.request_api_version,
                correlation_id=header.correlation_id,
                client_id=header.client_id,
                message=body,
                listener="CONTROLLER",
                peer="",
            )
        )
        return self.tick(now_ms)

    def on_reply(self, request_id: int, message: object, now_ms: int) -> list[Output]:
        assert isinstance(message, Encoded)
        self.on_inbound(Reply(request_id, decode_response(message.api_key, message.version, message.frame)[1]))
        return self.tick(now_ms)

    def on_failed(self, request_id: int, cause: FailureCause, now_ms: int) -> list[Output]:
        self.on_inbound(Failed(request_id, Cause(cause.value), "in the simulation"))
        return self.tick(now_ms)

    def ask(
        self,
        target: int,
        token: int,
        message: Message,
        timeout_ms: int = 30_000,
        client_id: str = CLIENT_ID,
        highest: int = OPEN_END,
        peers: str = PEERS,
    ) -> None:
        """Send a request with the next tick."""
        api_key = type(message).__schema__.api_key
        assert api_key is not None
        frame = encode_request(api_key, min(APIS[api_key].versions.highest, highest), token, client_id, message)
        self.saying.append(
            SimulatedRequest(token, target, frame, timeout_ms, kind=type(message).__name__.removesuffix("Request"))
        )

    def answer(self, request: Request, message: Message) -> None:
        """Answer a request with the next tick."""
        frame = encode_response(request.api_key, request.version, request.correlation_id, message)
        assert isinstance(request.handle, int)
        self.saying.append(Answer(request.handle, Encoded(request.api_key, request.version, frame)))


class Encoded(Struct, frozen=True):
    """An answer, and what is needed to read it."""

    api_key: int
    version: int
    frame: bytes


class Talk:
    """So many nodes, all down at first, in the world of one seed, and a network with these faults and no others."""

    def __init__(self, nodes: int, seed: int = 0, faults: Faults = NO_FAULTS) -> None:
        self.talkers: dict[int, Talker] = {}
        self.simulator = Simulator(Scenario.drawn("talker", nodes, seed), make_member=self._make)
        self.simulator.faults.faults = faults
        self._began: float | None = None

    def _make(self, node_id: int, voters: VoterSet, config: QuorumConfig, rng: Random) -> Talker:
        self.talkers[node_id] = talker = Talker(node_id, voters=voters, config=config)
        return talker

    def catch_up(self) -> None:
        """Run all events that are due by Trio's clock, counted from the first call."""
        now = trio.current_time()
        if self._began is None:
            self._began = now
        self.simulator.run_until(round(1000 * (now - self._began)))

    def start(self, node_id: int) -> None:
        """Begin a life of a node."""
        self.simulator.world.perform(Start(self.simulator.now_ms, node_id, seed=node_id))

    def crash(self, node_id: int) -> None:
        """Crash a node; the node stays down until `start`."""
        self.simulator.crash(node_id, FOR_EVER_MS)

    def send(self, node_id: int) -> None:
        """Send the node's queued messages now."""
        self.simulator.world.perform(Tick(self.simulator.now_ms, node_id))

    def close(self, node_id: int, peer_id: int) -> None:
        """A node gives up its outstanding requests to a peer."""
        simulator = self.simulator
        for one in simulator.world.under_way(node_id):
            if (one.sender, one.target) == (node_id, peer_id):
                simulator.queue.plan(
                    Fail(simulator.now_ms, node_id, peer_id, one.number, FailureCause.CLOSED, one.kind)
                )


class SimulatedTransport:
    """A `Transport` for the part of the contract that is about messages; time is that of Trio."""

    def __init__(self, talk: Talk, node_id: int, **options: Any) -> None:
        assert not options, "the nodes of the simulation say themselves which versions they speak"
        self._talk = talk
        self._node_id = node_id
        self._talker = talk.talkers[node_id]
        self._is_delivering = False
        self._poked = trio.Event()

    def listen(self, listener: Listener) -> Endpoint:
        return Endpoint(listener.host, self._node_id)

    async def run(
        self,
        deliver: Callable[[Inbound], None],
        *,
        batch_delivered: Callable[[], bool] = no_more,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        def on_inbound(inbound: Inbound) -> None:
            self._is_delivering = True
            deliver(inbound)
            batch_delivered()
            self._is_delivering = False

        self._talker.on_inbound = on_inbound
        self._talk.start(self._node_id)
        task_status.started()
        try:
            while True:
                self._talk.catch_up()
                with trio.move_on_after(0.001):
                    await self._poked.wait()
                self._poked = trio.Event()
        finally:
            self._talk.crash(self._node_id)

    def request(
        self,
        endpoint: Endpoint,
        token: int,
        message: Message,
        *,
        timeout_ms: int,
        client_id: str,
        lane: int = 0,
        highest: int = OPEN_END,
        peers: str = PEERS,
    ) -> None:
        self._talker.ask(endpoint.port, token, message, timeout_ms, client_id, highest)
        self._send()

    def answer(self, request: Request, message: Message) -> None:
        self._talker.answer(request, message)
        self._send()

    def close_peer(self, endpoint: Endpoint) -> None:
        self._talk.close(self._node_id, endpoint.port)
        self._poked.set()

    def _send(self) -> None:
        if not self._is_delivering:
            self._talk.send(self._node_id)
            self._poked.set()

    def drop(self, request: Request) -> None:
        raise AssertionError("a simulated node drops no connection")

    def keep_connected(self, endpoints: Collection[Endpoint], client_id: str) -> None:
        raise AssertionError("there are no connections that could be kept")

    def poll_nowait(self) -> None:
        raise AssertionError("messages arrive at their own times")

    def wake(self) -> None:
        raise AssertionError("there is one thread")
