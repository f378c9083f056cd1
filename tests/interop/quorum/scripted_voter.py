"""A voter of a metadata quorum that follows a test's script, over Kafka's wire: the voter leads with the given log,
refuses or grants its vote, and fetches on command. The voter keeps nothing on disk and checks nothing.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from kraft.quorum.log_view import LogView, Position
from kraft.quorum.messages import EndQuorumEpoch, Fetch, FetchReply, Vote, VoteReply
from kraft.quorum.values import Endpoints, ListenerAddress, ReplicaKey
from kraft.quorum.voter_history import STATIC
from kraft.replica.rpc.api_versions import QUORUM_APIS, describe_versions
from kraft.replica.rpc.rpc import Rpc
from kraft.wire import WireRequest
from metadata_log.log.epochs import EpochHistory
from metadata_log.records.batch import RecordBatch, scan
from metadata_log.serde import Message
from metadata_log.types import NO_NODE, OffsetAndEpoch
from support.eventually import eventually
from support.wire import ask
from transport.protocol.errors import Error
from transport.protocol.inbound import Request
from transport.protocol.messages.api_versions import ApiVersionsRequest
from transport.protocol.messages.end_quorum_epoch import EndQuorumEpochResponse
from transport.protocol.messages.fetch import FetchResponse
from transport.protocol.messages.vote import VoteResponse
from transport.protocol.server_connection import ServerConnection

HOST: Final = "127.0.0.1"
LISTENER: Final = "CONTROLLER"
FETCH_VERSION: Final = 17
VOTE_VERSION: Final = 2
END_VERSION: Final = 1


class ScriptedVoter:
    """One voter at a port of its own. What is set here counts from the next request on."""

    def __init__(self, key: ReplicaKey, port: int, cluster_id: str) -> None:
        self.key = key
        self.endpoints = listening_at(port)
        self.fetched: tuple[int, int] | None = None
        """The epoch and the offset of the last Fetch that this voter received."""
        self.fetched_at_s = 0.0
        """When that Fetch arrived, on the monotonic clock."""
        self.votes: list[Vote] = []
        """The Vote requests that this voter received, pre-votes included."""
        self._epoch = 0
        self._leads = False
        self._high_watermark = 0
        self._leader = NO_NODE, Endpoints()
        """The leader that this voter names: id and endpoints."""
        self._batches: tuple[RecordBatch, ...] = ()
        self._log = _view(())
        self._grants = False
        self._changed = threading.Condition()
        self._rpc = Rpc(cluster_id=cluster_id, listener=LISTENER)

    # Commands of the test

    def lead(self, epoch: int, log: Sequence[bytes], high_watermark: int = 0) -> None:
        """Lead this epoch with these batches, committed up to the high watermark, and answer requests as the leader."""
        with self._changed:
            self._high_watermark = high_watermark
            self._epoch, self._leads, self._batches = epoch, True, tuple(scan(b"".join(log)))
            self._leader = self.key.id, self.endpoints
            self._log = _view(self._batches)
            self._changed.notify_all()

    def name(self, epoch: int, leader_id: int, endpoints: Endpoints) -> None:
        """Follow, and name this leader in answers."""
        with self._changed:
            self._epoch, self._leads, self._leader = epoch, False, (leader_id, endpoints)

    def give_up(self) -> float:
        """Lead no more, without an EndQuorumEpoch; returns the time, on the monotonic clock, in seconds."""
        with self._changed:
            self._leads, self._leader = False, (NO_NODE, Endpoints())
            self._changed.notify_all()
            return time.monotonic()

    def resign_to(self, successor: ReplicaKey, port: int) -> None:
        """Lead no more, and grant every vote; EndQuorumEpoch names the successor, which campaigns."""
        with self._changed:
            self._leads, self._grants, self._leader = False, True, (NO_NODE, Endpoints())
            self._changed.notify_all()
        end = EndQuorumEpoch(
            epoch=self._epoch, leader_id=self.key.id, successors=(successor,), endpoints=self.endpoints
        )
        message = self._rpc.request_to_wire(end)
        # Kafka's node fetches before it accepts connections.
        eventually(lambda: _accepts(port), "the successor accepts connections")
        assert ask(port, message, END_VERSION, EndQuorumEpochResponse).error_code == Error.NONE

    def ask_for_pre_vote(self, voter: ReplicaKey, port: int, epoch: int, last: OffsetAndEpoch) -> bool:
        """Whether a voter grants this voter's pre-vote in this epoch, for a log that ends at `last`."""
        vote = Vote(epoch=epoch, candidate=self.key, voter=voter, last=last, pre_vote=True)
        reply = self._rpc.reply_from_wire(ask(port, self._rpc.request_to_wire(vote), VOTE_VERSION, VoteResponse))
        assert isinstance(reply, VoteReply), reply
        assert (reply.top_error, reply.error) == (Error.NONE, Error.NONE), reply
        return reply.granted

    def follow(self, port: int, epoch: int) -> int:
        """Fetch from a leader until all records in its log are committed; returns the end of the log."""
        end = OffsetAndEpoch(epoch=0, offset=0)
        while True:
            fetch = Fetch(
                epoch=epoch, replica=self.key, offset=end.offset, last_epoch=end.epoch, max_wait_ms=0, high_watermark=0
            )
            answer = ask(port, self._rpc.request_to_wire(fetch), FETCH_VERSION, FetchResponse)
            reply = self._rpc.reply_from_wire(answer)
            assert isinstance(reply, FetchReply), reply
            assert reply.error is Error.NONE, reply
            if reply.batches:
                end = OffsetAndEpoch(epoch=reply.batches[-1].epoch, offset=reply.batches[-1].next_offset)
            elif reply.high_watermark == end.offset:
                return end.offset

    # Answers

    def serve(self, connection: socket.socket) -> None:
        """Answer the requests of one connection until its end."""
        server = ServerConnection(handle=None, listener=LISTENER, peer="peer")
        with connection, suppress(OSError):
            while data := connection.recv(1 << 16):
                requests, answers = server.feed(data)
                connection.sendall(answers)
                for request in requests:
                    answer = self._answer(request)
                    if answer is None:
                        return
                    connection.sendall(server.answer(request, answer))

    def _answer(self, request: Request) -> Message | None:
        """The answer; None for a request that this voter does not serve."""
        if isinstance(request.message, ApiVersionsRequest):
            return describe_versions(None, request.message, request.version, STATIC)
        if request.api_key not in QUORUM_APIS:
            return None
        wire = WireRequest(
            request_id=request.sequence,
            api_key=request.api_key,
            version=request.version,
            message=request.message,
            listener=LISTENER,
        )
        with self._changed:
            match self._rpc.request_from_wire(wire):
                case Fetch() as fetch:
                    return self._rpc.reply_to_wire(wire, *self._on_fetch(fetch))
                case Vote() as vote:
                    return self._rpc.reply_to_wire(wire, self._on_vote(vote))
        return None

    def _on_vote(self, vote: Vote) -> VoteReply:
        self.votes.append(vote)
        if self._grants and not vote.pre_vote:
            self._epoch = max(self._epoch, vote.epoch)
        leader_id, endpoints = self._leader
        return VoteReply(epoch=self._epoch, leader_id=leader_id, endpoints=endpoints, granted=self._grants)

    def _on_fetch(self, fetch: Fetch) -> tuple[FetchReply, bytes]:
        self.fetched, self.fetched_at_s = (fetch.epoch, fetch.offset), time.monotonic()
        if self._leads and fetch.epoch == self._epoch and fetch.offset == self._log.end_offset:
            self._changed.wait(fetch.max_wait_ms / 1000)
        error, diverging, records = Error.NONE, None, b""
        if not self._leads:
            error = Error.NOT_LEADER_OR_FOLLOWER
        elif fetch.epoch < self._epoch:
            error = Error.FENCED_LEADER_EPOCH
        elif (check := self._log.check(fetch.offset, fetch.last_epoch)).position is Position.DIVERGING:
            diverging = check.at
        else:
            records = b"".join(batch.data for batch in self._batches if batch.base_offset >= fetch.offset)
        leader_id, endpoints = self._leader
        reply = FetchReply(
            epoch=self._epoch,
            leader_id=leader_id,
            endpoints=endpoints,
            error=error,
            high_watermark=self._high_watermark,
            diverging=diverging,
        )
        return reply, records


def listening_at(port: int) -> Endpoints:
    """Where a controller of this machine is reached."""
    return Endpoints((ListenerAddress(LISTENER, HOST, port),))


def _accepts(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def _view(batches: Sequence[RecordBatch]) -> LogView:
    """A log with these batches, by which a fetch is judged."""
    log = LogView(start_offset=0, end_offset=0, epochs=EpochHistory())
    for batch in batches:
        log.appended(batch.next_offset, batch.epoch)
    return log


@contextmanager
def scripted_voter(key: ReplicaKey, port: int, cluster_id: str) -> Iterator[ScriptedVoter]:
    """A voter that listens while the block lasts."""
    voter = ScriptedVoter(key, port, cluster_id)
    listening = socket.create_server((HOST, port))

    def accept() -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=voter.serve, args=(connection,), daemon=True).start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield voter
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        accepting.join()
