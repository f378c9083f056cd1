"""A node that is the very `Replica` of production over a disk in memory, hosting a raw log or the controller.

Kafka: the `RaftNode` of `RaftEventSimulationTest`, here with real files and frames.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from random import Random
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.broker import BrokerAgent, BrokerOptions
from kraft.controller import QuorumController
from kraft.controller.decision.request_context import DecisionSettings
from kraft.invariants.observation import Applied, LogBatch, SnapshotContent
from kraft.invariants.wire import check_leader_can_be_found
from kraft.quorum.core import RaftCore
from kraft.quorum.effects import PeerFault, StateChanged
from kraft.quorum.events import FailureCause
from kraft.quorum.values import (
    DEFAULT_LISTENER,
    ElectionState,
    Endpoints,
    ListenerAddress,
    QuorumConfig,
    ReplicaKey,
)
from kraft.quorum.voters import QuorumChange, VoterSet
from kraft.replica.hosts.broker_host import BrokerHost
from kraft.replica.hosts.controller_host import ControllerHost
from kraft.replica.interface import events as replica_events
from kraft.replica.interface.application import ApplicationFactory
from kraft.replica.interface.options import UNITS_PER_TURN, ReplicaOptions
from kraft.replica.interface.snapshot_options import SnapshotOptions
from kraft.replica.replica import Replica
from kraft.replica.storage.quorum_records import changes_in
from kraft.replica.storage.storage import election_of
from kraft.sim.nodes.registers import RegisterLog
from kraft.sim.nodes.stale_requests import StaleRequests
from kraft.sim.nodes.work import Work
from kraft.sim.world.disk_damage import Damage, damage_file, damaged_old_segments
from kraft.sim.world.member_interface import (
    NOWHERE,
    STRANGERS,
    Administered,
    Answer,
    Changed,
    Crashed,
    Done,
    Flush,
    Outcome,
    Output,
    PeerFaultReported,
    SimulatedRequest,
    SteppedMember,
)
from metadata_log.errors import EncodeError
from metadata_log.log.clean_shutdown import UNCLEAN, take_clean_shutdown, write_clean_shutdown
from metadata_log.log.log_dir import format_directory, read_meta_properties
from metadata_log.log.quorum_state_file import FILE_NAME, parse_quorum_state
from metadata_log.log.snapshot import list_snapshots, read_snapshot, read_snapshot_start, snapshot_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import RecordBatch, records, scan
from metadata_log.serde import Message, decode, encode
from metadata_log.types import METADATA_PARTITION, METADATA_TOPIC, OffsetAndEpoch, Uuid
from transport.protocol.apis import APIS, ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import FetchRequest, FetchResponse
from transport.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from transport.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from transport.protocol.messages.vote import VoteRequest, VoteRequestPartitionData, VoteResponse

KILLED: Final = 0.25
"""The share of crashes in which only the process dies; in the others the power fails."""
ADMINISTERED: Final = 1 << 40
"""Requests of `administer` have ids below minus this."""
CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAkrA"
OTHER_CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAkrB"
DIRECTORY: Final = "/log"
PARTITION: Final = f"{DIRECTORY}/{METADATA_TOPIC}-{METADATA_PARTITION}"
QUORUM_STATE: Final = f"{PARTITION}/{FILE_NAME}"
REMEMBERED: Final = 1024
"""The number of cached parsed files and batches."""
FORMATTED_MS: Final = 1_600_000_000_000
PORT: Final = 9000
_HOST: Final = re.compile("[nbv][1-9][0-9]{0,5}")
"""The host names of nodes; other names come from forged frames."""
_INDIRECT: Final = "v"
_ALL: Final = 2**31
_SET: Final = 0
_CLIENT_METRICS: Final = 16


class Frame(Struct, frozen=True):
    """A message in transit: its encoded body, or the message itself in a run without the codecs."""

    api_key: int
    version: int
    body: bytes | Message


class Formatting(Struct, frozen=True):
    """How a directory of a dynamic quorum is formatted: with the first voters, or to join later."""

    first_voters: VoterSet | None
    bootstrap: tuple[ListenerAddress, ...]
    """The addresses at which the node discovers the leader."""


class ReplicaMember(SteppedMember):
    """One replica and its disk. `versions` are the versions it speaks, by API key, where not the highest it knows."""

    def __init__(
        self,
        node_id: int,
        *,
        voters: VoterSet,
        config: QuorumConfig,
        application: ApplicationFactory,
        segment_bytes: int,
        versions: Mapping[int, int],
        uses_codecs: bool,
        decisions: DecisionSettings = DecisionSettings(),
        broker: BrokerOptions | None = None,
        formatting: Formatting | None = None,
        snapshots: SnapshotOptions = SnapshotOptions(),
        judged_per_turn: int = UNITS_PER_TURN,
    ) -> None:
        """`voters` are those of the configuration; a dynamic quorum has none there, but a `formatting`."""
        self.node_id = node_id
        self._options = ReplicaOptions(
            directory=DIRECTORY,
            node_id=node_id,
            voters=voters,
            endpoints=_endpoints_of_broker(node_id) if broker else endpoints_of(node_id),
            bootstrap=() if formatting is None else formatting.bootstrap,
            snapshots=snapshots,
            cluster_id=CLUSTER_ID,
            quorum=config,
            segment_bytes=segment_bytes,
            decisions=decisions,
            judged_per_turn=judged_per_turn,
        )
        self._broker = broker
        """The configuration of a broker's agent, without the content of its disk."""
        self._application = application
        self._versions = versions
        self._uses_codecs = uses_codecs
        self._formatting = formatting
        self._rng = rng = Random(node_id)
        is_dynamic, first_voters = formatting is not None, None if formatting is None else formatting.first_voters
        self._disk = _formatted_disk(node_id, rng, is_dynamic=is_dynamic, first_voters=first_voters)
        self.key = _key_on(self._disk)
        """Its id and that of the directory that is its own; another's is refused at the start."""
        self._old_copy = self._disk.fork(), self.key
        self._replica: Replica | None = None
        self._election: ElectionState | None = None
        self._flushes: dict[int, replica_events.StartFlush] = {}
        self._asked: dict[int, tuple[int, int]] = {}
        self._received: dict[int, tuple[int, int, VoteRequestPartitionData | None]] = {}
        self._sent: tuple[Message | None, int, bytes | Message] = (None, 0, b"")
        """The last message that was sent, its version, and what was sent of it."""
        self.stale = StaleRequests()
        """The stale requests that the present controller must refuse."""
        self._work: Work | None = None

    def move(self, port: int) -> None:
        """Listen at another port from the next start on; the former one leads there, too."""
        self._options = replace(self._options, endpoints=endpoints_of(self.node_id, port))

    @property
    def endpoints(self) -> Endpoints:
        """The endpoints of the node."""
        return self._options.endpoints

    @property
    def replica(self) -> Replica:
        """The replica since the last start."""
        assert self._replica is not None, f"node {self.node_id} is not running"
        return self._replica

    @property
    def core(self) -> RaftCore:
        """The core since the last start."""
        return self.replica.core

    def start(self, rng: Random, now_ms: int) -> list[Output]:
        """Start the node with the content of its disk."""
        assert self._replica is None, self.node_id
        self._rng = rng
        options = self._options
        if self._broker is not None:
            previous_epoch = take_clean_shutdown(self._disk, (DIRECTORY,))
            options = replace(options, broker=replace(self._broker, previous_epoch=previous_epoch))
        self._replica, outputs = Replica.open(
            options=options, disk=self._disk, rng=rng, application=self._application, now_ms=now_ms
        )
        self._old_copy = self._disk.fork(), self.key
        self._read_election()
        return self._translate(outputs, now_ms)

    def crash(self, rng: Random) -> None:
        """Crash the node, with loss of any data not fsynced. A broker with a permitted shutdown stops cleanly."""
        agent = self.agent
        self._disk.on_operation = None
        if agent is not None and agent.may_stop and agent.lifecycle.epoch != UNCLEAN:
            write_clean_shutdown(self._disk, DIRECTORY, agent.lifecycle.epoch)
        self._replica = self._election = None
        self._flushes.clear()
        self._asked.clear()
        self._received.clear()
        self.stale = StaleRequests()
        # A process that dies alone leaves behind what it has written, on its way to the disk.
        if rng.random() < KILLED and not self._disk.has_failed:
            self._disk.kill()
        else:
            self._disk.crash(rng)

    def crash_soon(self, operations: int) -> None:
        """Crash before a later operation on the disk, counted from now."""
        self._count_down(operations, lambda operation, path: Crashed(f"before {operation} of {path}"))

    def fail_soon(self, operations: int) -> None:
        """Let a later operation on the disk fail, counted from now."""
        self._count_down(operations, lambda operation, path: OSError(errno.EIO, f"{operation} failed", path))

    def _count_down(self, operations: int, failure: Callable[[str, str], Exception]) -> None:
        left = operations

        def count(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise failure(operation, path)

        self._disk.on_operation = count

    def limit_disk(self, free_bytes: int | None) -> None:
        """Let the disk accept this number of further bytes."""
        self._disk.free_bytes = free_bytes

    def damage(self, what: Damage, rng: Random) -> str:
        """Let the disk lose something."""
        free_bytes = self._disk.free_bytes
        match what:
            case Damage.WIPED:
                self._disk = _formatted_disk(self.node_id, rng, is_dynamic=self._formatting is not None)
                self.key = _key_on(self._disk)
            case Damage.FOREIGN if rng.random() < 0.5:
                self._disk = _formatted_disk(self.node_id + 1, rng)
            case Damage.FOREIGN:
                self._disk = _formatted_disk(self.node_id, rng, OTHER_CLUSTER_ID)
            case Damage.OLD_COPY:
                old_disk, self.key = self._old_copy
                self._disk = old_disk.fork()
            case _:
                return damage_file(self._disk, what, rng)
        self._disk.free_bytes = free_bytes
        return DIRECTORY

    def must_refuse(self) -> str:
        """A damaged segment before the last one, which no torn write can explain."""
        return next(damaged_old_segments(self._disk), "")

    # Events

    def step(self, event: replica_events.Input, now_ms: int) -> list[Output]:
        """Hand an event to the replica."""
        replica = self._replica
        assert replica is not None, self.node_id
        if type(event) is replica_events.WireRequest and (controller := self.controller) is not None:
            self.stale.asked(event, controller)
        if self._work is None:
            outputs = replica.step(event, now_ms)
        else:
            with self._work.counted(replica):
                outputs = replica.step(event, now_ms)
        return self._translate(outputs, now_ms) if outputs else []

    def on_request(self, request_id: int, message: object, now_ms: int) -> list[Output]:
        """Receive a request of a peer."""
        assert isinstance(message, Frame), message
        key, version = message.api_key, message.version
        body = _open(message, APIS[key].request)
        self._received[request_id] = (key, version, _vote_asked(body))
        request = replica_events.WireRequest(
            request_id=request_id, api_key=key, version=version, message=body, listener=self._options.listener
        )
        return self.step(request, now_ms)

    def on_reply(self, request_id: int, message: object, now_ms: int) -> list[Output]:
        """A peer answers."""
        assert isinstance(message, Frame), message
        body = _open(message, APIS[message.api_key].response)
        return self.step(replica_events.WireReply(request_id, body), now_ms)

    def on_frame(self, request_id: int, api_key: int, version: int, body: bytes, now_ms: int) -> list[Output]:
        """Receive a request from outside of the quorum, in a frame for the codecs."""
        return self.on_request(request_id, Frame(api_key, version, body), now_ms)

    def on_forged_reply(self, request_id: int, api_key: int, version: int, body: bytes, now_ms: int) -> list[Output]:
        """A forged answer arrives, which the codecs read."""
        return self.on_reply(request_id, Frame(api_key, version, body), now_ms)

    def epoch_of_leader(self, message: object) -> int | None:
        """The epoch in an answer of a leader to a fetch."""
        assert isinstance(message, Frame), message
        answer = _open(message, APIS[message.api_key].response)
        match answer:
            case FetchResponse(error_code=Error.NONE, responses=[topic]):
                part = topic.partitions[0]
                return None if part.error_code else part.current_leader.leader_epoch
            case FetchSnapshotResponse(error_code=Error.NONE, topics=[pieces]):
                piece = pieces.partitions[0]
                is_good = piece.error_code in (Error.NONE, Error.SNAPSHOT_NOT_FOUND)
                return piece.current_leader.leader_epoch if is_good else None
            case _:
                return None

    def is_judging(self, request_id: int) -> bool:
        """Whether the answer to a request has come, and not all of its records are judged."""
        return self._replica is not None and self._replica.is_judging(request_id)

    def measure(self, *, is_on: bool) -> None:
        """Count the records that each step decides on or applies, or stop counting."""
        self._work = Work() if is_on else None

    def take_work(self) -> int:
        """The number of records decided on or applied since the last call."""
        return 0 if self._work is None else self._work.take()

    def wire_request(self, message: object) -> tuple[int, int, Message] | None:
        """The API key, the version and the wire form of a request that this node has sent."""
        assert isinstance(message, Frame), message
        return message.api_key, message.version, _open(message, APIS[message.api_key].request)

    def on_failed(self, request_id: int, cause: FailureCause, now_ms: int) -> list[Output]:
        """A request will not be answered."""
        return self.step(replica_events.WireFailed(request_id, cause), now_ms)

    def on_flushed(self, ticket: int, now_ms: int) -> list[Output]:
        """An fsync is done."""
        flush = self._flushes.pop(ticket)
        flush.run()
        return self.step(replica_events.FlushDone(ticket), now_ms)

    def submit(self, submit_id: int, value: bytes, now_ms: int) -> list[Output]:
        """Hand over a record for a raw log, or alter a configuration of a controller.

        Its request ids are negative, so that they are none of the network's.
        """
        if ApiKey.INCREMENTAL_ALTER_CONFIGS not in self.replica.application.apis:
            return self.step(replica_events.Submit(submit_id, (value,)), now_ms)
        key = ApiKey.INCREMENTAL_ALTER_CONFIGS
        request = replica_events.WireRequest(
            request_id=-submit_id,
            api_key=key,
            version=APIS[key].versions.highest,
            message=_alter_config(value.decode()),
            listener=self._options.listener,
        )
        return self.step(request, now_ms)

    def administer(self, request_id: int, message: Message, now_ms: int) -> list[Output]:
        """Receive a client's request to the controller; one `Administered` follows unless the node crashes."""
        key = type(message).__schema__.api_key
        assert key is not None, message
        request = replica_events.WireRequest(
            request_id=-ADMINISTERED - request_id,
            api_key=key,
            version=APIS[key].versions.highest,
            message=message,
            listener=self._options.listener,
        )
        return self.step(request, now_ms)

    # Outputs

    def _translate(self, outputs: list[replica_events.Output], now_ms: int) -> list[Output]:
        translated: list[Output] = []
        refused: list[int] = []
        for output in outputs:
            match output:
                case replica_events.SendWire():
                    try:
                        translated.append(self._ask(output))
                    except EncodeError:
                        refused.append(output.request_id)
                case replica_events.Answer():
                    translated.append(self._answered(output))
                case replica_events.StartFlush():
                    self._flushes[output.ticket] = output
                    if self._rng.random() < 0.5:
                        output.run()
                    translated.append(Flush(output.ticket))
                case replica_events.Trace(effect=effect):
                    if isinstance(effect, StateChanged):
                        self._read_election()
                        translated.append(Changed(f"{effect.source}->{effect.target} {effect.cause}"))
                    elif isinstance(effect, PeerFault):
                        translated.append(PeerFaultReported(effect.peer_id, effect.what))
                case replica_events.Committed(batch=batch):
                    translated.append(Applied(batch.base_offset, batch.next_offset, batch.values))
                case replica_events.SubmitDone():
                    translated.append(Done(output.submit_id, _outcome(output), output.base_offset))
                case replica_events.Drop(request_id=request_id) if request_id >= STRANGERS:
                    del self._received[request_id]
                case replica_events.Drop():
                    raise AssertionError(f"node {self.node_id} drops a connection: {output}")
        for request_id in refused:
            translated += self.on_failed(request_id, FailureCause.UNSUPPORTED_VERSION, now_ms)
        return translated

    def _answered(self, output: replica_events.Answer) -> Output:
        """An answer to a peer, to a client, or to the caller that submitted a record."""
        request_id, message = output.request_id, output.message
        self.stale.answered(request_id, message)
        if request_id >= 0:
            return self._answer(output)
        if request_id <= -ADMINISTERED:
            return Administered(-ADMINISTERED - request_id, message)
        assert isinstance(message, IncrementalAlterConfigsResponse), message
        is_committed = message.responses[0].error_code == Error.NONE
        return Done(-request_id, Outcome.COMMITTED if is_committed else Outcome.UNKNOWN)

    def _ask(self, output: replica_events.SendWire) -> SimulatedRequest:
        message = output.message
        key, highest, kind = _kind_of(type(message))
        version = self._versions.get(key, highest)
        body = self._body(message, version)
        offset = None
        if isinstance(message, FetchRequest) and message.topics[0].topic_id == Uuid.METADATA_TOPIC:
            offset = message.topics[0].partitions[0].fetch_offset
        target = _node_at(output.host)
        is_indirect = output.host.startswith(_INDIRECT)
        frame = Frame(key, version, body)
        return SimulatedRequest(output.request_id, target, frame, output.timeout_ms, offset, kind, is_indirect)

    def _answer(self, output: replica_events.Answer) -> Answer:
        key, version, vote = self._received.pop(output.request_id)
        message = output.message
        frame = Frame(key, version, self._body(message, version))
        if vote is None or not _grants(message):
            return Answer(output.request_id, frame)
        if vote.pre_vote:
            return Answer(output.request_id, frame, pre_granted=vote.replica_epoch)
        return Answer(output.request_id, frame, granted=(vote.replica_epoch, vote.replica_id))

    def _body(self, message: Message, version: int) -> bytes | Message:
        """What of a message is under way; a leader sends the same to several followers."""
        sent, sent_version, body = self._sent
        if message is not sent or version != sent_version:
            check_leader_can_be_found(self.node_id, message, version)
            body = encode(message, version) if self._uses_codecs else message
            self._sent = message, version, body
        return body

    def _read_election(self) -> None:
        """Read quorum-state; if the file was lost after a write, the written content counts."""
        try:
            content = self._disk.read(QUORUM_STATE)
        except OSError:
            return
        self._election = _election_in(content)

    # Questions

    @property
    def agent(self) -> BrokerAgent | None:
        """The broker agent, if the node is a running broker."""
        application = None if self._replica is None else self._replica.application
        return application.agent if isinstance(application, BrokerHost) else None

    @property
    def controller(self) -> QuorumController | None:
        """The controller, if the node hosts one and is running."""
        application = None if self._replica is None else self._replica.application
        return application.controller if isinstance(application, ControllerHost) else None

    def deadline_ms(self) -> int:
        """When `tick` is wanted."""
        assert self._replica is not None, self.node_id
        return self._replica.deadline_ms()

    def read(self, offset: int) -> list[LogBatch]:
        """The batches from `offset` to the end of the log."""
        log = self.replica.log
        batches: list[LogBatch] = []
        while offset < log.end_offset:
            batches += _batches_in(log.read(offset, _ALL))
            offset = batches[-1].next_offset
        return batches

    def values(self, batch: LogBatch) -> tuple[bytes, ...]:
        """The submitted values in a batch."""
        whole = _parsed(batch.content)
        return () if whole.is_control else tuple(record.value or b"" for record in records(whole))

    def changes(self, batch: LogBatch) -> tuple[QuorumChange, ...]:
        """What a batch changes in the quorum."""
        whole = _parsed(batch.content)
        return tuple(changes_in(whole)) if whole.is_control else ()

    def snapshots(self) -> tuple[OffsetAndEpoch, ...]:
        """The snapshots on its disk."""
        return list_snapshots(self._disk, PARTITION)

    def content(self, snapshot: OffsetAndEpoch) -> SnapshotContent:
        """What a snapshot on its disk says."""
        path = f"{PARTITION}/{snapshot_name(snapshot)}"
        start = read_snapshot_start(self._disk, path)
        values = (
            record.value or b""
            for batch in read_snapshot(self._disk, path)
            if not batch.is_control
            for record in records(batch)
        )
        return SnapshotContent(
            start.header.last_contained_log_timestamp,
            start.kraft_version,
            () if start.voters is None else VoterSet.of_record(start.voters).keys,
            tuple(values),
            isinstance(self.replica.application, RegisterLog),
        )


def endpoints_of(node_id: int, port: int = PORT) -> Endpoints:
    """Where a controller listens: at a host of its own."""
    return Endpoints((ListenerAddress(DEFAULT_LISTENER, f"n{node_id}", port),))


@lru_cache(REMEMBERED)
def _node_at(host: str) -> int:
    """The node that a host name leads to, or `NOWHERE`."""
    return int(host[1:]) if _HOST.fullmatch(host) else NOWHERE


def bootstrap_of(node_id: int) -> ListenerAddress:
    """An address of a controller that the controller does not advertise, such as that of a load balancer."""
    return ListenerAddress(DEFAULT_LISTENER, f"{_INDIRECT}{node_id}", PORT)


def _endpoints_of_broker(node_id: int) -> Endpoints:
    return Endpoints((ListenerAddress("PLAINTEXT", f"b{node_id}", 9092),))


@cache
def _kind_of(message: type[Message]) -> tuple[int, int, str]:
    """The API key of a kind of requests, its highest version, and its name in traces."""
    key = message.__schema__.api_key
    assert key is not None, message
    return key, APIS[key].versions.highest, message.__name__.removesuffix("Request")


@lru_cache(REMEMBERED)
def _election_in(content: bytes) -> ElectionState:
    """What a quorum-state file says; the same few are read again and again."""
    return election_of(parse_quorum_state(content))


@lru_cache(REMEMBERED)
def _batches_in(data: bytes) -> tuple[LogBatch, ...]:
    """What a piece of a log holds; several nodes append the same."""
    return tuple(LogBatch(batch.base_offset, batch.next_offset, batch.epoch, bytes(batch.data)) for batch in scan(data))


@lru_cache(REMEMBERED)
def _parsed(content: bytes) -> RecordBatch:
    """The one batch that bytes are."""
    (whole,) = scan(content)
    return whole


def _open(frame: Frame, kind: type[Message]) -> Message:
    return decode(kind, frame.version, frame.body) if isinstance(frame.body, bytes) else frame.body


def _outcome(done: replica_events.SubmitDone) -> Outcome:
    if done.error == Error.NONE:
        return Outcome.COMMITTED
    return Outcome.UNKNOWN if done.is_uncertain else Outcome.REFUSED


def _alter_config(name: str) -> IncrementalAlterConfigsRequest:
    """The one admin write that needs no broker: a subscription to client metrics."""
    config = AlterableConfig(name="interval.ms", config_operation=_SET, value="1000")
    resource = AlterConfigsResource(resource_type=_CLIENT_METRICS, resource_name=name, configs=[config])
    return IncrementalAlterConfigsRequest(resources=[resource])


def _vote_asked(message: Message) -> VoteRequestPartitionData | None:
    """The description of a Vote request; None for any other message."""
    if type(message) is not VoteRequest or not message.topics or not message.topics[0].partitions:
        return None
    return message.topics[0].partitions[0]


def _grants(message: Message) -> bool:
    if not isinstance(message, VoteResponse) or not message.topics:
        return False
    return message.topics[0].partitions[0].vote_granted


def _formatted_disk(
    node_id: int,
    rng: Random,
    cluster_id: str = CLUSTER_ID,
    *,
    is_dynamic: bool = False,
    first_voters: VoterSet | None = None,
) -> MemoryDisk:
    disk = MemoryDisk()
    format_directory(
        disk,
        DIRECTORY,
        node_id=node_id,
        cluster_id=cluster_id,
        rng=rng,
        now_ms=FORMATTED_MS,
        dynamic=is_dynamic,
        initial_voters=None if first_voters is None else first_voters.to_record(),
    )
    return disk


def _key_on(disk: MemoryDisk) -> ReplicaKey:
    """The replica key of the directory on a disk."""
    formatted = read_meta_properties(disk, DIRECTORY)
    assert formatted is not None
    assert formatted.directory_id is not None
    return ReplicaKey(formatted.node_id, formatted.directory_id)
