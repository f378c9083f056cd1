"""The archive itself: adds the new part of a source, if archive and source agree about the common part.

An archive is a partition directory with a manifest. Only files that the manifest names count. New files are written and
flushed first, the manifest is replaced last, and files outside of the manifest are removed. So after a crash the
archive is in its old or in its new state.

Kafka's rules decide between two logs: records that a later leader has overwritten were never committed, and records
below the end of a snapshot are committed. If these rules do not explain a difference, nothing is changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, takewhile
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metadata_log.archive.checkpoints import copy_checkpoint, differs_from
from metadata_log.archive.manifest import (
    FILE_NAME,
    SUPERSEDED,
    ArchiveError,
    Draft,
    Manifest,
    SegmentFacts,
    SupersededFacts,
    read_manifest,
    write_manifest,
)
from metadata_log.archive.source import Located, Source
from metadata_log.archive.writing import TMP, SegmentWriter, Written, read_draft, write_batches
from metadata_log.disk import Disk, Lock, make_directory, replace_file
from metadata_log.log.log_dir import META_PROPERTIES
from metadata_log.log.segment import parse_file_name, scan_file
from metadata_log.log.snapshot import parse_snapshot_name
from metadata_log.reading.damage import Damage, DamagedFile
from metadata_log.records.batch import RecordBatch
from metadata_log.types import OffsetAndEpoch

LOCK_FILE: Final = ".archive.lock"
ATTEMPTS: Final = 5


class Added(Struct, frozen=True, kw_only=True):
    """The additions of one reading of a source. The archive now reaches from `start_offset` to `end_offset`."""

    source: str
    batches: int = 0
    records: int = 0
    start_offset: int
    end_offset: int
    checkpoints: tuple[OffsetAndEpoch, ...] = ()
    superseded: SupersededFacts | None = None
    warnings: tuple[str, ...] = ()
    damage: Damage | None = None
    """The damage that ended the reading of the source; records after the damage are not in the archive."""


class _Rewritten(Exception):
    """The source's log was truncated and rewritten during the reading."""


class _Meeting(Struct, frozen=True):
    """Two logs side by side: the point where they diverge, and the source's batches from there on."""

    shared: Located | None
    """The last common batch."""
    ours: RecordBatch | None
    theirs: Located | None
    rest: Iterator[Located]


def open_archive(disk: Disk, directory: str) -> Archive:
    """Open an archive for writing, or make an empty one, and remove the remains of an interrupted run.

    Raises `ArchiveError` if another process writes to the archive, if files are missing or truncated, or if the
    directory holds other files.
    """
    directory = directory.rstrip("/") or "/"
    manifest = read_manifest(disk, directory)
    if manifest is None:
        make_directory(disk, directory)
        if others := [name for name in disk.list(directory) if name not in {LOCK_FILE, FILE_NAME + TMP}]:
            raise ArchiveError(
                f"the directory is no archive: it holds {others[0]}, and no {FILE_NAME}",
                where=directory,
                hint="Name an archive, or an empty directory.",
            )
    try:
        lock = disk.lock(f"{directory}/{LOCK_FILE}")
    except BlockingIOError as held:
        raise ArchiveError(
            "another process writes to this archive", where=directory, hint="Wait for that process, or end it."
        ) from held
    archive = Archive(disk, directory, manifest or Manifest(), lock)
    try:
        if manifest is None:
            write_manifest(disk, directory, archive.manifest)
        archive.settle()
    except BaseException:
        archive.close()
        raise
    return archive


