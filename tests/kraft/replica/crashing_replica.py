"""One replica that votes, appends, and loses power."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from kraft.committed import Noted
from kraft.process.hosting import host_raw_log
from kraft.process.opening import open_process
from kraft.process.parts import ApplicationFactory, Input
from kraft.quorum.effects import PeerFault
from kraft.quorum.events import Tick
from kraft.replica.interface.events import (
    FlushDone,
    Output,
    SnapshotMade,
    StartFlush,
    SubmitDone,
    Trace,
)
from kraft.wire import Answer, WireReply, WireRequest, WireSend
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch_builder import build_control_batch
from metadata_log.records.control import LeaderChangeMessage
from metadata_log.records.frame import encode_control
from metadata_log.serde import Message
from metadata_log.types import METADATA_TOPIC, Uuid
from support.kraft.replica_net import START_MS, options, voter_set
from support.power import failing_after
from transport.protocol.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    VoteRequest,
    VoteResponse,
)
from transport.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequestPartitionData,
    BeginQuorumEpochRequestTopicData,
)
from transport.protocol.messages.fetch import FetchableTopicResponse, LeaderIdAndEpoch, PartitionData
from transport.protocol.messages.vote import (
    VoteRequestPartitionData,
    VoteRequestTopicData,
)


class Node:
    """Node 1 of three, driven by hand. Its flushes are run when `flush` says so."""

    def __init__(
        self, disk: MemoryDisk, voters: int = 3, application: ApplicationFactory = host_raw_log, **changes: Any
    ) -> None:
        self.disk = disk
        self.now_ms = START_MS
        self.sent: list[WireSend] = []
        self.answers: dict[int, Message] = {}
        self.done: dict[int, SubmitDone] = {}
        self.made: list[SnapshotMade] = []
        self.flushes: list[StartFlush] = []
        self.reports: list[str] = []
        """What it says of its peers."""
        self.replica, outputs = open_process(
            options=options(1, voter_set(voters), **changes),
            disk=disk,
            rng=Random(7),
            application=application,
            now_ms=self.now_ms,
        )
        self._note(outputs)

    def _note(self, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case WireSend():
                    self.sent.append(output)
                case StartFlush():
                    self.flushes.append(output)
                case SubmitDone():
                    self.done[output.submit_id] = output
                case Noted(SnapshotMade() as made):
                    self.made.append(made)
                case Trace(effect=PeerFault(what=what)):
                    self.reports.append(what)
                case Answer():
                    self.answers[output.request_id] = output.message

    def step(self, event: Input) -> None:
        self._note(self.replica.step(event, self.now_ms))

    def work(self) -> None:
        """Tick and flush until nothing is left to do now."""
        while self.flushes or self.replica.deadline_ms() <= self.now_ms:
            if self.flushes:
                flush = self.flushes.pop(0)
                flush.run()
                self.step(FlushDone(flush.ticket))
            else:
                self.step(Tick())

    def receive(self, request_id: int, message: Message) -> None:
        schema = type(message).__schema__
        self.step(
            WireRequest(
                request_id=request_id,
                api_key=schema.api_key or 0,
                version=schema.versions.highest,
                message=message,
                listener="CONTROLLER",
            )
        )

    @property
    def last_fetch(self) -> tuple[int, int]:
        """The request id and the offset of the last Fetch that went out."""
        sent = next(one for one in reversed(self.sent) if isinstance(one.message, FetchRequest))
        assert isinstance(sent.message, FetchRequest)
        return sent.request_id, sent.message.topics[0].partitions[0].fetch_offset

    def follow(self, leader: int, epoch: int) -> None:
        part = BeginQuorumEpochRequestPartitionData(leader_id=leader, leader_epoch=epoch)
        topic = BeginQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])
        self.receive(1000 + epoch, BeginQuorumEpochRequest(topics=[topic]))
        self.work()

    def fetched(self, leader: int, epoch: int, **part: Any) -> None:
        """The leader answers the last Fetch."""
        data = PartitionData(
            current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
            aborted_transactions=None,
            **{"records": b"", "high_watermark": -1, **part},
        )
        topic = FetchableTopicResponse(topic_id=Uuid.METADATA_TOPIC, partitions=[data])
        self.step(WireReply(self.last_fetch[0], FetchResponse(responses=[topic])))
        self.work()


def vote(candidate: int, epoch: int) -> VoteRequest:
    part = VoteRequestPartitionData(replica_epoch=epoch, replica_id=candidate, last_offset_epoch=0, last_offset=100)
    return VoteRequest(voter_id=1, topics=[VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])])


def granted(answer: Message | None) -> bool:
    return isinstance(answer, VoteResponse) and answer.topics[0].partitions[0].vote_granted


def leader_change(offset: int, epoch: int, leader: int) -> bytes:
    kind, _, value = encode_control(LeaderChangeMessage(leader_id=leader))
    return build_control_batch(offset, epoch, START_MS, [(kind, value)])


def crash_everywhere(
    prepare: Callable[[], Node], act: Callable[[Node], None], check: Callable[[Node, MemoryDisk], None]
) -> int:
    """Run `act` with the power failing before its 1st, 2nd, … disk operation, and once after all of them.

    Each time the disk keeps nothing but what was fsynced, then also some of the rest, torn. Returns how many operations
    there were.
    """
    operations = 0
    while True:
        seeds = [None, *range(6)]
        for seed in seeds:
            node = prepare()
            with failing_after(node.disk, operations) as power:
                act(node)
            finished = not power.failed
            print("operation", operations, "seed", seed)
            node.disk.crash(None if seed is None else Random(seed))
            check(node, node.disk)
        if finished:
            return operations
        operations += 1
