"""A `BrokerAgent` as the application of a `Replica` that observes the metadata log (Kafka: `BrokerServer`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from random import Random
from typing import Final, Protocol

from msgspec import Struct

from kraft.access.authorizer import AclOperation, Denial
from kraft.access.caller import Caller
from kraft.access.errors import ApiError
from kraft.access.failures import RequestFailures
from kraft.broker import BrokerAgent, BrokerListener, BrokerSettings
from kraft.broker.reply_keys import Channel, FetchFrom
from kraft.broker.settings import PLAINTEXT
from kraft.limits import REPLAYED_RECORDS_PER_TURN
from kraft.quorum.values import LeaderAndEpoch
from kraft.replica.hosts.record_values import decode_records, encode_image, published_features
from kraft.replica.interface.application import (
    PARKED,
    Action,
    Application,
    ForRequest,
    RefuseSubmit,
    Unit,
)
from kraft.replica.interface.events import Call, CancelCall, Committed, CommittedBatch, Noted, Submit
from kraft.replica.interface.options import ReplicaOptions
from kraft.supported_features import SUPPORTED_FEATURES, check_supported
from kraft.wire import Answer, Outcome, ReplyTo, Send, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.image.replaying import BatchReplay, SnapshotReplay
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, random_uuid
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import FetchRequest, FetchResponse

FEATURES: Final = SUPPORTED_FEATURES
"""The features that a broker registers."""


class Unfenced(Struct, frozen=True):
    """The broker is unfenced for the first time: its listeners may open (Kafka: `BrokerServer.startup`)."""


class Found(Struct, frozen=True):
    """What the broker found in its log directories, for the log of the node."""

    texts: tuple[str, ...]


class LeaveCluster(Struct, frozen=True):
    """The `ask` of the call that begins the controlled shutdown of the broker, before the controller's (`Server`)."""


class Left(Struct, frozen=True):
    """The controlled shutdown of the broker is complete: the controller may resign."""


Fetches = Callable[[FetchRequest, MetadataImage, int], FetchResponse]
"""Answers a Fetch of another broker at a time."""


class DataStore(Protocol):
    """The logs of a broker with data (`kraft.broker.partitions.ReplicaManager`)."""

    @property
    def findings(self) -> list[str]:
        """What the node should log; the host empties the list."""

    def close(self, *, broker_epoch: int) -> None:
        """Flush and close all logs, and write the proof of a clean shutdown."""


class ClientRequests(Protocol):
    """What serves the clients of a broker."""

    @property
    def apis(self) -> tuple[ApiKey, ...]:
        """The APIs; without Fetch among them, the agent answers the fetches of other brokers."""

    def on_request(self, asked: WireRequest, image: MetadataImage, now_ms: int) -> Outcome | None:
        """Answer a request; None if `poll` returns the answer later."""

    def may(self, operation: AclOperation, caller: Caller) -> bool:
        """Whether a caller may perform an operation on the cluster."""

    def take_denials(self) -> list[Denial]:
        """The requests that were denied since the last call, for the log of the node."""

    def on_gone(self, request_id: int) -> None:
        """The connection of a request is closed: the request waits no longer."""

    def on_moved(self) -> None:
        """Other brokers or the controller have answered the agent: replicas may have moved."""

    def on_reply(self, key: Hashable, response: Message | None, now_ms: int) -> None:
        """Take the reply to a `Send`; None if the request failed."""

    def deadline_ms(self) -> int:
        """When the next `poll` is due."""

    def poll(self, now_ms: int) -> Iterator[Send | Outcome]:
        """The requests and answers that are due."""


