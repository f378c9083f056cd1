"""The follower's half of an incremental fetch session (KIP-227; Kafka: `FetchSessionHandler`).

A request names only the partitions that have changed since the request before; the leader remembers the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kraft.partitions.replicas.key import PartitionKey
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import FetchPartition, FetchResponse, FetchTopic, ForgottenTopic

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
"""The epoch of a request with all partitions, which begins a session."""
_LAST_EPOCH: Final = 2**31 - 1


class FetchSession:
    """The session of this broker with one leader."""

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = FIRST_EPOCH
        self._known: dict[PartitionKey, FetchPartition] = {}
        """The partitions as the leader has them after the last request."""

    @property
    def is_full(self) -> bool:
        """Whether the next request has to name all partitions."""
        return self.epoch == FIRST_EPOCH

    def topics(
        self, wanted: Mapping[PartitionKey, FetchPartition], unwanted: Iterable[PartitionKey]
    ) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """The partitions that the next request names: those to add or change, and those to forget.

        Args:
            wanted: The partitions that may have changed since the last request; all of them for a full request.
            unwanted: The partitions that are fetched no more.
        """
        known = self._known
        if self.epoch == FIRST_EPOCH:
            known.clear()
        topics: dict[Uuid, FetchTopic] = {}
        forgotten: dict[Uuid, ForgottenTopic] = {}
        for key, part in wanted.items():
            if known.get(key) != part:
                topic = topics.get(key[0])
                if topic is None:
                    topic = topics[key[0]] = FetchTopic(topic_id=key[0], partitions=[])
                topic.partitions.append(part)
        for key in unwanted:
            if known.pop(key, None) is not None:
                gone = forgotten.get(key[0])
                if gone is None:
                    gone = forgotten[key[0]] = ForgottenTopic(topic_id=key[0], partitions=[])
                gone.partitions.append(key[1])
        known.update(wanted)
        return list(topics.values()), list(forgotten.values())

    def on_response(self, response: FetchResponse) -> bool:
        """Take the session's part of an answer; returns whether the partitions in the answer count."""
        if response.error_code == Error.FETCH_SESSION_ID_NOT_FOUND:
            self._begin_anew(NO_SESSION)
            return False
        if response.error_code != Error.NONE:
            self._begin_anew(self.id)
            return False
        known = self._known
        answered = {(topic.topic_id, part.partition_index) for topic in response.responses for part in topic.partitions}
        if not (answered == known.keys() if self.epoch == FIRST_EPOCH else answered <= known.keys()):
            # The leader speaks of other partitions than this broker: the session is of no use.
            self._begin_anew(self.id)
            return False
        if response.session_id == NO_SESSION:
            self._begin_anew(NO_SESSION)
        else:
            self.id = response.session_id
            self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1
        return True

    def on_failure(self) -> None:
        """A request has failed: the next one closes the session and begins another."""
        self._begin_anew(self.id)

    def _begin_anew(self, session_id: int) -> None:
        self.id, self.epoch = session_id, FIRST_EPOCH
        self._known = {}
