"""Verifies an archive without gaps: every file by its digest, every batch by its CRC, every offset in order."""

from __future__ import annotations

from msgspec import Struct

from metadata_log.archive.manifest import (
    FILE_NAME,
    ArchiveError,
    CheckpointFacts,
    Draft,
    GapFacts,
    Manifest,
    SegmentFacts,
    SupersededFacts,
    digest_of,
    read_manifest,
)
from metadata_log.disk import Disk
from metadata_log.errors import MetadataLogError
from metadata_log.log.log_dir import read_meta_properties
from metadata_log.log.segment import parse_file_name
from metadata_log.log.snapshot import parse_snapshot_name, read_snapshot
from metadata_log.reading.damage import Damage
from metadata_log.reading.reader import read_file
from metadata_log.records.batch import RecordBatch


class Verified(Struct, frozen=True, kw_only=True):
    """The content of an archive, and all its damage: none, if the archive is complete apart from the allowed `gaps`."""

    cluster_id: str | None
    start_offset: int
    end_offset: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    last_epoch: int
    segments: int
    checkpoints: int
    batches: int
    records: int
    size_bytes: int
    superseded: tuple[SupersededFacts, ...]
    gaps: tuple[GapFacts, ...]
    damages: tuple[Damage, ...]


def verify_archive(disk: Disk, directory: str) -> Verified:
    """Read everything in an archive; raises `ArchiveError` without one. Nothing is locked or changed."""
    manifest = read_manifest(disk, directory)
    if manifest is None:
        raise ArchiveError(
            f"there is no archive here: {FILE_NAME} is missing", where=directory, hint="Name the directory of --to."
        )
    segments = manifest.segments
    damages = [
        *_names(disk, directory, manifest),
        *_succession(directory, manifest),
        *(damage for facts in segments for damage in _segment(disk, directory, facts)),
        *(damage for each in manifest.checkpoints for damage in _checkpoint(disk, directory, each)),
        *(damage for each in manifest.superseded for damage in _digest(disk, directory, each)),
    ]
    return Verified(
        cluster_id=manifest.cluster_id,
        start_offset=manifest.start_offset or 0,
        end_offset=manifest.end_offset or 0,
        first_timestamp_ms=next((each.first_timestamp_ms for each in segments if each.batches), -1),
        last_timestamp_ms=max((each.last_timestamp_ms for each in segments), default=-1),
        last_epoch=-1 if manifest.last_epoch is None else manifest.last_epoch,
        segments=len(segments),
        checkpoints=len(manifest.checkpoints),
        batches=sum(each.batches for each in segments),
        records=sum(each.records for each in segments),
        size_bytes=sum(each.size_bytes for each in manifest.files()),
        superseded=manifest.superseded,
        gaps=manifest.gaps,
        damages=tuple(damages),
    )


def _names(disk: Disk, directory: str, manifest: Manifest) -> list[Damage]:
    """Segments and snapshots outside of the manifest, and a wrong identity of the cluster."""
    known = {each.file for each in manifest.files()}
    damages = [
        Damage(
            where=f"{directory}/{name}",
            what="the manifest does not name this file",
            expected="only files that the manifest names",
        )
        for name in disk.list(directory)
        if name not in known and (parse_file_name(name) is not None or parse_snapshot_name(name) is not None)
    ]
    try:
        meta = read_meta_properties(disk, directory)
    except MetadataLogError as bad:
        return [*damages, Damage(where=f"{directory}/meta.properties", what=bad.what, expected="the cluster's id")]
    if meta is not None and meta.cluster_id != manifest.cluster_id:
        what = f"meta.properties names cluster {meta.cluster_id}"
        damages.append(Damage(where=directory, what=what, expected=f"cluster {manifest.cluster_id}"))
    return damages


def _succession(directory: str, manifest: Manifest) -> list[Damage]:
    """Each segment begins at the end of the one before, in its epoch or a later one; each snapshot fits in between."""
    damages = []
    path = f"{directory}/{FILE_NAME}"
    end, epoch = manifest.start_offset or 0, -1
    gaps = {(gap.base_offset, gap.end_offset) for gap in manifest.gaps}
    resting = {each.end_offset for each in manifest.checkpoints}
    for facts in manifest.segments:
        is_told = (end, facts.base_offset) in gaps and facts.base_offset in resting
        if facts.base_offset != end and not is_told:
            what = f"offsets {end} to {facts.base_offset - 1} are missing before {facts.file}"
            damages.append(Damage(where=path, what=what, expected=f"a segment that begins at {end}", offset=end))
        if facts.epochs and facts.epochs[0][0] < epoch:
            what = f"{facts.file} begins in epoch {facts.epochs[0][0]} after epoch {epoch}"
            damages.append(Damage(where=path, what=what, expected="epochs that rise", offset=facts.base_offset))
        end, epoch = facts.end_offset, facts.epochs[-1][0] if facts.epochs else epoch
    start = manifest.start_offset or 0
    if start > 0 and not any(each.end_offset >= start for each in manifest.checkpoints):
        what = f"the log begins at offset {start}, and no snapshot holds what came before"
        damages.append(
            Damage(where=path, what=what, expected=f"a snapshot that ends at {start} or later", offset=start)
        )
    for each in manifest.checkpoints:
        inside = start <= each.end_offset <= end
        if not inside or manifest.epoch_at(each.end_offset - 1) not in {None, each.epoch}:
            what = f"snapshot {each.id} is not of this log"
            damages.append(Damage(where=f"{directory}/{each.file}", what=what, expected="one of an archived offset"))
    return damages


def _segment(disk: Disk, directory: str, facts: SegmentFacts) -> list[Damage]:
    path = f"{directory}/{facts.file}"
    if damages := _digest(disk, directory, facts):
        return damages
    draft = Draft(facts.file, facts.base_offset)
    for item in read_file(disk, path):
        if isinstance(item, RecordBatch):
            if item.end_position <= facts.size_bytes:
                draft.note(item)
        elif not item.unfinished and (item.position or 0) < facts.size_bytes:
            damages.append(item)
    if not damages and draft.facts() != facts:
        damages.append(Damage(where=path, what="the file does not hold what the manifest says", expected=f"{facts}"))
    return damages


def _checkpoint(disk: Disk, directory: str, facts: CheckpointFacts) -> list[Damage]:
    path = f"{directory}/{facts.file}"
    if damages := _digest(disk, directory, facts):
        return damages
    try:
        for _ in read_snapshot(disk, path):
            pass
    except MetadataLogError as bad:
        return [Damage(where=path, what=bad.what, expected="a whole snapshot", position=bad.position)]
    return []


def _digest(disk: Disk, directory: str, facts: SegmentFacts | CheckpointFacts | SupersededFacts) -> list[Damage]:
    """Compare the archived bytes with the digest. A segment may be longer while a run appends to it."""
    path = f"{directory}/{facts.file}"
    try:
        file = disk.open(path, writable=False)
    except FileNotFoundError:
        return [Damage(where=path, what="the file is missing", expected=f"{facts.size_bytes} bytes")]
    try:
        size, actual = file.size(), digest_of(file, facts.size_bytes)
    finally:
        file.close()
    if size < facts.size_bytes:
        return [Damage(where=path, what=f"the file has {size} bytes", expected=f"{facts.size_bytes} bytes")]
    if actual != facts.sha256:
        what = f"the SHA-256 of the file is {actual}"
        return [Damage(where=path, what=what, expected=facts.sha256)]
    return []