class BrokerHost:
    """Hosts one `BrokerAgent`; its replica never leads."""

    reads_batches = True

    def __init__(
        self,
        agent: BrokerAgent,
        clients: ClientRequests | None = None,
        store: DataStore | None = None,
        failures: RequestFailures | None = None,
        fetches: Fetches | None = None,
    ) -> None:
        """Without `store` the broker has no data; `fetches` answers other brokers then. `failures` are those of
        `clients`.
        """
        self._failures = RequestFailures() if failures is None else failures
        self.agent = agent
        served = () if clients is None else clients.apis
        self.apis: tuple[ApiKey, ...] = tuple(sorted({ApiKey.FETCH, *served}))
        self._fetches = fetches
        self._clients = clients
        self._store = store
        self._findings: list[str] = [] if store is None else store.findings
        self._is_announced = clients is None
        """Whether the shell was told that the broker is unfenced, or need not be."""
        self._applying: _Applying | None = None

    @property
    def clients(self) -> ClientRequests | None:
        """What serves the clients; None for a broker that serves none."""
        return self._clients

    def committed_image(self) -> MetadataImage:
        """The committed metadata, without records of a transaction that is open."""
        return self.agent.image

    def check(self, values: Sequence[bytes], *, in_snapshot: bool = False) -> None:
        """Decode the values. Raises the errors of `decode_records` for an unknown type or version."""
        for _ in decode_records(values):
            pass

    def check_snapshot(self, values: Iterable[bytes]) -> None:
        """Each record was decoded."""

    def on_snapshot(self, values: Iterable[bytes], end: OffsetAndEpoch) -> None:
        """Replace the image by that of a snapshot; `apply_more` completes this."""
        self._applying = _Applying(SnapshotReplay(end), end, values, f"snapshot {end}")
        self.apply_more()

    def on_committed(self, batch: CommittedBatch) -> tuple[Committed, ...]:
        """Replay the first portion of a batch; `apply_more` replays the rest."""
        end = OffsetAndEpoch(epoch=batch.epoch, offset=batch.next_offset)
        replay = self.agent.begin_committed(batch.base_offset)
        self._applying = _Applying(replay, end, batch.values, f"batch at offset {batch.base_offset}")
        return self.apply_more()

    @property
    def is_applying(self) -> bool:
        """Whether the last batch or snapshot needs more turns."""
        return self._applying is not None

    def apply_more(self) -> tuple[Committed, ...]:
        """Replay the next portion of the batch or the snapshot."""
        assert self._applying is not None, "nothing is being applied"
        features = self.agent.image.features
        if self._applying.go_on(self.agent):
            self._applying = None
            if self.agent.image.features is not features:
                check_supported(self.agent.image.features)
        return ()

    def on_leader(self, epoch: int, next_offset: int, now_ms: int) -> tuple[Action, ...]:
        """Never called: a broker is an observer of the quorum."""
        raise AssertionError("a broker does not lead the quorum")

    def on_lost_leadership(self) -> None:
        """Never called."""
        raise AssertionError("a broker does not lead the quorum")

    def on_appended(self, unit: Unit, base_offset: int) -> None:
        """Never called."""
        raise AssertionError("a broker does not append to the metadata log")

    def on_request(self, request: WireRequest, leader: LeaderAndEpoch, now_ms: int) -> Action:
        """Answer the fetch of another broker, or the request of a client."""
        message = request.message
        if self._fetches is not None and isinstance(message, FetchRequest):
            return Answer(request.request_id, self._fetches(message, self.agent.image, now_ms))
        assert self._clients is not None, message
        found = self._clients.on_request(request, self.agent.image, now_ms)
        return PARKED if found is None else found

    on_full = on_request

    def denial(self, request: WireRequest) -> ApiError | None:
        """Never asked: a broker serves no requests of the quorum."""
        return None

    def take_denials(self) -> Sequence[Denial]:
        """What clients were denied."""
        return () if self._clients is None else self._clients.take_denials()

    def on_caught_up(self) -> None:
        """A broker has nothing to do then."""

    def snapshot(self) -> Callable[[], Iterator[bytes]] | None:
        """The record values of the image; None while a transaction is open."""
        image = self.agent.image
        return (lambda: encode_image(image)) if self.agent.is_between_transactions else None

    def on_submit(self, submit: Submit) -> Action:
        """Refused: only decisions of the controller go into a metadata log."""
        return RefuseSubmit(submit.submit_id, Error.INVALID_REQUEST)

    def on_call(self, call: Call | CancelCall, now_ms: int) -> None:
        """Never called: a broker gets its requests from the transport."""
        raise AssertionError("a broker is asked over the wire")

    def on_gone(self, request_id: int) -> None:
        """The request waits no longer."""
        if self._clients is not None:
            self._clients.on_gone(request_id)

    def on_confirmed(self, token: int, *, is_leader: bool) -> None:
        """Never called."""
        raise AssertionError("a broker does not lead the quorum")

    def on_reply(self, reply_to: ReplyTo, response: Message | None, now_ms: int) -> None:
        """Pass the reply of the active controller or of another broker to the asker."""
        match reply_to.key:
            case Channel.HEARTBEATS | Channel.ISR_CHANGES | Channel.ASSIGNMENTS | FetchFrom() as key:
                self.agent.on_reply(key, response, now_ms)
                if self._clients is not None:
                    self._clients.on_moved()
            case key:
                assert self._clients is not None, key
                self._clients.on_reply(key, response, now_ms)

    def on_begin_shutdown(self, now_ms: int) -> None:
        """Begin the controlled shutdown: the controller moves the leaderships of this broker."""
        self.agent.begin_shutdown(now_ms)

    @property
    def may_stop(self) -> bool:
        """Whether the controller has confirmed the controlled shutdown."""
        return self.agent.may_stop

    @property
    def has_data(self) -> bool:
        """Whether the replicas of this broker hold records."""
        return self._store is not None

    def close_data(self) -> None:
        """Close the logs after a graceful shutdown, with proof of that; without data there is nothing to close."""
        if self._store is not None:
            self._store.close(broker_epoch=self.agent.lifecycle.epoch)

    def refuse(
        self, asked: ForRequest, error: Error, leader: LeaderAndEpoch, now_ms: int, text: str | None = None
    ) -> Answer | None:
        """Never called: a broker proposes nothing."""
        raise AssertionError(f"a broker does not refuse a {type(asked.request).__name__}")

    def finalized_features(self) -> tuple[tuple[tuple[str, int], ...], int]:
        """The feature levels in the metadata, and their offset."""
        return published_features(self.agent.image)

    def supported_features(self) -> tuple[tuple[str, int, int], ...]:
        """The features that this software supports."""
        return SUPPORTED_FEATURES

    def deadline_ms(self) -> int:
        """The time of the next `on_tick`."""
        if self._clients is None:
            return self.agent.deadline_ms()
        if self._failures.is_due:
            return 0
        due_ms = self._clients.deadline_ms()
        # After each request of a client something is due at once; the agent need not say when it has something to do.
        return min(due_ms, self.agent.deadline_ms()) if due_ms > 0 else due_ms

    def on_tick(self, now_ms: int) -> tuple[Action, ...]:
        """Send the requests that are due: those of the agent, then those for clients."""
        actions: list[Action] = [*self.agent.poll(now_ms)]
        if self._clients is not None:
            actions += self._clients.poll(now_ms)
            actions += map(Noted, self._failures.take())
            if self._findings:
                actions.append(Noted(Found(tuple(self._findings))))
                self._findings.clear()
            if not self._is_announced and not self.agent.lifecycle.is_fenced:
                self._is_announced = True
                actions.append(Noted(Unfenced()))
        return tuple(actions)


