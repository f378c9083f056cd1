"""The broker of the transcripts: what it is given, what it does, what it holds. No other module calls a broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from kraft.broker import BrokerOptions
from kraft.broker.opening import ServingOptions
from kraft.broker.server import BrokerServer, Found, Unfenced
from kraft.committed import CommittedBatch, Noted
from kraft.handling.settings import RequestSettings
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.replicas import DataSettings, ReplicaManager
from kraft.process.hosting import host_serving_broker
from kraft.process.options import ProcessOptions
from kraft.process.parts import Opening
from kraft.quorum.values import Endpoints, ListenerAddress
from kraft.quorum.voters import VoterSet
from kraft.replica.interface.options import ReplicaOptions
from kraft.wire import Answer, Drop, LeaveUnanswered, Outcome, ReplyTo, Send, WireRequest
from metadata_log.memory_disk import MemoryDisk
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid

LISTENER = "PLAINTEXT"
CONTROLLER = 0
"""The target of requests to the active controller."""


class Spec(Struct, frozen=True, kw_only=True):
    """The configuration of a broker."""

    broker_id: int
    directories: Mapping[str, Uuid]
    """The paths and ids of its log directories."""
    clean: tuple[Uuid, ...] = ()
    settings: Mapping[str, str] = {}
    """Kafka's names and values."""


class Sent(Struct, frozen=True):
    """A request to another broker, or to the controller; `reply_to` goes with its answer."""

    reply_to: object
    target: int
    request: Message


class Answered(Struct, frozen=True):
    """The answer to a request; None if it has none, and its connection goes on after `mute_ms`."""

    request_id: int
    message: Message | None
    mute_ms: int = 0


class Closed(Struct, frozen=True):
    """The connection of a request is closed."""

    request_id: int
    why: str


class Reported(Struct, frozen=True):
    """A line for the log of the node."""

    text: str


Output = Sent | Answered | Closed | Reported


class Replica(Struct, frozen=True, kw_only=True):
    """A replica of a partition at a broker; an offline one has no offsets."""

    directory: Uuid | None
    copy_directory: Uuid | None
    leader: int
    leader_epoch: int
    is_leader: bool
    isr: tuple[int, ...]
    """The committed ISR; empty on a follower."""
    proposed: tuple[int, ...] | None
    is_offline: bool
    start: int = 0
    high_watermark: int = 0
    stable: int = 0
    end: int = 0
    epochs: tuple[OffsetAndEpoch, ...] = ()


