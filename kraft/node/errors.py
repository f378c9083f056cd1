"""What the caller of an embedded node can be told instead of an offset."""

from __future__ import annotations

from kraft.quorum.values import LeaderAndEpoch
from metadata_log.types import NO_NODE
from transport.protocol.errors import Error


class NodeError(Exception):
    """A node cannot do what was asked of it."""


class NotLeader(NodeError):
    """This node does not lead: the append was not taken and never will be. `leader` is the one to ask, if known."""

    def __init__(self, leader: LeaderAndEpoch) -> None:
        known = leader.leader_id != NO_NODE
        hint = (
            f"node {leader.leader_id} leads epoch {leader.epoch}"
            if known
            else f"no known leader of epoch {leader.epoch}"
        )
        super().__init__(f"this node is not the leader: {hint}")
        self.leader = leader


class OutcomeUnknown(NodeError):
    """Leadership was lost before the append was committed: a later leader may hold it, or not. Read the log to know."""

    def __init__(self, leader: LeaderAndEpoch) -> None:
        super().__init__(
            f"leadership was lost before the append was committed (epoch is now {leader.epoch}):"
            " it may or may not be in the log"
        )
        self.leader = leader


class AppendRejected(NodeError):
    """The values themselves cannot be appended, such as ones that do not fit a batch."""

    def __init__(self, error: Error) -> None:
        super().__init__(f"the append was rejected: {error.name}")
        self.error = error


class NodeStopped(NodeError):
    """The node has stopped, or is about to; what was outstanding may or may not be in the log."""


class SessionExpired(NodeError):
    """The session was not used for so long that the log has forgotten it. The command will not be applied any more; an
    earlier attempt, if there was one, may have been.
    """


class Superseded(NodeError):
    """The client has gone on to later commands since; what came of this one is not kept."""


class ChangesSkipped(NodeError):
    """The changes up to `end_offset` will not be seen: they were not fetched in time, or a snapshot stands for them."""

    def __init__(self, why: str, end_offset: int) -> None:
        super().__init__(f"{why}: changes below offset {end_offset} are missing")
        self.end_offset = end_offset


class OffsetOutOfRange(NodeError):
    """The log no longer holds the offset asked for: a snapshot has taken its place."""

    def __init__(self, offset: int, start_offset: int) -> None:
        super().__init__(f"offset {offset} is not in the log any more, which begins at {start_offset}")
        self.offset = offset
        self.start_offset = start_offset
