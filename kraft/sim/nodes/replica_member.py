"""A simulated node that is a production `Process` over a disk in memory. The node hosts a raw log, a controller, a
broker agent or a state machine (Kafka: the `RaftNode` of `RaftEventSimulationTest`, here with real files and frames).
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from random import Random
from typing import Final

from msgspec.structs import replace

from kraft import calls, wire
from kraft.broker import BrokerAgent, BrokerOptions
from kraft.broker.registered import RegisteredBroker
from kraft.committed import Committed
from kraft.controller import QuorumController
from kraft.controller.decision.request_context import DecisionSettings
from kraft.controller.server import ControllerServer
from kraft.invariants.observation import Applied, LogBatch, SnapshotContent
from kraft.invariants.wire import check_leader_can_be_found
from kraft.limits import UNITS_PER_TURN
from kraft.process.hosting import controller_of, registered_broker_of
from kraft.process.opening import open_process
from kraft.process.options import ProcessOptions
from kraft.process.parts import ApplicationFactory
from kraft.process.parts import Input as ProcessInput
from kraft.process.process import Process
from kraft.quorum.core import RaftCore
from kraft.quorum.events import FailureCause
from kraft.quorum.values import ElectionState, Endpoints, QuorumConfig, ReplicaKey
from kraft.quorum.voters import QuorumChange, VoterSet
from kraft.replica.interface import events as replica_events
from kraft.replica.interface.options import ReplicaOptions, SnapshotOptions
from kraft.sim.nodes.addresses import endpoints_of, endpoints_of_broker, is_indirect, node_at
from kraft.sim.nodes.broker_contacts import BrokerContacts
from kraft.sim.nodes.effects import PlannedFailure, granting_answer, outcome_of, report_of
from kraft.sim.nodes.frames import (
    Frame,
    alter_config,
    corrupted_frame,
    epoch_of_leader,
    is_granted,
    kind_of,
    requested_vote,
)
from kraft.sim.nodes.log_batches import batches_from, quorum_changes_in, values_in
from kraft.sim.nodes.node_disk import DIRECTORY, Formatting, NodeDisk
from kraft.sim.nodes.registers import ReadableLog, RegisterLog
from kraft.sim.nodes.stale_requests import StaleRequests
from kraft.sim.nodes.work import Work
from kraft.sim.state.forking import forked
from kraft.sim.world.disk_damage import Damage
from kraft.sim.world.member_interface import (
    CLUSTER_ID,
    STRANGERS,
    Administered,
    Answer,
    Changed,
    Corrupted,
    Crashed,
    Done,
    Flush,
    Output,
    ReadAnswered,
    SimulatedRequest,
    SteppedMember,
    WriteOutcome,
)
from kraft.state_machine.server import ReadCall
from metadata_log.errors import EncodeError, MetadataLogError
from metadata_log.log.clean_shutdown import UNCLEAN, take_clean_shutdown, write_clean_shutdown
from metadata_log.log.log import FlushHandle
from metadata_log.memory_disk import MemoryFile
from metadata_log.records.frame import decode_record
from metadata_log.records.metadata import ConfigRecord
from metadata_log.serde import Message, encode
from metadata_log.types import OffsetAndEpoch, Uuid
from transport.protocol.apis import APIS, ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import FetchRequest, FetchTopic
from transport.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from transport.protocol.messages.vote import VoteRequestPartitionData

ADMINISTERED: Final = 1 << 40
"""Requests of `administer` have ids below minus this."""


class ReplicaMember(SteppedMember):
    """One replica and its disk. `versions` are the request versions by API key; by default the highest ones."""

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
        """`voters` is the voter set of the configuration. A dynamic quorum has no such voters, but a `formatting`."""
        self.node_id = node_id
        replica = ReplicaOptions(
            directory=DIRECTORY,
            node_id=node_id,
            voters=voters,
            endpoints=endpoints_of_broker(node_id) if broker else endpoints_of(node_id),
            bootstrap=() if formatting is None else formatting.bootstrap,
            snapshots=snapshots,
            cluster_id=CLUSTER_ID,
            quorum=config,
            segment_bytes=segment_bytes,
            judged_per_turn=judged_per_turn,
            may_vote=broker is None,
        )
        self._options = ProcessOptions(replica=replica, decisions=decisions)
        self._broker = broker
        """The configuration of a broker's agent, without the content of its disk."""
        self._log_dirs: tuple[str, ...] = (DIRECTORY,)
        self._application = application
        self._versions = versions
        self._uses_codecs = uses_codecs
        self._rng = rng = Random(node_id)
        self.disk = NodeDisk(node_id, rng, formatting)
        self._process: Process | None = None
        self.broker: RegisteredBroker | None = None
        """The host of the agent, if the node is a running broker."""
        self._controller_host: ControllerServer | None = None
        self._election: ElectionState | None = None
        self._flushes: dict[int, FlushHandle] = {}
        """The fsyncs that are running, by ticket."""
        self._received: dict[int, tuple[int, int, VoteRequestPartitionData | None]] = {}
        self._sent: tuple[Message | None, int, bytes | Message] = (None, 0, b"")
        """The last sent message, its version, and its body."""
        self.stale = StaleRequests()
        """The stale requests that the present controller must refuse."""
        self.contacts = BrokerContacts()
        """The heartbeats that the present controller has received."""
        self._work: Work | None = None

    @property
    def key(self) -> ReplicaKey:
        """The node id and the directory id of the node's own directory."""
        return self.disk.key

    def move(self, port: int) -> None:
        """Listen at another port from the next start on; requests to the former port still reach the node."""
        self._options = replace(
            self._options, replica=replace(self._options.replica, endpoints=endpoints_of(self.node_id, port))
        )

    @property
    def endpoints(self) -> Endpoints:
        """The endpoints of the node."""
        return self._options.replica.endpoints

    @property
    def process(self) -> Process:
        """The replica since the last start."""
        assert self._process is not None, f"node {self.node_id} is not running"
        return self._process

    @property
    def core(self) -> RaftCore:
        """The core since the last start."""
        return self.process.replica.core

    def start(self, rng: Random, now_ms: int) -> list[Output]:
        """Start the node with the content of its disk."""
        assert self._process is None, self.node_id
        self._rng = rng
        options = self._options
        if self.make_core is not RaftCore:  # a plain core is the replica's own choice
            options = replace(options, replica=replace(options.replica, make_core=self.make_core))
        if self._broker is not None:
            previous_epoch = take_clean_shutdown(self.disk.files, self._log_dirs)
            options = replace(options, broker=replace(self._broker, previous_epoch=previous_epoch))
        self._process, outputs = open_process(
            options=options, disk=self.disk.files, rng=rng, application=self._application, now_ms=now_ms
        )
        self.broker = registered_broker_of(self._process.application)
        self._controller_host = controller_of(self._process.application)
        self.disk.started()
        self._read_election()
        return self._translate(outputs, now_ms)

    def crash(self, rng: Random) -> None:
        """Crash the node, with loss of any data not fsynced. A broker with a permitted shutdown stops cleanly."""
        agent = self.agent
        self.disk.end_failure()
        if agent is not None and agent.may_stop and agent.lifecycle.epoch != UNCLEAN:
            self._leave_cleanly(agent)
        self._process = self._election = self.broker = self._controller_host = None
        self._flushes.clear()
        self._received.clear()
        self.stale, self.contacts = StaleRequests(), BrokerContacts()
        self.disk.crash(rng)

    def _leave_cleanly(self, agent: BrokerAgent) -> None:
        write_clean_shutdown(self.disk.files, DIRECTORY, agent.lifecycle.epoch)

    def crash_soon(self, operations: int) -> None:
        """Crash before a later operation on the disk, counted from now."""
        self.disk.plan_failure(
            PlannedFailure(operations, lambda operation, path: Crashed(f"before {operation} of {path}"))
        )

    def fail_soon(self, operations: int) -> None:
        """Let a later operation on the disk fail, counted from now."""
        self.disk.plan_failure(
            PlannedFailure(operations, lambda operation, path: OSError(errno.EIO, f"{operation} failed", path))
        )

    def limit_disk(self, free_bytes: int | None) -> None:
        """Let the disk accept this number of further bytes."""
        self.disk.limit(free_bytes)

    def fill_directory(self, path: str) -> None:
        """Let the disk of a log directory be full."""
        self.disk.files.full_below = path

    def damage(self, what: Damage, rng: Random) -> str:
        """Damage the disk."""
        return self.disk.damage(what, rng)

    def must_refuse(self) -> str:
        """The damage with which no start may succeed."""
        return self.disk.must_refuse()

    def would_vote_alone(self) -> bool:
        """Whether a start with the present disk makes this node the only voter: a copy of the node tries it."""
        copy = forked(self)
        copy.make_core = RaftCore
        try:
            copy.start(Random(0), 0)
        except (OSError, MetadataLogError):
            return False
        return copy.voters() == (self.key,)

    def damaged_files(self) -> tuple[str, ...]:
        """The files on the disk with damage that is still there."""
        return self.disk.damaged_files()

    # Events

    def step(self, event: ProcessInput, now_ms: int) -> list[Output]:
        """Hand an event to the replica."""
        process = self._process
        assert process is not None, self.node_id
        if type(event) is wire.WireRequest:
            self._asked(event, now_ms)
        if self._work is None:
            outputs = process.step(event, now_ms)
        else:
            with self._work.counted(process):
                outputs = process.step(event, now_ms)
        return self._translate(outputs, now_ms) if outputs else []

    def _asked(self, request: wire.WireRequest, now_ms: int) -> None:
        """A request is about to reach the replica."""
        controller = self.controller
        if controller is not None:
            self.stale.asked(request, controller)
            self.contacts.asked(request, controller, now_ms)

    def on_request(self, request_id: int, message: object, now_ms: int) -> list[Output]:
        """Receive a request of a peer."""
        assert isinstance(message, Frame), message
        key, version = message.api_key, message.version
        body = message.request()
        self._received[request_id] = (key, version, requested_vote(body))
        request = wire.WireRequest(
            request_id=request_id, api_key=key, version=version, message=body, listener=self._listener_of(key, body)
        )
        return self.step(request, now_ms)

    def _listener_of(self, api_key: int, message: Message) -> str:
        return self._options.replica.listener

    def on_reply(self, request_id: int, message: object, now_ms: int) -> list[Output]:
        """A peer answers."""
        assert isinstance(message, Frame), message
        return self.step(wire.WireReply(request_id, message.response()), now_ms)

    def on_frame(self, request_id: int, api_key: int, version: int, body: bytes, now_ms: int) -> list[Output]:
        """Receive a request from outside of the quorum, in a frame for the codecs."""
        return self.on_request(request_id, Frame(api_key, version, body), now_ms)

    def on_forged_reply(self, request_id: int, api_key: int, version: int, body: bytes, now_ms: int) -> list[Output]:
        """Receive a forged response in wire format."""
        return self.on_reply(request_id, Frame(api_key, version, body), now_ms)

    def corrupted(self, message: object, rng: Random) -> Corrupted | None:
        """A response to this node as it arrives after a corruption in transit; None if it has no records."""
        assert isinstance(message, Frame), message
        return corrupted_frame(message, rng)

    def epoch_of_leader(self, message: object) -> int | None:
        """The epoch in an answer of a leader to a fetch."""
        assert isinstance(message, Frame), message
        return epoch_of_leader(message.response())

    def is_judging(self, request_id: int) -> bool:
        """Whether the node has received the answer to a request and has not judged all of its records yet."""
        return self._process is not None and self._process.replica.is_judging(request_id)

    def measure(self, *, is_on: bool) -> None:
        """Count the records that each step decides on or applies, or stop counting."""
        self._work = Work() if is_on else None

    def take_work(self) -> int:
        """The number of records decided on or applied since the last call."""
        return 0 if self._work is None else self._work.take()

    def wire_request(self, message: object) -> tuple[int, int, Message] | None:
        """The API key, the version and the wire form of a request that this node has sent."""
        assert isinstance(message, Frame), message
        return message.api_key, message.version, message.request()

    def on_failed(self, request_id: int, cause: FailureCause, now_ms: int) -> list[Output]:
        """A request will not be answered."""
        return self.step(wire.WireFailed(request_id, cause), now_ms)

    def on_flushed(self, ticket: int, now_ms: int) -> list[Output]:
        """An fsync is done."""
        self._flushes.pop(ticket).run()
        return self.step(replica_events.FlushDone(ticket), now_ms)

    def _begin_flush(self, flush: replica_events.StartFlush) -> None:
        """Begin an fsync. The bytes that the node writes from now on are not covered; the others may be on the disk
        long before the fsync is done.
        """
        handle = flush.handle
        assert isinstance(handle, FlushHandle), handle
        file = handle.file
        assert isinstance(file, MemoryFile), file
        begun = file.begin_fsync()
        if self._rng.random() < 0.5:
            begun.write_back()
        self._flushes[flush.ticket] = replace(handle, file=begun)

    def submit(self, submit_id: int, value: bytes, now_ms: int) -> list[Output]:
        """Submit a record to a raw log, or alter a configuration of a controller.

        The request ids of submissions are negative, as those of the network are not.
        """
        if ApiKey.INCREMENTAL_ALTER_CONFIGS not in self.process.served.apis:
            return self.step(replica_events.Submit(submit_id, [value]), now_ms)
        key = ApiKey.INCREMENTAL_ALTER_CONFIGS
        request = wire.WireRequest(
            request_id=-submit_id,
            api_key=key,
            version=APIS[key].versions.highest,
            message=alter_config(value.decode()),
            listener=self._options.replica.listener,
        )
        return self.step(request, now_ms)

    def is_record_of(self, record: bytes, submission: bytes) -> bool:
        """Whether a committed record is that of a submission: to a controller, the record of an altered configuration
        of that name.
        """
        if ApiKey.INCREMENTAL_ALTER_CONFIGS not in self.process.served.apis:
            return super().is_record_of(record, submission)
        message = decode_record(record).record
        return isinstance(message, ConfigRecord) and message.resource_name == submission.decode()

    def read_index(self, read_id: int, now_ms: int) -> list[Output]:
        """Read the log of a leader; a controller or a broker has no such reads."""
        if not isinstance(self.process.application, ReadableLog):
            return []
        return self.step(calls.Call(read_id, ReadCall()), now_ms)

    def administer(self, request_id: int, message: Message, version: int, now_ms: int) -> list[Output]:
        """Receive a client's request to the controller; one `Administered` follows unless the node crashes."""
        key = type(message).__schema__.api_key
        assert key is not None, message
        request = wire.WireRequest(
            request_id=-ADMINISTERED - request_id,
            api_key=key,
            version=version,
            message=message,
            listener=self._listener_of(key, message),
            peer=self._peer_of(message),
        )
        return self.step(request, now_ms)

    def _peer_of(self, message: Message) -> str:
        """The address of the client that sends a request; empty if nothing depends on it."""
        return ""

    # Outputs

    def _translate(self, outputs: list[replica_events.Output], now_ms: int) -> list[Output]:
        translated: list[Output] = []
        refused: list[int] = []
        for output in outputs:
            match output:
                case wire.WireSend():
                    try:
                        translated.append(self._ask(output))
                    except EncodeError:
                        refused.append(output.request_id)
                case wire.Answer():
                    translated.append(self._answered(output))
                case replica_events.StartFlush():
                    self._begin_flush(output)
                    translated.append(Flush(output.ticket))
                case replica_events.Trace(effect=effect):
                    report = report_of(effect)
                    if report is not None:
                        translated.append(report)
                    if isinstance(report, Changed):
                        self._read_election()
                case Committed(batch=batch):
                    translated.append(Applied(batch.base_offset, batch.next_offset, batch.values))
                case replica_events.SubmitDone():
                    translated.append(Done(output.submit_id, outcome_of(output), output.base_offset))
                case calls.Returned():
                    application = self.process.application
                    if isinstance(application, ReadableLog):
                        translated.append(ReadAnswered(output.call_id, application.applied_offset))
                case wire.Drop(request_id=request_id) if request_id >= STRANGERS:
                    del self._received[request_id]
                case wire.Drop():
                    raise AssertionError(f"node {self.node_id} drops a connection: {output}")
        for request_id in refused:
            translated += self.on_failed(request_id, FailureCause.UNSUPPORTED_VERSION, now_ms)
        return translated

    def _answered(self, output: wire.Answer) -> Output:
        """An answer to a peer, to a client, or to the caller that submitted a record."""
        request_id, message = output.request_id, output.message
        self.stale.answered(request_id, message)
        self.contacts.answered(request_id)
        if request_id >= 0:
            return self._answer(output)
        if request_id <= -ADMINISTERED:
            return Administered(-ADMINISTERED - request_id, message)
        assert isinstance(message, IncrementalAlterConfigsResponse), message
        is_committed = message.responses[0].error_code == Error.NONE
        return Done(-request_id, WriteOutcome.COMMITTED if is_committed else WriteOutcome.UNKNOWN)

    def _ask(self, output: wire.WireSend) -> SimulatedRequest:
        message = output.message
        key, highest, kind = kind_of(type(message))
        version = self._versions.get(key, highest)
        body = self._body(message, version)
        offset = None
        match message:
            case FetchRequest(topics=[FetchTopic(topic_id=Uuid.METADATA_TOPIC, partitions=[asked, *_]), *_]):
                offset = asked.fetch_offset
        host, frame = output.target.host, Frame(key, version, body)
        is_of_quorum = output.part is wire.Part.QUORUM
        return SimulatedRequest(
            output.request_id, node_at(host), frame, output.timeout_ms, offset, kind, is_indirect(host), is_of_quorum
        )

    def _answer(self, output: wire.Answer) -> Answer:
        key, version, vote = self._received.pop(output.request_id)
        message = output.message
        frame = Frame(key, version, self._body(message, version))
        if vote is None or not is_granted(message):
            return Answer(output.request_id, frame)
        return granting_answer(output.request_id, frame, vote.replica_epoch, vote.replica_id, is_pre_vote=vote.pre_vote)

    def _body(self, message: Message, version: int) -> bytes | Message:
        """The body of a message in transit, encoded once for several followers of a leader."""
        sent, sent_version, body = self._sent
        if message is not sent or version != sent_version:
            check_leader_can_be_found(self.node_id, message, version)
            body = encode(message, version) if self._uses_codecs else message
            self._sent = message, version, body
        return body

    def _read_election(self) -> None:
        """Read quorum-state; if the file was lost after a write, the written content counts."""
        election = self.disk.election()
        if election is not None:
            self._election = election

    # Questions

    def stored_election(self) -> ElectionState | None:
        """The content of quorum-state on disk, also while the node is down."""
        return self._election if self._process is not None else self.disk.election()

    @property
    def agent(self) -> BrokerAgent | None:
        """The broker agent, if the node is a running broker."""
        broker = self.broker
        return None if broker is None else broker.agent

    @property
    def controller(self) -> QuorumController | None:
        """The controller, if the node hosts one and is running."""
        host = self._controller_host
        return None if host is None else host.controller

    def deadline_ms(self) -> int:
        """The time of the next `tick`, by the clock of the node."""
        assert self._process is not None, self.node_id
        return self._process.deadline_ms()

    def read(self, offset: int) -> list[LogBatch]:
        """The batches from `offset` to the end of the log."""
        return batches_from(self.process.replica.log, offset)

    def values(self, batch: LogBatch) -> tuple[bytes, ...]:
        """The submitted values in a batch."""
        return values_in(batch)

    def changes(self, batch: LogBatch) -> tuple[QuorumChange, ...]:
        """The changes of the quorum in a batch."""
        return quorum_changes_in(batch)

    def snapshots(self) -> tuple[OffsetAndEpoch, ...]:
        """The snapshots on the disk."""
        return self.disk.snapshots()

    def content(self, snapshot: OffsetAndEpoch) -> SnapshotContent:
        """The content of a snapshot on the disk."""
        return self.disk.content(snapshot, is_of_registers=isinstance(self.process.application, RegisterLog))
