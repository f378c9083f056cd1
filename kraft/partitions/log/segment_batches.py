"""The batches of a segment with the damage between them: what a tool reads, where a broker would truncate."""

from __future__ import annotations

from collections.abc import Iterator

from metadata_log.disk import File
from metadata_log.errors import CorruptBatch, IncompleteBatch, UnsupportedVersion
from metadata_log.log.segment import next_sound_batch, scan_file
from metadata_log.reading.damage import Damage, OnDamage, stops
from metadata_log.records.batch import RecordBatch


def batches_of(file: File, on_damage: OnDamage = OnDamage.SKIP) -> Iterator[RecordBatch | Damage]:
    """The sound batches of a segment, and the damage between them. Offsets may have holes after compaction.

    Args:
        file: The `.log` file.
        on_damage: Whether reading goes on with the next sound batch.

    Raises:
        DamagedFile: The file is damaged, and the mode is strict.
        OSError: The file cannot be read.
    """
    position, end = 0, file.size()
    while position < end:
        try:
            for batch in scan_file(file, position, end=end):
                yield batch
                position = batch.end_position
        except (CorruptBatch, UnsupportedVersion) as bad:
            following = next_sound_batch(file, position + 1, end=end)
            cut = isinstance(bad, IncompleteBatch) and following is None
            damage = Damage(where=file.path, what=bad.what, expected="a whole batch", position=position, unfinished=cut)
            is_last = stops(damage, on_damage)
            yield damage
            if following is None or is_last:
                return
            position = following.position