class _Applying:
    """Replays committed records into the image of a broker, a portion in each turn."""

    def __init__(
        self, replay: BatchReplay | SnapshotReplay, end: OffsetAndEpoch, values: Iterable[bytes], where: str
    ) -> None:
        self.replay = replay
        self._end = end
        self._values = values
        self._where = where
        self._records = iter(decode_records(values, where))
        self.count = 0
        """How many records were replayed so far."""

    def go_on(self, agent: BrokerAgent) -> bool:
        """Replay the next records; returns whether those were the last."""
        replay = self.replay
        if isinstance(replay, SnapshotReplay):
            is_whole = replay.go_on(self._counted(), REPLAYED_RECORDS_PER_TURN) > 0
            if is_whole:
                agent.finish_snapshot(replay)
        else:
            is_whole = replay.go_on(agent.noted(self._counted()), REPLAYED_RECORDS_PER_TURN) > 0
            if is_whole:
                agent.finish_committed(replay, self._end)
        return is_whole

    def _counted(self) -> Iterator[Message]:
        for record in self._records:
            self.count += 1
            yield record


def broker_settings(options: ReplicaOptions, cluster_id: str, rng: Random) -> BrokerSettings:
    """The settings of a broker's agent, with a new incarnation id."""
    assert options.broker is not None, "these are not the options of a broker"
    protocols = dict(options.security_protocols)
    return BrokerSettings(
        broker_id=options.node_id,
        cluster_id=cluster_id,
        incarnation_id=random_uuid(rng),
        listeners=tuple(
            BrokerListener(one.name, one.host, one.port, protocols.get(one.name, PLAINTEXT))
            for one in options.endpoints.listeners
        ),
        features=FEATURES,
        options=options.broker,
    )


def broker_of(application: Application) -> BrokerHost | None:
    """The broker that an application is, or has beside a controller."""
    part = getattr(application, "broker", application)
    return part if isinstance(part, BrokerHost) else None
