"""Translates wire messages to flat messages and back, after checks of cluster id, topic and partition (Kafka:
`RaftUtil`, and the first lines of each handler in `KafkaRaftClient`).

Each family of RPCs has its module: `election_rpc`, `fetch_rpc`, `snapshot_rpc`, `describe_rpc`, `voter_rpc`. Only these
modules read `topics[0].partitions[0]`.
"""

from __future__ import annotations

from kraft.quorum.messages import (
    AddVoter,
    AddVoterReply,
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    DescribeQuorum,
    DescribeQuorumReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    ProbeVersions,
    ProbeVersionsReply,
    RemoveVoter,
    RemoveVoterReply,
    Reply,
    Request,
    UpdateVoter,
    UpdateVoterReply,
    Vote,
    VoteReply,
)
from kraft.replica.rpc import describe_rpc, election_rpc, fetch_rpc, snapshot_rpc, voter_rpc
from kraft.replica.storage.fetched import Judged
from kraft.wire import WireRequest
from metadata_log.errors import DecodeError
from metadata_log.serde import Message
from transport.protocol.errors import Error
from transport.protocol.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
    VoteResponse,
)
from transport.protocol.software import versions_request


class Rpc:
    """Translates for one replica, with its cluster id and the listener name of the peers' endpoints."""

    def __init__(self, *, cluster_id: str, listener: str, timeout_ms: int = 2000) -> None:
        self.cluster_id = cluster_id
        self.listener = listener
        self._timeout_ms = timeout_ms
        self.fetch_replies = fetch_rpc.FetchReplies()

    def request_from_wire(self, request: WireRequest) -> Request | Message:
        """The flat form of a quorum request, or the answer that refuses it."""
        match request.message:
            case FetchRequest() as message:
                # Not by `_is_foreign`: this saves a call for each follower and commit.
                if message.cluster_id != self.cluster_id and message.cluster_id is not None:
                    return FetchResponse(error_code=Error.INCONSISTENT_CLUSTER_ID)
                return fetch_rpc.request_from_wire(message)
            case VoteRequest() | BeginQuorumEpochRequest() | EndQuorumEpochRequest() as message:
                if self._is_foreign(message.cluster_id):
                    return election_rpc.refused(message, Error.INCONSISTENT_CLUSTER_ID)
                return election_rpc.request_from_wire(message)
            case FetchSnapshotRequest() as message:
                if self._is_foreign(message.cluster_id):
                    return FetchSnapshotResponse(error_code=Error.INCONSISTENT_CLUSTER_ID)
                return snapshot_rpc.request_from_wire(message)
            case DescribeQuorumRequest() as message:
                return describe_rpc.request_from_wire(message)
            case AddRaftVoterRequest() | RemoveRaftVoterRequest() | UpdateRaftVoterRequest() as message:
                if self._is_foreign(message.cluster_id):
                    return voter_rpc.refused(message, Error.INCONSISTENT_CLUSTER_ID)
                return voter_rpc.request_from_wire(message)
            case other:
                raise AssertionError(f"{type(other).__name__} is no request of the quorum")

    def _is_foreign(self, cluster_id: str | None) -> bool:
        return cluster_id is not None and cluster_id != self.cluster_id

    def reply_to_wire(self, request: WireRequest, reply: Reply, records: bytes = b"") -> Message:
        """The answer to `request`, in a form that its version can carry."""
        match reply:
            case FetchReply():
                return self.fetch_replies.to_wire(request, reply, records)
            case VoteReply() | BeginQuorumEpochReply() | EndQuorumEpochReply():
                return election_rpc.reply_to_wire(request, reply)
            case FetchSnapshotReply():
                return snapshot_rpc.reply_to_wire(request, reply)
            case DescribeQuorumReply():
                return describe_rpc.reply_to_wire(request, reply)
            case AddVoterReply() | RemoveVoterReply() | UpdateVoterReply():
                return voter_rpc.reply_to_wire(request, reply)
            case ProbeVersionsReply():
                raise AssertionError("a core does not say what its node supports")

    def request_to_wire(self, message: Request) -> Message:
        """The request in its newest form; the transport encodes it in a version that the peer knows."""
        match message:
            case Fetch():
                return fetch_rpc.request_to_wire(message, self.cluster_id)
            case Vote() | BeginQuorumEpoch() | EndQuorumEpoch():
                return election_rpc.request_to_wire(message, self.cluster_id)
            case FetchSnapshot():
                return snapshot_rpc.request_to_wire(message, self.cluster_id)
            case AddVoter() | RemoveVoter() | UpdateVoter():
                return voter_rpc.request_to_wire(message, self.cluster_id, self._timeout_ms)
            case ProbeVersions():
                return versions_request()
            case DescribeQuorum():
                raise AssertionError("a replica never asks another to describe the quorum")

    def reply_from_wire(self, message: Message, judged: Judged | None = None) -> Reply:
        """The flat form of a peer's reply; raises `DecodeError` for one that is not about the metadata partition.

        `judged` is the result of `judging` for the records of a Fetch. Without it the records are judged here, and are
        not compared with a log.
        """
        match message:
            case FetchResponse():
                return fetch_rpc.reply_from_wire(message, self.listener, judged)
            case VoteResponse() | BeginQuorumEpochResponse() | EndQuorumEpochResponse():
                return election_rpc.reply_from_wire(message, self.listener)
            case FetchSnapshotResponse():
                return snapshot_rpc.reply_from_wire(message, self.listener)
            case AddRaftVoterResponse() | RemoveRaftVoterResponse() | UpdateRaftVoterResponse():
                return voter_rpc.reply_from_wire(message, self.listener)
            case ApiVersionsResponse():
                return voter_rpc.probed(message)
            case other:
                raise DecodeError(f"a {type(other).__name__} answers no request of ours")
