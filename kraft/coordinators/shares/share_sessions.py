"""Share sessions: a member names its partitions once, and later only what changes (KIP-932; Kafka: `ShareSession`,
`ShareSessionCache`, `SharePartitionManager.newContext`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from kraft.handling.steps import Handling
from kraft.limits import PARTITIONS_PER_STEP, SHARE_SESSION_PARTITIONS, SHARE_SESSIONS_PARTITIONS
from kraft.partitions.replicas.key import PartitionKey
from transport.protocol.errors import Error
from transport.protocol.messages.share_fetch import ShareFetchRequest

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
_LARGEST: Final = 2**31 - 1

Connection = tuple[str, str]
"""A connection: its listener, and the address of the client."""
SessionKey = tuple[str, str]
"""A group, and the id of a member."""


class ShareSession(Struct, eq=False):
    """The session of one member; `epoch` is that of its next request."""

    key: SessionKey
    connection: Connection
    """The connection that has opened the session."""
    partitions: dict[PartitionKey, None]
    epoch: int = 1
    is_answered: bool = False
    """Whether the member knows of all its partitions: each has been in an answer."""

    @property
    def group_id(self) -> str:
        """The group."""
        return self.key[0]

    def rotated(self) -> list[PartitionKey]:
        """The partitions, beginning with another one in each epoch, so that none comes last for ever."""
        partitions = list(self.partitions)
        at = self.epoch % len(partitions) if partitions else 0
        return partitions[at:] + partitions[:at]


class ShareSessions:
    """The share sessions of one broker.

    Args:
        slots: `group.share.max.share.sessions`.
    """

    def __init__(self, slots: int) -> None:
        self.by_key: dict[SessionKey, ShareSession] = {}
        self.of_group: dict[str, int] = {}
        """How many sessions each group has."""
        self._of_connection: dict[Connection, dict[SessionKey, None]] = {}
        self._slots = slots
        self.partitions = 0
        """How many partitions all sessions have."""

    def __len__(self) -> int:
        """The number of sessions."""
        return len(self.by_key)

    def fetching(
        self, request: ShareFetchRequest, key: SessionKey, connection: Connection
    ) -> Handling[ShareSession | Error]:
        """The session of a ShareFetch that is not the last of its session, with the changes that the request names."""
        if request.share_session_epoch == INITIAL_EPOCH:
            session: ShareSession | Error = self._open(key, connection)
        else:
            session = self.going_on(key, request.share_session_epoch)
        if isinstance(session, Error):
            return session
        partitions, before = session.partitions, len(session.partitions)
        for at, named in enumerate(_named(request), 1):
            partitions[named] = None
            if at % PARTITIONS_PER_STEP == 0:
                yield None
        for at, named in enumerate(_forgotten(request), 1):
            partitions.pop(named, None)
            if at % PARTITIONS_PER_STEP == 0:
                yield None
        if self.by_key.get(key) is not session:
            return Error.SHARE_SESSION_NOT_FOUND
        self.partitions += len(partitions) - before
        if len(partitions) > SHARE_SESSION_PARTITIONS or self.partitions > SHARE_SESSIONS_PARTITIONS:
            self.close(session)
            return Error.SHARE_SESSION_LIMIT_REACHED
        return session

    def _open(self, key: SessionKey, connection: Connection) -> ShareSession | Error:
        """A new session in place of the member's old one, whose records stay with the member."""
        old = self.by_key.get(key)
        if old is None and len(self.by_key) >= self._slots:
            return Error.SHARE_SESSION_LIMIT_REACHED
        if old is not None:
            self.close(old)
        session = self.by_key[key] = ShareSession(key, connection, {})
        self.of_group[key[0]] = self.of_group.get(key[0], 0) + 1
        self._of_connection.setdefault(connection, {})[key] = None
        return session

    def going_on(self, key: SessionKey, epoch: int) -> ShareSession | Error:
        """The session of a request in its middle, which then expects the next epoch."""
        session = self.by_key.get(key)
        if session is None:
            return Error.SHARE_SESSION_NOT_FOUND
        if session.epoch != epoch:
            return Error.INVALID_SHARE_SESSION_EPOCH
        session.epoch = 1 if epoch == _LARGEST else epoch + 1
        return session

    def ending(self, key: SessionKey) -> ShareSession | Error:
        """Take the session of a member that ends it."""
        session = self.by_key.get(key)
        if session is None:
            return Error.SHARE_SESSION_NOT_FOUND
        self.close(session)
        return session

    def close(self, session: ShareSession) -> None:
        """Forget a session."""
        del self.by_key[session.key]
        self.partitions -= len(session.partitions)
        group_id = session.group_id
        self.of_group[group_id] -= 1
        if not self.of_group[group_id]:
            del self.of_group[group_id]
        held = self._of_connection[session.connection]
        del held[session.key]
        if not held:
            del self._of_connection[session.connection]

    def of_connection(self, connection: Connection) -> list[ShareSession]:
        """The sessions that a connection has opened."""
        return [self.by_key[key] for key in self._of_connection.get(connection, ())]


def _named(request: ShareFetchRequest) -> Iterator[PartitionKey]:
    """The partitions that a request adds, or acknowledges."""
    return ((topic.topic_id, one.partition_index) for topic in request.topics for one in topic.partitions)


def _forgotten(request: ShareFetchRequest) -> Iterator[PartitionKey]:
    """The partitions that a request removes."""
    return ((topic.topic_id, number) for topic in request.forgotten_topics_data for number in topic.partitions)
