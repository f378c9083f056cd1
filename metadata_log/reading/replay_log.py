"""The state of a cluster at one point of its history, from files (Kafka: `MetadataLoader`, `kafka-metadata-shell`)."""

from __future__ import annotations

from collections.abc import Iterator

from metadata_log.disk import Disk, OsDisk
from metadata_log.errors import MetadataLogError, UnsupportedVersion
from metadata_log.gc_pause import gc_paused
from metadata_log.image import MetadataDelta, MetadataImage, ReplayError
from metadata_log.reading.damage import Damage, DamagedFile, OnDamage
from metadata_log.reading.entries import Entry
from metadata_log.reading.timeline import At, Base, parse_at, read_timeline
from metadata_log.records.batch import RecordBatch
from metadata_log.records.frame import decode_record
from metadata_log.records.record import records
from metadata_log.releases import unknown_record_text


@gc_paused()
def replay(
    path: str,
    at: At | int | str | None = None,
    disk: Disk | None = None,
    on_damage: OnDamage = OnDamage.STRICT,
    *,
    is_complete: bool = False,
) -> MetadataImage:
    """The image of a directory, segment or snapshot at an offset (inclusive), at a time, or at its end.

    While a metadata transaction is open the image is the one from before the transaction, as in Kafka.

    Args:
        path: A log directory, partition directory, segment or snapshot.
        at: The point: an `At`, an offset, or a text for `parse_at`; None for the end.
        disk: The disk; None for the disk of this machine.
        on_damage: With `SKIP`, replay skips damage and records that contradict the image. With `STOP`, the image is the
            one from before the first of them.
        is_complete: Whether the image may lack no record of a later release, whatever is done about damage.

    Returns:
        The image (Kafka's `MetadataImage`).

    Raises:
        DamagedFile: The log is damaged, or has a record of a later release, and the mode is strict.
        UnsupportedVersion: A record of a later release, with `is_complete`.
        ReplayError: A record contradicts the image; the text names offset and record.
        MetadataLogError: The files do not cover the point.
        ValueError: The text is no point.
        OSError: A file is unreadable.
    """
    point = _point(at)
    source = OsDisk() if disk is None else disk
    delta = MetadataDelta(MetadataImage())
    end = delta.end
    for item in read_timeline(source, path, until=point, from_base="latest", on_damage=on_damage):
        if isinstance(item, Damage):
            continue
        if isinstance(item, Base):
            delta = MetadataDelta(MetadataImage(), is_snapshot=True)
        elif item.batch.is_control:
            end = item.end
            continue
        features = delta.features
        entries = item.entries if isinstance(item, Base) else item.entries()
        try:
            whole = _replay_entries(delta, _known(entries, item.path, delta) if is_complete else entries, on_damage)
        except DamagedFile as damaged:
            raise damaged.at_level(delta.features.metadata_version) from None
        end = item.end
        if not whole:
            break
        if delta.features is not features or isinstance(item, Base):
            # The epoch of the finalized features is the last offset of the batch that changed them.
            delta = MetadataDelta(delta.apply(end))
    if point.offset is not None and end.offset <= point.offset:
        raise MetadataLogError(f"the log ends at offset {end.offset - 1}, before {point.offset}", where=path)
    return delta.apply(end).stable


def _known(entries: Iterator[Entry | Damage], where: str, delta: MetadataDelta) -> Iterator[Entry | Damage]:
    """The entries; raises `UnsupportedVersion` at a record that nobody here knows."""
    for entry in entries:
        if isinstance(entry, Entry) and entry.record is None and not entry.is_control:
            text = unknown_record_text(entry.type, entry.version, delta.features.metadata_version)
            raise UnsupportedVersion(f"{text} (offset {entry.offset})", where=where)
        yield entry


def _replay_entries(delta: MetadataDelta, entries: Iterator[Entry | Damage], on_damage: OnDamage) -> bool:
    """Replay all but control records; returns whether to continue."""
    for entry in entries:
        if isinstance(entry, Damage):
            if on_damage is OnDamage.STOP:
                return False
        elif not entry.is_control and entry.record is not None:
            try:
                delta.replay(entry.record, entry.offset)
            except ReplayError:
                if on_damage is OnDamage.STRICT:
                    raise
                if on_damage is OnDamage.STOP:
                    return False
    return True


def replay_batch(delta: MetadataDelta, batch: RecordBatch, *, where: str) -> None:
    """Replay a batch that a leader has sent; control records change nothing. `UnsupportedVersion` for a new record."""
    if batch.is_control:
        return
    for one in records(batch, where=where):
        framed = decode_record(one.value or b"", where=where)
        if framed.record is None:
            text = unknown_record_text(framed.type, framed.version, delta.features.metadata_version)
            raise UnsupportedVersion(
                f"{text} (offset {one.offset})",
                where=where,
                hint="The cluster runs a newer release than this command knows.",
            )
        delta.replay(framed.record, one.offset)


def _point(at: At | int | str | None) -> At:
    match at:
        case None:
            return At()
        case At():
            return at
        case int():
            return At(offset=at)
        case str():
            return parse_at(at)
