"""A broker as one synchronous object, the sibling of the controller: it follows the metadata log, keeps its
registration, holds its replicas, and answers its clients (Kafka: `BrokerServer`, `KafkaApis`).

Nothing here waits, reads a clock or draws numbers of its own. The owner passes in requests, replies and committed
records, and calls `on_tick` when `deadline_ms` is over.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator

from msgspec import Struct

from kraft.access.authorizer import AclOperation
from kraft.access.caller import Caller
from kraft.agenda import Slot
from kraft.broker.agent import BrokerAgent
from kraft.broker.registered import RegisteredBroker
from kraft.broker.requests import Requests
from kraft.committed import Committed, Noted
from kraft.partitions.replicas.checkpoint_writer import CheckpointWriter
from kraft.partitions.replicas.manager import ReplicaManager
from kraft.wire import Answer, Outcome, ReplyTo, Send, WireRequest
from metadata_log.serde import Message
from transport.protocol.broker_apis import ALL_APIS


class Unfenced(Struct, frozen=True):
    """The broker is unfenced for the first time, and its metadata says so: its listeners may open.

    Kafka's open before (`BrokerServer.startup`), and may then name no broker to a client.
    """


class Found(Struct, frozen=True):
    """The findings of the broker in its log directories, for the log of the node."""

    texts: tuple[str, ...]


class BrokerServer(RegisteredBroker):
    """One broker, as a part of its process.

    Args:
        agent: The registration of the broker, and what the metadata says of its replicas.
        requests: What answers clients and other brokers.
        manager: The replicas with their logs.
    """

    def __init__(self, agent: BrokerAgent, requests: Requests, manager: ReplicaManager) -> None:
        super().__init__(agent, requests.agenda, requests.rights.audited)
        self.requests = requests
        self.apis = frozenset(requests.apis)
        self._manager = manager
        self._is_announced = False
        """Whether the owner was told that the broker is unfenced."""
        self._works: list[Callable[[int], Iterable[Send | Outcome | Noted]]] = [*requests.works]
        self._works[Slot.AGENT], self._works[Slot.REPORTS] = self._act, self._report
        self._last_own = 0
        self._own: dict[int, Hashable] = {}
        """The requests of this broker to itself that wait, by id, with what their sender knows them by."""

    # Committed metadata

    def apply_more(self) -> tuple[Committed, ...]:
        """Replay the next portion of the batch or the snapshot."""
        before = self.agent.image
        super().apply_more()
        if self.agent.image is not before:
            self.agenda.now(Slot.AGENT)
        return ()

    # Requests and replies

    def on_request(self, request: WireRequest, now_ms: int) -> Outcome | None:
        """Answer a request of one of `apis`; None if `on_tick` returns the outcome later."""
        return self.requests.on_request(request, self.agent.image, now_ms)

    def on_gone(self, request_id: int) -> None:
        """The connection of a request is closed: the request waits no longer."""
        self.requests.forget(request_id)

    def on_closed(self, listener: str, peer: str) -> None:
        """A connection is closed: a member of a share group has nothing any more."""
        self.requests.on_closed(listener, peer)

    def on_software(self, listener: str, peer: str, name: str, version: str) -> None:
        """A client tells what it is, which subscriptions of client metrics may ask for."""
        self.requests.on_software(listener, peer, name, version)

    def on_reply(self, reply_to: ReplyTo, response: Message | None, now_ms: int) -> None:
        """The reply to a `Send` of `on_tick`; None if the request has failed."""
        key = reply_to.key
        if self.requests.owns(key):
            self.requests.on_reply(key, response, now_ms)
        else:
            self.agent.on_reply(key, response, now_ms)
            self.agenda.now(Slot.AGENT)

    def may(self, operation: AclOperation, caller: Caller) -> bool:
        """Whether a caller may perform an operation on the cluster."""
        return self.requests.may(operation, caller)

    # Time

    def on_tick(self, now_ms: int) -> list[Send | Outcome | Noted]:
        """Do what is due: the requests to send, the outcomes of requests that waited, and what the owner should know.

        Raises:
            RegistrationFailed: The controllers do not take the registration.
            NoLogDirectory: Every log directory has failed.
        """
        effects: list[Send | Outcome | Noted] = []
        works, own_id = self._works, self.agent.settings.broker_id
        for slot in self.agenda.take_due(now_ms):
            for one in works[slot](now_ms):
                # What this broker has to tell itself is handled here. It leads a partition of a transaction that it
                # coordinates as often as not. Kafka's broker asks itself over the network, where a producer overtakes
                # the end of its last transaction.
                if isinstance(one, Send):
                    if one.target is not None and one.target.node_id == own_id:
                        self._ask_own(one, now_ms)
                        continue
                elif self._own and isinstance(one, Outcome) and one.request_id in self._own:
                    self._on_own(one, now_ms)
                    continue
                effects.append(one)
        times = self.requests.times
        if times.is_on:
            return [times.closed(one, now_ms) if isinstance(one, Outcome) else one for one in effects]
        return effects

    def _act(self, now_ms: int) -> list[Send | Noted]:
        """The requests of the agent that are due."""
        agent, requests = self.agent, self.requests
        effects: list[Send | Noted] = [*agent.poll(now_ms), *self._farewell()]
        requests.use(agent.image)
        requests.broker_epoch = agent.lifecycle.epoch
        for key, directory in self._manager.moves.take_wanted().items():
            agent.directories.move(key, directory)
        if self._is_to_announce:
            self.agenda.now(Slot.REPORTS)
        self._plan()
        return effects

    def _report(self, now_ms: int) -> Iterator[Noted]:
        """The news for the owner."""
        yield from map(Noted, self.requests.failures.take())
        if findings := self._manager.findings:
            yield Noted(Found(tuple(findings)))
            findings.clear()
        if self._is_to_announce:
            self._is_announced = True
            yield Noted(Unfenced())

    @property
    def _is_to_announce(self) -> bool:
        """Whether the broker is unfenced and names itself to clients, and the owner does not know.

        librdkafka waits for minutes if the first broker that it asks names none.
        """
        if self._is_announced or self.agent.lifecycle.is_fenced:
            return False
        own = self.agent.image.brokers.by_id.get(self.agent.settings.broker_id)
        return own is not None and not own.fenced

    def _ask_own(self, send: Send, now_ms: int) -> None:
        """Handle a request of this broker to itself."""
        api_key = send.message.__schema__.api_key
        assert api_key is not None, send
        self._last_own -= 1
        request = WireRequest(
            request_id=self._last_own,
            api_key=api_key,
            version=ALL_APIS[api_key].versions.highest,
            message=send.message,
            listener="",
        )
        self._own[request.request_id] = send.reply_to.key
        outcome = self.requests.on_request(request, self.agent.image, now_ms)
        if outcome is not None:
            self._on_own(outcome, now_ms)

    def _on_own(self, outcome: Outcome, now_ms: int) -> None:
        """The outcome of such a request."""
        message = outcome.message if isinstance(outcome, Answer) else None
        self.requests.on_reply(self._own.pop(outcome.request_id), message, now_ms)

    # The end

    def write_checkpoints_by(self, writer: CheckpointWriter) -> None:
        """Let another writer than this object write the periodic checkpoints of its replicas."""
        self._manager.hosting.store.writer = writer

    def close_data(self) -> None:
        """Close the logs after a graceful shutdown, with proof of that."""
        self._manager.close(broker_epoch=self.agent.lifecycle.epoch)