class Archive:
    """An archive that this process may write to until `close`."""

    def __init__(self, disk: Disk, directory: str, manifest: Manifest, lock: Lock) -> None:
        self.disk = disk
        self.directory = directory
        self.manifest = manifest
        self.on_progress: Callable[[int], None] | None = None
        """Called with the reached offset, for every batch."""
        self._lock = lock
        self._draft: Draft | None = None
        """The last segment, if it was read or written already."""
        self._last: RecordBatch | None = None
        """The last batch, if it was read or written already."""

    def close(self) -> None:
        """Release the lock of the archive."""
        self._lock.release()

    def batches(self, from_offset: int = 0) -> Iterator[RecordBatch]:
        """The archived batches from the one that holds `from_offset` on; raises `CorruptBatch`."""
        for facts in self.manifest.segments:
            if facts.end_offset > from_offset:
                file = self.disk.open(f"{self.directory}/{facts.file}", writable=False)
                try:
                    for batch in scan_file(file, end=facts.size_bytes):
                        if batch.next_offset > from_offset:
                            yield batch
                finally:
                    file.close()

    def add(self, source: Source, *, now_ms: int) -> Added:
        """Add everything of `source` that is not in the archive: earlier log, later log, checkpoints.

        All additions are on disk when this returns. Raises `ArchiveError`, and adds nothing, if the source is of
        another cluster, if records between the archive and the source are lost, or if both disagree in a way that no
        change of leader explains.
        """
        ours, theirs = self.manifest.cluster_id, source.cluster_id
        if ours is not None and theirs is not None and ours != theirs:
            raise ArchiveError(
                f"the archive is of cluster {ours}, the source of cluster {theirs}",
                where=source.directory,
                hint="Each cluster needs an archive of its own.",
            )
        for _ in range(ATTEMPTS):
            try:
                added = self._add_log(source, now_ms) if self.manifest.segments else self._begin(source)
                return self._add_checkpoints(source, added)
            except _Rewritten:
                self._forget(source)
                self.settle()
        raise ArchiveError(
            "the log was rewritten each time while it was read",
            where=source.directory,
            hint="Try again, or archive from another controller of the cluster.",
        )

    # ----------------------------------------------------------------------------------------------------- the log

    def _begin(self, source: Source) -> Added:
        """Add the first log. A log that begins above 0 needs a checkpoint of the earlier records."""
        start = source.start_offset()
        if start > 0 and not any(each.offset >= start for each in source.checkpoints()):
            raise ArchiveError(
                f"the log begins at offset {start}, and no snapshot holds what came before",
                where=source.directory,
                hint="Archive from another controller of the cluster.",
            )
        if source.meta is not None:
            replace_file(self.disk, self.directory, META_PROPERTIES, source.meta)
        written = self._write(source.batches())
        damage = source.ended
        if not written.drafts:
            empty = SegmentWriter(self.disk, self.directory, start)
            empty.finish()
            written = replace(written, drafts=(empty.draft,))
        self._check_again(source, written, shared=None)
        self._publish(source, (), written)
        return self._added(source, (written,), damage=damage)

    def _add_log(self, source: Source, now_ms: int) -> Added:
        start, end = self.manifest.start_offset or 0, self.manifest.end_offset or 0
        their_start = source.start_offset()
        if their_start > end:
            raise ArchiveError(
                f"offsets {end} to {their_start - 1} are lost: the archive ends before the log begins",
                where=source.directory,
                hint="Archive from another controller of the cluster that still has them, or begin another archive.",
            )
        meeting = self._meet(source, start, end)
        if meeting.ours is not None and meeting.theirs is not None:
            return self._settle_difference(source, meeting, now_ms)
        damaged = source.ended is not None and not source.ended.unfinished
        if meeting.shared is None and damaged:
            return self._added(source, (), damage=source.ended)
        if meeting.shared is None and their_start < end:
            behind = f"the source has nothing from offset {start} on, where the archive begins: nothing was taken"
            return self._added(source, (), (behind,))
        if meeting.shared is None and None in {source.cluster_id, self.manifest.cluster_id}:
            raise ArchiveError(
                f"the log begins at offset {end}, where the archive ends, and nothing shows that they are one history",
                where=source.directory,
                hint="Archive from a directory that reaches into the archive, or has a meta.properties.",
            )
        warnings: tuple[str, ...] = ()
        if meeting.ours is not None and not damaged:
            warning = (
                f"the source ends at offset {meeting.ours.base_offset}, the archive at {end}: "
                "its node lags, or has truncated its log and not yet fetched the following records"
            )
            warnings = (warning,)
        written = self._write(meeting.rest, grown=self._grown())
        damage = source.ended
        self._check_again(source, written, shared=meeting.shared)
        before = None
        if their_start < start:
            before = self._write(takewhile(lambda each: each[1].next_offset <= start, source.batches(their_start)))
            if not before.drafts or before.drafts[-1].end_offset != start:
                raise ArchiveError(
                    f"no batch of the source ends where the archive begins, at offset {start}",
                    where=source.directory,
                    hint="Run `kraft dump --verify` on both.",
                )
            self._check_again(source, before, shared=None)
        if written.drafts or before is not None:
            self._publish(source, () if before is None else before.drafts, written)
        elif meeting.shared is not None and meeting.ours is None:
            source.mark, self._last = meeting.shared, meeting.shared[1]
        return self._added(source, (written,) if before is None else (before, written), warnings, damage)

    def _grown(self) -> Draft | None:
        """The last segment, for appending."""
        if self._draft is None:
            self._draft = read_draft(self.disk, self.directory, self.manifest.segments[-1])
        return self._draft

    def _meet(self, source: Source, start: int, end: int) -> _Meeting:
        """Compare the common part. After the first time with this source its last batch is enough.

        A log never returns to an earlier state: if the last batch is unchanged, so are all earlier ones.
        """
        if self._last is not None and source.mark is not None and source.mark[1].data == self._last.data:
            meeting = _compare(iter((self._last,)), source.batches(self._last.base_offset))
            if meeting.shared is not None and meeting.ours is None:
                return meeting
        self._forget(source)
        seen = max(start, source.start_offset())
        return _compare(self.batches(seen) if seen < end else iter(()), source.batches(seen))

    def _forget(self, source: Source) -> None:
        self._draft = self._last = source.mark = None

    def _write(self, batches: Iterable[Located], grown: Draft | None = None) -> Written:
        try:
            return write_batches(self.disk, self.directory, batches, grown=grown, on_progress=self.on_progress)
        except BaseException:
            self._draft = None
            raise

    def _check_again(self, source: Source, written: Written, *, shared: Located | None) -> None:
        """Read the taken batches once more: a truncation between two reads would mix batches of two epochs.

        Batches that a second reading repeats were in the log when the first one ended. Segments that retention has
        deleted since were committed.
        """
        if written.last is None:
            return
        source.mark = shared
        end = written.last[1].next_offset
        digests = {base: hashlib.sha256() for base in written.digests}
        first = shared[1].base_offset if shared is not None else written.drafts[0].base_offset
        seen_shared = shared is None
        for base, batch in source.batches(first):
            if shared is not None and batch.base_offset == shared[1].base_offset:
                seen_shared = batch.data == shared[1].data
            elif batch.next_offset <= end and base in digests:
                digests[base].update(batch.data)
            else:
                break
        start = source.start_offset()
        changed = any(base >= start and digests[base].hexdigest() != was for base, was in written.digests.items())
        if changed or not (seen_shared or (shared is not None and shared[0] < start)):
            raise _Rewritten

    def _publish(self, source: Source, before: Iterable[Draft], written: Written) -> None:
        """Add the written files to the manifest."""
        kept = self.manifest.segments
        drafts = written.drafts
        if drafts and kept and drafts[0].base_offset == kept[-1].base_offset:
            kept = kept[:-1]
        facts: Iterator[SegmentFacts] = (draft.facts() for draft in drafts)
        self.manifest = replace(
            self.manifest,
            cluster_id=self.manifest.cluster_id or source.cluster_id,
            segments=(*(draft.facts() for draft in before), *kept, *facts),
        )
        write_manifest(self.disk, self.directory, self.manifest)
        if drafts:
            self._draft = drafts[-1]
        if written.last is not None:
            source.mark, self._last = written.last, written.last[1]

    def _added(
        self, source: Source, written: Iterable[Written], warnings: tuple[str, ...] = (), damage: Damage | None = None
    ) -> Added:
        parts = tuple(written)
        return Added(
            source=source.directory,
            batches=sum(part.batches for part in parts),
            records=sum(part.records for part in parts),
            start_offset=self.manifest.start_offset or 0,
            end_offset=self.manifest.end_offset or 0,
            warnings=warnings,
            damage=None if damage is None or damage.unfinished else damage,
        )

    # ------------------------------------------------------------------------------------------------ differences

    def _settle_difference(self, source: Source, meeting: _Meeting, now_ms: int) -> Added:
        """Decide which of two logs a later leader has overwritten: the one with the lower last epoch.

        Neither is overwritten if the records of that log were committed.
        """
        ours, theirs = meeting.ours, meeting.theirs
        assert ours is not None
        assert theirs is not None
        at = theirs[1].base_offset
        for facts in self.manifest.segments:
            if facts.base_offset <= ours.base_offset < facts.end_offset:
                read_draft(self.disk, self.directory, facts)  # a damaged archive must not decide
        their_epoch = max(batch.epoch for _, batch in chain((theirs,), meeting.rest))
        our_epoch = self.manifest.last_epoch or 0
        if their_epoch < our_epoch:
            committed = [each.offset for each in source.checkpoints()]
        else:
            committed = [each.end_offset for each in self.manifest.checkpoints]
        if their_epoch == our_epoch or ours.base_offset != at or any(offset > at for offset in committed):
            raise ArchiveError(
                f"archive and source disagree from offset {at} on (epochs {ours.epoch} and {theirs[1].epoch}), "
                "and no change of leader explains it",
                where=source.directory,
                hint="One of them is damaged, or they are of two clusters: run `kraft dump --verify` on both.",
            )
        if their_epoch < our_epoch:
            stale = (
                f"from offset {at} on the source has records of epoch {theirs[1].epoch} that a later leader has "
                f"overwritten (epoch {our_epoch} in the archive): nothing was taken"
            )
            return self._added(source, (), (stale,))
        superseded = self._supersede(at, theirs[1].epoch, now_ms)
        added = self._add_log(source, now_ms) if self.manifest.segments else self._begin(source)
        return replace(added, superseded=superseded)

    def _supersede(self, at: int, by_epoch: int, now_ms: int) -> SupersededFacts:
        """Move the archived records from offset `at` on out of the log, to a folder for overwritten records."""
        kept = [facts for facts in self.manifest.segments if facts.base_offset < at]
        if kept and kept[-1].end_offset > at:
            kept[-1] = read_draft(self.disk, self.directory, kept[-1], until=at).facts()
        folder = f"{SUPERSEDED}/{len(self.manifest.superseded) + 1:04d}"
        make_directory(self.disk, f"{self.directory}/{folder}")
        aside = SegmentWriter(self.disk, f"{self.directory}/{folder}", at)
        try:
            for batch in self.batches(at):
                aside.append(batch)
            aside.finish()
        finally:
            aside.close()
        facts = aside.draft.facts()
        superseded = SupersededFacts(
            file=f"{folder}/{facts.file}",
            base_offset=at,
            end_offset=facts.end_offset,
            epoch=facts.epochs[-1][0],
            by_epoch=by_epoch,
            size_bytes=facts.size_bytes,
            sha256=facts.sha256,
            noticed_ms=now_ms,
        )
        self.manifest = replace(self.manifest, segments=tuple(kept), superseded=(*self.manifest.superseded, superseded))
        write_manifest(self.disk, self.directory, self.manifest)
        self._draft = self._last = None
        self.settle()
        return superseded

    # ------------------------------------------------------------------------------------------------ checkpoints

    def _add_checkpoints(self, source: Source, added: Added) -> Added:
        """Add the snapshots of archived offsets; a snapshot that the archive has must be equal."""
        known = {each.id: each for each in self.manifest.checkpoints}
        new = []
        damage = added.damage
        for id in source.checkpoints():
            outside = not added.start_offset <= id.offset <= added.end_offset
            if outside or id in source.known_checkpoints:
                continue
            epoch = self.manifest.epoch_at(id.offset - 1)
            if epoch not in {None, id.epoch}:
                raise ArchiveError(
                    f"snapshot {id} ends with a record of epoch {id.epoch} that is of epoch {epoch} in the log",
                    where=source.directory,
                    hint="Do not trust this directory: run `kraft dump --verify` on it.",
                )
            try:
                if id not in known:
                    new.append(copy_checkpoint(self.disk, source, self.directory, id))
                elif differs_from(self.disk, source, self.directory, known[id]):
                    raise ArchiveError(
                        f"snapshot {id} of the source holds other records than that of the archive",
                        where=source.directory,
                        hint="One of them is damaged, or they are of two clusters.",
                    )
                source.known_checkpoints.add(id)
            except FileNotFoundError:
                continue  # retention has removed the snapshot
            except DamagedFile as bad:
                damage = damage or bad.damage
        if new:
            every = sorted((*self.manifest.checkpoints, *new), key=lambda each: (each.end_offset, each.epoch))
            self.manifest = replace(self.manifest, checkpoints=tuple(every))
            write_manifest(self.disk, self.directory, self.manifest)
        return replace(added, checkpoints=tuple(each.id for each in new), damage=damage)

    # --------------------------------------------------------------------------------------------------- recovery

    def settle(self) -> None:
        """Restore the files of the manifest: truncate or remove the remains of an interrupted run.

        Raises `ArchiveError` for a missing file.
        """
        sizes = {each.file: each.size_bytes for each in self.manifest.files()}
        for name, size in sizes.items():
            self._settle_file(f"{self.directory}/{name}", size)
        folders = ["", *(f"{SUPERSEDED}/{name}/" for name in self._list(SUPERSEDED))]
        for folder in folders:
            for name in self._list(folder):
                ours = name.endswith(TMP) or parse_file_name(name) is not None or parse_snapshot_name(name) is not None
                if ours and f"{folder}{name}" not in sizes:
                    self.disk.remove(f"{self.directory}/{folder}{name}")
        self.disk.fsync_dir(self.directory)

    def _list(self, folder: str) -> list[str]:
        path = f"{self.directory}/{folder}".rstrip("/")
        return self.disk.list(path) if self.disk.exists(path) else []

    def _settle_file(self, path: str, size: int) -> None:
        try:
            file = self.disk.open(path)
        except FileNotFoundError as gone:
            raise ArchiveError(
                "a file of the archive is missing", where=path, hint="Restore it from a backup."
            ) from gone
        try:
            if file.size() < size:
                raise ArchiveError(
                    f"the file has {file.size()} bytes where the manifest says {size}",
                    where=path,
                    hint="Restore it from a backup.",
                )
            if file.size() > size:
                file.truncate(size)
                file.fsync()
        finally:
            file.close()


def _compare(ours: Iterator[RecordBatch], theirs: Iterator[Located]) -> _Meeting:
    """Walk through both logs up to their first difference."""
    shared: Located | None = None
    for batch in ours:
        located = next(theirs, None)
        if located is None or located[1].data != batch.data:
            return _Meeting(shared, batch, located, theirs)
        shared = located
    return _Meeting(shared, None, None, theirs)
