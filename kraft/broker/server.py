"""A broker as one synchronous object, the sibling of the controller: it follows the metadata log, keeps its
registration, holds its replicas, and answers its clients (Kafka: `BrokerServer`, `KafkaApis`).

Nothing here waits, reads a clock or draws numbers of its own. The owner passes in requests, replies and committed
records, and calls `on_tick` when `deadline_ms` is over.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final

from msgspec import Struct

from kraft.access.authorizer import AclOperation, Denial
from kraft.access.caller import Caller
from kraft.access.older_node import OlderNode
from kraft.broker.agent import BrokerAgent
from kraft.broker.registered import RegisteredBroker
from kraft.broker.requests import Requests
from kraft.committed import Committed, Noted
from kraft.partitions.replicas.checkpoint_writer import CheckpointWriter
from kraft.partitions.replicas.manager import ReplicaManager
from kraft.wire import Answer, Outcome, ReplyTo, Send, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from transport.protocol.apis import ApiKey
from transport.protocol.broker_apis import ALL_APIS


class Unfenced(Struct, frozen=True):
    """The broker is unfenced for the first time: its listeners may open (Kafka: `BrokerServer.startup`)."""


class Found(Struct, frozen=True):
    """The findings of the broker in its log directories, for the log of the node."""

    texts: tuple[str, ...]


_FREQUENT: Final = frozenset(
    (
        *(ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.TXN_OFFSET_COMMIT),
        *(ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP),
        *(ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN, ApiKey.WRITE_TXN_MARKERS),
    )
)
"""After most of these nothing is due: whatever they have moved says so itself, in `deadline_ms`."""


class BrokerServer(RegisteredBroker):
    """One broker, as a part of its process: the methods that `kraft.process.parts.Broker` names.

    Args:
        agent: The registration of the broker, and what the metadata says of its replicas.
        requests: What answers clients and other brokers.
        manager: The replicas with their logs.
    """

    def __init__(self, agent: BrokerAgent, requests: Requests, manager: ReplicaManager) -> None:
        super().__init__(agent)
        self.requests = requests
        self.apis: tuple[ApiKey, ...] = requests.apis
        self.denials: list[Denial | OlderNode] = requests.rights.denials
        self._manager = manager
        self._is_announced = False
        """Whether the owner was told that the broker is unfenced."""
        self._has_moved = False
        """Whether something has happened since the last turn that may end the wait of a request."""
        self._has_replied = False
        """Whether another node has answered the agent since the last turn."""
        self._polled_image: MetadataImage | None = None
        self._failed = 0
        """How many log directories had failed at the last turn."""
        self._agent_ms: int | None = None
        """When the agent has something to do; None if something may have changed that since the last question, but for
        what `ReplicaManager.stirred_ms` looks at.
        """
        self._settled: ReplicaManager | None = None
        """The replicas, if the agent does at that time what they want."""
        self._last_own = 0
        self._own: dict[int, Hashable] = {}
        """The requests of this broker to itself that wait, by id, with what their sender knows them by."""

    # Committed metadata

    def apply_more(self) -> tuple[Committed, ...]:
        """Replay the next portion of the batch or the snapshot."""
        self._agent_ms = None
        return super().apply_more()

    # Requests and replies

    def on_request(self, request: WireRequest, now_ms: int) -> Outcome | None:
        """Answer a request of one of `apis`; None if `on_tick` returns the outcome later."""
        if request.api_key not in _FREQUENT:
            self._has_moved = True
        return self.requests.on_request(request, self.agent.image, now_ms)

    def on_gone(self, request_id: int) -> None:
        """The connection of a request is closed: the request waits no longer."""
        self.requests.forget(request_id)

    def on_reply(self, reply_to: ReplyTo, message: Message | None, now_ms: int) -> None:
        """The reply to a `Send` of `on_tick`; None if the request has failed."""
        self._agent_ms = None
        key = reply_to.key
        if self.requests.owns(key):
            self._has_moved = True
            self.requests.on_reply(key, message, now_ms)
        else:
            self._has_replied = True
            self.agent.on_reply(key, message, now_ms)

    def may(self, operation: AclOperation, caller: Caller) -> bool:
        """Whether a caller may perform an operation on the cluster."""
        return self.requests.may(operation, caller)

    # Time

    def deadline_ms(self) -> int:
        """The time of the next `on_tick`."""
        requests = self.requests
        if not requests.groups.next_ms:
            # What groups want to write is gathered until the end of a burst.
            return 0
        if self._is_to_look or requests.has_moved:
            return 0
        return min(requests.deadline_ms(), self._due_ms())

    @property
    def _is_to_look(self) -> bool:
        """Whether everything is to be looked at, because more has happened than a Produce or a Fetch without fault."""
        requests, manager = self.requests, self._manager
        return (
            self._has_moved
            or self._has_replied
            or self._polled_image is not self.agent.image
            or bool(requests.failures.noted)
            or bool(manager.findings)
            or len(manager.failed_directories) != self._failed
        )

    def _due_ms(self) -> int:
        """When the agent has something to do. Between two of its turns only what the replicas say can change that."""
        due_ms = self._agent_ms
        if due_ms is None:
            agent = self.agent
            due_ms = self._agent_ms = agent.deadline_ms()
            self._settled = self._manager if agent.is_settled else None
        return due_ms if self._settled is None else min(due_ms, self._settled.stirred_ms())

    def on_tick(self, now_ms: int) -> list[Send | Outcome | Noted]:
        """Do what is due: the requests to send, the outcomes of requests that waited, and what the owner should know.

        Raises:
            RegistrationFailed: The controllers do not take the registration.
            NoLogDirectory: Every log directory has failed.
        """
        requests = self.requests
        if not self._is_to_look and now_ms < self._due_ms() and requests.is_quiet(now_ms):
            # The usual turn: records have come, or a follower has them.
            outcomes: list[Send | Outcome | Noted] = list(requests.poll_waiting(now_ms))
            return list(self._for_others(outcomes, now_ms)) if self._own else outcomes
        effects = list(self._due(now_ms))
        self._agent_ms = None
        return effects

    def _due(self, now_ms: int) -> Iterator[Send | Outcome | Noted]:
        is_of_requests = self._has_moved or self._polled_image is not self.agent.image
        self._has_moved = self._has_replied = False
        agent, requests, manager = self.agent, self.requests, self._manager
        self._failed = len(manager.failed_directories)
        yield from agent.poll(now_ms)
        self._polled_image = agent.image
        for key, directory in manager.moves.take_wanted().items():
            agent.directories.move(key, directory)
        if is_of_requests or not requests.is_quiet(now_ms):
            polled: Iterable[Send | Outcome] = requests.poll(now_ms, agent.image, agent.lifecycle.epoch)
        else:
            polled = requests.poll_waiting(now_ms)
        yield from self._for_others(polled, now_ms)
        yield from map(Noted, requests.failures.take())
        if manager.findings:
            yield Noted(Found(tuple(manager.findings)))
            manager.findings.clear()
        if not self._is_announced and not agent.lifecycle.is_fenced:
            self._is_announced = True
            yield Noted(Unfenced())

    def _for_others(self, polled: Iterable[Send | Outcome | Noted], now_ms: int) -> Iterator[Send | Outcome | Noted]:
        """The outputs that go to others. What this broker has to tell itself is handled here.

        It leads a partition of a transaction that it coordinates as often as not. Kafka's broker asks itself over the
        network, where a producer overtakes the end of its last transaction.
        """
        for one in polled:
            if isinstance(one, Send):
                if one.target is not None and one.target.node_id == self.agent.settings.broker_id:
                    self._ask_own(one, now_ms)
                else:
                    yield one
            elif isinstance(one, Outcome) and one.request_id in self._own:
                self._on_own(one, now_ms)
            else:
                yield one

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

    def on_begin_shutdown(self, now_ms: int) -> None:
        """Begin the controlled shutdown: the controller moves the leaderships of this broker."""
        super().on_begin_shutdown(now_ms)
        self._agent_ms = None

    def write_checkpoints_by(self, writer: CheckpointWriter) -> None:
        """Let another writer than this object write the periodic checkpoints of its replicas."""
        self._manager.hosting.store.writer = writer

    def close_data(self) -> None:
        """Close the logs after a graceful shutdown, with proof of that."""
        self._manager.close(broker_epoch=self.agent.lifecycle.epoch)
