"""The errors that the methods of an embedded node raise."""

from __future__ import annotations

from typing import Final

from kraft.quorum.values import LeaderAndEpoch
from metadata_log.types import NO_NODE
from transport.protocol.errors import Error


class NodeError(Exception):
    """A node cannot carry out a call; the base class of the errors of this module."""


class NotLeader(NodeError):
    """This node does not lead: the append is not in the log and never will be (Kafka: `NotLeaderException`).

    Attributes:
        leader: The leader to send the append to, with its epoch; `leader_id` is -1 while no leader is known.
    """

    def __init__(self, leader: LeaderAndEpoch) -> None:
        known = leader.leader_id != NO_NODE
        hint = (
            f"node {leader.leader_id} leads epoch {leader.epoch}"
            if known
            else f"no known leader of epoch {leader.epoch}"
        )
        super().__init__(f"this node is not the leader: {hint}")
        self.leader = leader


class TransferFailed(NodeError):
    """The leadership was handed over, and a node that was not asked for has it.

    Attributes:
        leader: Who leads, with its epoch.
    """

    def __init__(self, wanted: int | None, leader: LeaderAndEpoch, voters: int) -> None:
        heard = " of four or more voters those that heard the former leader a moment ago refuse it, as in Kafka;"
        super().__init__(
            f"node {leader.leader_id} leads epoch {leader.epoch}, and not {'another' if wanted is None else wanted}:"
            f"{heard if voters > 3 else ''} its log was shorter than those of a majority, or it was not reached in time"
        )
        self.leader = leader
        self.add_note(f"hint: node {leader.leader_id} can hand over to it now")


class OutcomeUnknown(NodeError):
    """This node lost its leadership before the append was committed; a later leader may hold the values, or not.

    The caller must read the log to learn the outcome.

    Attributes:
        leader: The current leader and epoch, as far as known; `leader_id` is -1 while no leader is known.
    """

    def __init__(self, leader: LeaderAndEpoch) -> None:
        super().__init__(
            f"leadership was lost before the append was committed (epoch is now {leader.epoch}):"
            " it may or may not be in the log"
        )
        self.leader = leader


_CURES: Final = {
    Error.INVALID_REQUEST: "an append has at least one value, and a node with a state machine takes none, but `submit`",
    Error.MESSAGE_TOO_LARGE: "what is appended at once must fit into one batch, so append less at a time",
}
"""The remedies for the errors of an append."""


class AppendRejected(NodeError):
    """The values themselves cannot be appended, for example because they do not fit in a batch.

    Attributes:
        error: Kafka's error code, for example `MESSAGE_TOO_LARGE`.
    """

    def __init__(self, error: Error) -> None:
        cure = _CURES.get(error)
        super().__init__(f"the append was rejected: {error.name}" + (f": {cure}" if cure else ""))
        self.error = error


class AppendsFull(NodeError):
    """The outstanding appends take as much memory as they may, and this one is not made. First await the oldest."""


class NodeStopped(NodeError):
    """The node has stopped, or is about to stop; an outstanding append or command may or may not be in the log."""


class SessionExpired(NodeError):
    """The session has expired after a long time without use. The command will not be applied any more; an earlier
    attempt, if there was one, may have been applied.
    """


class Superseded(NodeError):
    """The client has already sent later commands in its session; the result of this command is not kept."""


class ChangesSkipped(NodeError):
    """A watch misses changes: the watcher read them too late, or a snapshot has replaced them.

    Attributes:
        end_offset: The offset below which changes are missing (exclusive).
    """

    def __init__(self, why: str, end_offset: int) -> None:
        super().__init__(f"{why}: changes below offset {end_offset} are missing")
        self.end_offset = end_offset


class OffsetOutOfRange(NodeError):
    """The log no longer holds the requested offset: a snapshot has replaced the records (Kafka: `OFFSET_OUT_OF_RANGE`).

    Attributes:
        offset: The requested offset.
        start_offset: The first offset of the log.
    """

    def __init__(self, offset: int, start_offset: int) -> None:
        super().__init__(f"offset {offset} is not in the log any more, which begins at {start_offset}")
        self.offset = offset
        self.start_offset = start_offset
