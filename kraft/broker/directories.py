"""The log directory of each replica of a broker, and its assignment by the controller (Kafka: `AssignmentsManager`)."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from kraft.partitions.replicas.key import PartitionKey
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
)

MAX_ASSIGNMENTS: Final = 2250
ASSIGNMENT_RETRY_MS: Final = 500


class Directories:
    """The online directories, their replicas, and at most one outstanding AssignReplicasToDirs."""

    def __init__(self, broker_id: int, directories: tuple[Uuid, ...]) -> None:
        self._broker_id = broker_id
        self.online = directories
        self._failed: tuple[Uuid, ...] = ()
        self._placed: dict[PartitionKey, Uuid] = {}
        self._counts = dict.fromkeys(directories, 0)
        self.untold: dict[PartitionKey, None] = {}
        """The replicas of which the controller has to learn the directory."""
        self._asked: tuple[PartitionKey, ...] | None = None
        self._not_before_ms = 0

    def fail(self, directory: Uuid) -> list[PartitionKey]:
        """Fail a directory; returns the replicas in it."""
        if directory not in self.online:
            return []
        self.online = tuple(one for one in self.online if one != directory)
        self._failed = (*self._failed, directory)
        return [key for key, placed in self._placed.items() if placed == directory]

    def is_lost(self, directory: Uuid) -> bool:
        """Whether a replica in this directory is offline."""
        return directory in self._failed

    def place(
        self,
        key: PartitionKey,
        assigned: Uuid,
        *,
        is_told: bool,
        found: Uuid | None = None,
        wanted: Uuid | None = None,
        cordoned: Container[Uuid] = (),
    ) -> None:
        """Place a replica. `assigned` is its directory in the metadata. If that is no directory of this broker, the one
        with the fewest replicas takes the replica, of those that are not cordoned if there are any. The controller
        learns of that if the metadata level has directories. `found` is the directory that holds a log of the replica
        already; the replica stays there. `wanted` is the directory that AlterReplicaLogDirs has named for a new one.
        """
        if found is not None and found != assigned and found in self.online:
            self._put(key, found)
            if is_told:
                self.untold[key] = None
            return
        if assigned in self.online:
            self._put(key, assigned)
            self.untold.pop(key, None)
            return
        if not self.online:
            return
        placed = self._placed.get(key)
        if wanted in self.online and placed is None:
            self._put(key, wanted)
        elif placed is None or placed not in self.online:
            open_ones = [one for one in self.online if one not in cordoned] or self.online[:1]
            self._put(key, min(open_ones, key=lambda one: (self._counts[one], self.online.index(one))))
        if is_told:
            self.untold[key] = None

    def move(self, key: PartitionKey, directory: Uuid) -> None:
        """A replica is about to move to another directory of this broker: the controller learns of that."""
        if directory in self.online:
            self._put(key, directory)
            self.untold[key] = None

    def _put(self, key: PartitionKey, directory: Uuid) -> None:
        before = self._placed.get(key)
        if before is not None:
            self._counts[before] -= 1
        self._placed[key] = directory
        self._counts[directory] += 1

    def directory_of(self, key: PartitionKey) -> Uuid | None:
        """The log directory of a replica; None without an online directory."""
        return self._placed.get(key)

    def remove(self, key: PartitionKey) -> None:
        """Remove a replica."""
        placed = self._placed.pop(key, None)
        if placed is not None:
            self._counts[placed] -= 1
        self.untold.pop(key, None)

    # Requests and answers

    def deadline_ms(self) -> int:
        """When the next `request_due` is due; `NEVER_MS` with nothing to report, or with a request outstanding."""
        return self._not_before_ms if self.untold and self._asked is None else NEVER_MS

    def request_due(self, broker_epoch: int, now_ms: int) -> AssignReplicasToDirsRequest | None:
        """The due request, if any; the caller passes exactly one answer to `on_answer`."""
        if self._asked is not None or not self.untold or now_ms < self._not_before_ms:
            return None
        keys = tuple(self.untold)[:MAX_ASSIGNMENTS]
        self._asked = keys
        by_directory: dict[Uuid, dict[Uuid, list[AssignReplicasToDirsRequestPartitionData]]] = {}
        for topic_id, number in keys:
            topics = by_directory.setdefault(self._placed[topic_id, number], {})
            part = AssignReplicasToDirsRequestPartitionData(partition_index=number)
            topics.setdefault(topic_id, []).append(part)
        return AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=broker_epoch,
            directories=[
                AssignReplicasToDirsRequestDirectoryData(
                    id=directory,
                    topics=[
                        AssignReplicasToDirsRequestTopicData(topic_id=topic_id, partitions=parts)
                        for topic_id, parts in topics.items()
                    ],
                )
                for directory, topics in by_directory.items()
            ],
        )

    def on_answer(self, response: Message | None, now_ms: int) -> None:
        """Assignments with an answer, even an error, are finished; the metadata log shows the result."""
        asked, self._asked = self._asked, None
        assert asked is not None, "an answer without a request"
        assert response is None or isinstance(response, AssignReplicasToDirsResponse), response
        if response is None or response.error_code != Error.NONE:
            self._not_before_ms = now_ms + ASSIGNMENT_RETRY_MS
            return
        for key in asked:
            self.untold.pop(key, None)