class Broker:
    """One life of a broker on a disk in memory."""

    def __init__(self, spec: Spec, disk: MemoryDisk) -> None:
        self._server = _server(spec, disk)
        self._offset = 0

    # What it is given

    def commit(self, values: tuple[bytes, ...]) -> None:
        """Committed records of the metadata log, a batch."""
        end = self._offset + len(values)
        self._server.on_committed(CommittedBatch(self._offset, end, 1, 0, values))
        while self._server.is_applying:
            self._server.apply_more()
        self._offset = end

    def request(
        self, request_id: int, api_key: int, version: int, message: Message, client_id: str, now_ms: int
    ) -> list[Output]:
        """A request of a client or of another broker."""
        request = WireRequest(
            request_id=request_id,
            api_key=api_key,
            version=version,
            message=message,
            listener=LISTENER,
            client_id=client_id,
            peer="10.0.0.1:40000",
        )
        outcome = self._server.on_request(request, now_ms)
        return [] if outcome is None else [_output(outcome)]

    def reply(self, reply_to: object, message: Message | None, now_ms: int) -> None:
        """The answer to a `Sent`; None if it failed."""
        assert isinstance(reply_to, ReplyTo), reply_to
        self._server.on_reply(reply_to, message, now_ms)

    def gone(self, request_id: int) -> None:
        """The connection of a request is closed."""
        self._server.on_gone(request_id)

    def shut_down(self, now_ms: int) -> None:
        """Begin a controlled shutdown."""
        self._server.on_begin_shutdown(now_ms)

    def close(self) -> None:
        """End cleanly."""
        self._server.close_data()

    # What it does

    def deadline_ms(self) -> int:
        """When the next `tick` is due."""
        return self._server.agenda.deadline_ms

    def tick(self, now_ms: int) -> list[Output]:
        """Do what is due."""
        return [_output(one) for one in self._server.on_tick(now_ms) if one != Noted(Unfenced())]

    # What it holds

    @property
    def is_running(self) -> bool:
        """Whether it serves clients."""
        return not self._server.agent.lifecycle.is_fenced

    @property
    def may_stop(self) -> bool:
        """Whether the controlled shutdown is complete."""
        return self._server.may_stop

    def replicas(self) -> Iterator[tuple[str, Replica]]:
        """The replicas by name, such as `orders-0`."""
        for part in self._manager.partitions.values():
            leading, copy = part.leading, part.copy
            replica = Replica(
                directory=part.directory,
                copy_directory=None if copy is None else copy.directory,
                leader=part.leader_id,
                leader_epoch=part.leader_epoch,
                is_leader=part.is_leader,
                isr=part.isr,
                proposed=None if leading is None else leading.proposed,
                is_offline=part.is_offline,
            )
            if not part.is_offline:
                replica = replace(
                    replica,
                    start=part.log.start_offset,
                    high_watermark=part.log.high_watermark,
                    stable=part.log.last_stable_offset,
                    end=part.log.end_offset,
                    epochs=part.log.epochs.entries,
                )
            yield str(part), replica

    def batches(self, name: str) -> bytes:
        """All batches of a replica."""
        return b"".join(segment.batches.file.pread(1 << 30, 0) for segment in self._log(name).segments)

    def segments(self, name: str) -> list[int]:
        """The first offset of each segment of a replica."""
        return [segment.base_offset for segment in self._log(name).segments]

    def _log(self, name: str) -> PartitionLog:
        [part] = [one for one in self._manager.partitions.values() if str(one) == name]
        return part.log

    @property
    def _manager(self) -> ReplicaManager:
        manager = self._server.agent.replicas
        assert isinstance(manager, ReplicaManager), manager
        return manager


def _server(spec: Spec, disk: MemoryDisk) -> BrokerServer:
    directories = tuple(spec.directories.values())
    settings = spec.settings
    serving = ServingOptions(
        log_dirs=tuple(spec.directories),
        data=DataSettings(broker_id=spec.broker_id, directories=(), static=settings),
        requests=RequestSettings(broker_id=spec.broker_id, prefers_rack_of_client="replica.selector.class" in settings),
    )
    replica = ReplicaOptions(
        directory=next(iter(spec.directories)),
        node_id=spec.broker_id,
        voters=VoterSet.parse("1@n1:9093"),
        endpoints=Endpoints((ListenerAddress(LISTENER, f"b{spec.broker_id}", 9092),)),
        may_vote=False,
    )
    broker = BrokerOptions(directories=directories, clean_directories=spec.clean, rack=settings.get("broker.rack"))
    options = ProcessOptions(replica=replica, broker=broker)
    made = host_serving_broker(disk, serving)(Opening(options, "cluster", (), Random(spec.broker_id)))
    assert isinstance(made, BrokerServer), made
    return made


def _output(made: Send | Outcome | Noted) -> Output:
    match made:
        case Send(message=message, reply_to=reply_to, target=target):
            return Sent(reply_to, CONTROLLER if target is None else target.node_id, message)
        case Answer():
            return Answered(made.request_id, made.message)
        case LeaveUnanswered():
            return Answered(made.request_id, None, made.mute_ms)
        case Drop():
            return Closed(made.request_id, made.why)
        case Noted(Found(texts)):
            return Reported("; ".join(texts))
    raise AssertionError(made)
