"""Counts the work of each step of a node, so that the simulated owner of a replica is busy for a realistic time.

The work of a controller or a broker is the number of records that it replays. A leader replays each record that it
decides on, and a follower each committed record of other nodes. The commit of a record that the leader has replayed
already is no work, and the change of a partition counts as a part of a record, as in the turns of the product. The work
of another application is the number of records that reach the application. The product has no code for this count: two
methods are replaced while a step lasts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kraft.broker.registered import RegisteredBroker
from kraft.controller.server import ControllerServer
from kraft.process.parts import ControllerAndBroker
from kraft.process.process import Process
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.image.replaying import CHANGES_PER_RECORD
from metadata_log.records.metadata import PartitionChangeRecord
from metadata_log.serde import Message

_REPLAYING: Final = (RegisteredBroker, ControllerServer, ControllerAndBroker)
"""The applications that replay records, a large batch in several turns. The applied offset moves when the batch is
complete, and so does not tell how much of the batch a step has replayed.
"""


class Work:
    """Counts the records of one node."""

    def __init__(self) -> None:
        self._records = 0.0

    def take(self) -> int:
        """The number since the last call; what is left of a whole one counts at the next call."""
        records = int(self._records)
        self._records -= records
        return records

    @contextmanager
    def counted(self, process: Process) -> Iterator[None]:
        """Count the records of a step inside of the block."""
        sound, sound_alone = vars(MetadataDelta)["replay"], vars(MetadataImage)["with_config"]
        before = process.replica.status().applied_offset
        replayed = 0.0

        def replay(delta: MetadataDelta, record: Message, *arguments: Any, **named: Any) -> None:
            nonlocal replayed
            replayed += 1 / CHANGES_PER_RECORD if type(record) is PartitionChangeRecord else 1
            sound(delta, record, *arguments, **named)

        def replay_alone(image: MetadataImage, *arguments: Any, **named: Any) -> Any:
            nonlocal replayed
            replayed += 1
            return sound_alone(image, *arguments, **named)

        setattr(MetadataImage, "with_config", replay_alone)  # noqa: B010 -- as below
        setattr(MetadataDelta, "replay", replay)  # noqa: B010 -- mypy rejects an assignment to a method
        try:
            yield
        finally:
            setattr(MetadataImage, "with_config", sound_alone)  # noqa: B010 -- as above
            setattr(MetadataDelta, "replay", sound)  # noqa: B010 -- as above
        is_replaying = isinstance(process.application, _REPLAYING)
        self._records += replayed if is_replaying else process.replica.status().applied_offset - before
