"""The tables of one cluster brought up to the present end of its log."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from metadata_log.disk import Disk
from metadata_log.errors import MetadataLogError
from metadata_log.history.engine import Options
from metadata_log.history.saved_values import SavedPassError
from metadata_log.history.unread import Unread
from metadata_log.log.segment import file_name
from metadata_log.reading.damage import Damage, OnDamage
from metadata_log.reading.missing import segments_in
from metadata_log.reading.place import Place, Standing, find_place
from metadata_log.reading.reader import read_file
from metadata_log.reading.timeline import Base, TimelineBatch, place_of
from metadata_log.tables.columns import bring_columns
from metadata_log.tables.commit import ClusterTables, CommittedStep, TablesError
from metadata_log.tables.files import StepFiles, step_of
from metadata_log.tables.increment import (
    BadItem,
    Checkpoint,
    Step,
    beginning,
    closing_rows,
    read_log,
    standing_checkpoint,
)


class Gate(StrEnum):
    """How a run treats a log that is damaged or has a gap."""

    FAIL = "fail"
    """The tables end in front of the damage, and the run fails."""
    WARN = "warn"
    """The tables go on after the damage, and the run warns. Rows after the damage are made again by each run."""
    SETTLE = "settle"
    """As WARN, and the damage is accepted for good: later runs do not look back."""


class Status(StrEnum):
    """The outcome of a run for a cluster, in one word."""

    NEW = "new"
    """There were new records."""
    NOTHING = "nothing new"
    """The tables were up to date: no file was changed."""
    BEHIND = "behind"
    """The log ends before the tables, in the same epoch: it is another copy, or one that is still being copied."""
    STOPPED = "stopped"
    """The log is not the one that the tables know, and the gate stops: no file was changed."""
    CLOSED = "closed"
    """The log of the cluster is gone: all open rows have ended."""
    FAILED = "failed"
    """Nothing could be done: `text` has the reason."""


class Identity(StrEnum):
    """The kind of a change to the log that the tables know, other than growth."""

    NEW_ID = "new id"
    """The directory of one cluster has the log of another one."""
    ANOTHER_LOG = "another log"
    """The log has the same cluster id and other records from its beginning on, or its beginning cannot be compared."""
    TRIMMED = "trimmed"
    """The log has lost its end, or records that the tables lack."""
    RESTORED = "restored"
    """The log has other records from some offset on, in no later epoch: no leader writes that."""


class Change(Struct, frozen=True):
    """A change of identity."""

    kind: Identity
    text: str


class Job(Struct, frozen=True, kw_only=True):
    """The options of a run, for every cluster.

    Args:
        root: The directory of the tables.
        run: The id of the run.
        version: The version of this software.
        views: The views.
        gate: The reaction to damage.
        show_secrets: Whether values of secret configurations are shown.
        session_timeout_ms: The brokers' broker.session.timeout.ms in ms; None if unknown.
        most_records: About how many records one step reads before it commits.
        rebuild: Whether the tables are made again from the beginning of the log.
        is_staged: Whether the files wait for a table format, which takes them over after the run.
        follows: By cluster the one whose directory has its log now.
    """

    root: str
    run: str
    version: str
    views: tuple[str, ...]
    gate: Gate = Gate.FAIL
    show_secrets: bool = False
    session_timeout_ms: int | None = None
    most_records: int = 5_000_000
    rebuild: bool = False
    is_staged: bool = False
    follows: dict[str, str] = {}

    @property
    def settings(self) -> dict[str, str]:
        """The settings, besides the views, that change the rows."""
        return {"showSecrets": str(self.show_secrets).lower(), "sessionTimeoutMs": str(self.session_timeout_ms)}

    @property
    def options(self) -> Options:
        """The options of the history engine."""
        return Options(session_timeout_ms=self.session_timeout_ms, show_secrets=self.show_secrets)


class ClusterOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a run for one cluster: a row of the table of runs.

    Args:
        cluster: The cluster.
        directory: Its log.
        status: What was done.
        steps: The number of committed steps.
        taken_back: The number of steps that were taken back, as the log was rewritten.
        from_offset: The first offset that was read.
        to_offset: The offset that follows the last record in the tables.
        records: The records that were read.
        closed_rows: The closed rows that were added.
        open_rows: The open rows now.
        damage: The damage or gap of the log, if there is any.
        unread: The records of a later release that the tables could not take, from the beginning of the history on.
        change: The change of identity, if there is any.
        added: The views that were added to the tables.
        text: The reason of a failure.
    """

    cluster: str
    directory: str
    status: Status
    steps: int = 0
    taken_back: int = 0
    from_offset: int | None = None
    to_offset: int | None = None
    records: int = 0
    closed_rows: int = 0
    open_rows: int | None = None
    damage: str | None = None
    unread: list[Unread] = []
    change: Change | None = None
    added: list[str] = []
    text: str | None = None

    @property
    def doubts(self) -> list[str]:
        """The findings that the gate judges, as sentences: damage, a change of identity, and records of a later
        release.
        """
        texts = [] if self.damage is None else [self.damage]
        texts += [] if self.change is None else [f"{self.change.kind}: {self.change.text}"]
        return [*texts, *map(str, self.unread)]


def materialize_cluster(log_disk: Disk, directory: str, cluster: str, disk: Disk, job: Job) -> ClusterOutcome:
    """Bring the tables of a cluster up to date.

    Args:
        log_disk: The disk of the log.
        directory: The partition directory.
        cluster: The cluster.
        disk: The disk of the tables.
        job: What to do.

    Returns:
        What was done.

    Raises:
        TablesError: The tables cannot be continued.
        OSError: A file cannot be read or written.
    """
    with closing(_opened(disk, cluster, job)) as tables:
        return _Run(log_disk, directory, tables, disk, job).go()


def close_cluster(cluster: str, disk: Disk, job: Job, followed_by: str) -> ClusterOutcome:
    """End all open rows of a cluster whose log is gone: its directory has the log of another cluster.

    Args:
        cluster: The cluster.
        disk: The disk of the tables.
        job: What to do.
        followed_by: The other cluster.

    Returns:
        What was done.

    Raises:
        TablesError: The tables cannot be continued.
        OSError: A file cannot be read or written.
    """
    with closing(_opened(disk, cluster, job)) as tables:
        last = tables.head.steps[-1]
        reason = f"its directory {last.directory} has the log of cluster {followed_by} since run {job.run}"
        step = _close(tables, job, reason, followed_by=followed_by)
        return ClusterOutcome(
            cluster=cluster,
            directory=last.directory,
            status=Status.CLOSED,
            steps=1,
            to_offset=step.seen_offset,
            closed_rows=step.closed_rows,
            open_rows=0,
            change=Change(Identity.NEW_ID, reason),
        )


def rewrite_columns(cluster: str, disk: Disk, job: Job) -> None:
    """Give all files of a cluster the columns of this version; raises `TablesError` and `OSError`."""
    with closing(_opened(disk, cluster, job)) as tables:
        bring_columns(disk, tables)


def _opened(disk: Disk, cluster: str, job: Job) -> ClusterTables:
    rebuilt, staged = job.rebuild, job.is_staged
    return ClusterTables(disk, job.root, cluster, job.views, job.settings, is_rebuilt=rebuilt, is_staged=staged)


def _close(
    tables: ClusterTables, job: Job, reason: str, *, followed_by: str | None = None, goes_on: bool = False
) -> CommittedStep:
    """Commit a step that ends all open rows."""
    head = tables.head
    kept = head.own.stop
    last = head.steps[kept - 1]
    rows = closing_rows(
        tables.checkpoint(last), cluster=head.cluster, options=job.options, where=last.directory, reason=reason
    )
    files = tables.begin(job.run, job.version)
    try:
        files.write(rows)
        done = files.finish()
    except BaseException:
        tables.forget(files)
        raise
    step = CommittedStep(
        number=head.next_number,
        run=job.run,
        version=job.version,
        directory=last.directory,
        from_offset=last.seen_offset,
        place=last.place,
        seen_offset=last.seen_offset,
        records=0,
        sources=[],
        closed=[file.path for file in done],
        open=[],
        closed_rows=sum(file.rows for file in done),
        open_rows=0,
        kept=last.number,
        unread=last.unread,
        closing=reason,
    )
    tables.close_log(kept, step, done, followed_by=followed_by, goes_on=goes_on)
    return step


class _Found(Struct, frozen=True):
    """The part of the tables that the log still confirms: how many steps stay, and where the log is read on."""

    standing: Standing
    kept: int
    before: Checkpoint
    change: Change | None = None


class _Run:
    """One run over one cluster."""

    def __init__(self, log_disk: Disk, directory: str, tables: ClusterTables, tables_disk: Disk, job: Job) -> None:
        self._disk = log_disk
        self._tables_disk = tables_disk
        self._directory = directory
        self._tables = tables
        self._job = job

    def go(self) -> ClusterOutcome:
        tables, job = self._tables, self._job
        if not job.is_staged:
            bring_columns(self._tables_disk, tables)
        found = self._found()
        change = found.change or self._new_id()
        if change is not None and job.gate is Gate.FAIL:
            return self._outcome(Status.STOPPED, change)
        if found.standing is Standing.BEHIND:
            return self._outcome(Status.BEHIND)
        kept, before = found.kept, found.before
        if change is not None and change.kind is Identity.ANOTHER_LOG:
            _close(tables, job, change.text, goes_on=True)
            kept, before = tables.head.own.start, Checkpoint()
        begin, steps = tables.head.own.start, tables.head.steps
        taken_back = len(steps) - kept
        added = sorted(set(tables.views) - set(tables.head.views)) if kept > begin else []
        is_whole = kept > begin and kept == len(steps) and not added
        if is_whole and steps[-1].damage is None and self._is_at_end(before):
            return self._outcome(Status.NOTHING, change)
        return self._read_on(kept, before, change, taken_back, added)

    def _read_on(
        self, kept: int, before: Checkpoint, change: Change | None, taken_back: int, added: list[str]
    ) -> ClusterOutcome:
        """Commit steps up to the end of the log."""
        tables = self._tables
        first, steps, records, closed_rows = None, 0, 0, 0
        begin = tables.head.own.start
        is_forced = bool(added) or (len(tables.head.steps) > begin and kept == begin)
        while True:
            try:
                step, committed = self._step(kept, before, is_forced=is_forced and not steps)
            except SavedPassError as other:
                # Of another version: the log itself tells it all again, if it still has its beginning.
                if steps or kept == begin or not self._has_beginning():
                    hint = "With --rebuild the tables are made again."
                    raise TablesError(other.what, where=tables.folder, hint=hint) from other
                kept, before, is_forced, taken_back = begin, Checkpoint(), True, len(tables.head.steps) - begin
                continue
            if committed is None:
                break
            first = committed.from_offset if first is None else first
            steps, records = steps + 1, records + committed.records
            closed_rows += committed.closed_rows
            kept, before = len(tables.head.steps), step.after
            if step.is_whole:
                break
        if step.damage is not None and change is None:
            change = self._cut(before)
        outcome = self._outcome(Status.NEW if steps else Status.NOTHING, change)
        return replace(
            outcome,
            steps=steps,
            taken_back=taken_back if steps else 0,
            from_offset=first,
            records=records,
            closed_rows=closed_rows,
            damage=outcome.damage if steps else None if step.damage is None else str(step.damage),
            added=added,
        )

    # ------------------------------------------------------------------------------------------- what the log is now

    def _found(self) -> _Found:
        """The newest step with an end that the log still holds, and what has happened to the log otherwise."""
        tables, job = self._tables, self._job
        begin = tables.head.own.start
        own = tables.head.steps[tables.head.own]
        fresh = _Found(Standing.HOLDS, begin, Checkpoint())
        if not own:
            return fresh
        if job.rebuild:
            if self._is_another():
                return replace(fresh, change=self._another())
            self._check_beginning()
            return fresh
        places = [Checkpoint(step.place) for step in own]
        standing, count, before = standing_checkpoint(self._disk, self._directory, places)
        change: Change | None = None
        if standing is Standing.BEHIND:
            change = self._shortened(own)
            if change is None:
                return _Found(standing, begin, Checkpoint())
            while standing is Standing.BEHIND and places:
                places.pop()
                standing, count, before = standing_checkpoint(self._disk, self._directory, places)
        elif count < len(own):
            change = self._rewritten(own[-1], count)
        if count and self._can_complete(own[count - 1]):
            count = 0
        if not count:
            if change is None and not self._has_beginning():
                change = self._another()
            return replace(fresh, change=change)
        state = tables.checkpoint(own[count - 1]).state
        return _Found(Standing.HOLDS, begin + count, Checkpoint(before.place, state), change)

    def _new_id(self) -> Change | None:
        """The change of a directory that had the log of another cluster."""
        cluster = self._tables.head.cluster
        follows = self._job.follows.get(cluster)
        if follows is None:
            return None
        return Change(Identity.NEW_ID, f"the directory had the log of cluster {follows}, and has that of {cluster}")

    def _shortened(self, own: Sequence[CommittedStep]) -> Change | None:
        """Explain a log that ends before the tables; None for another copy, or one in the making."""
        if self._is_another():
            return self._another()
        end = own[-1].seen_offset
        for step in own[:-1]:
            if step.place is not None and find_place(self._disk, self._directory, step.place)[0] is Standing.REWRITTEN:
                text = f"the log has other records below offset {step.place.offset}, and ends before the tables ({end})"
                return Change(Identity.RESTORED, text)
        if own[-1].directory == self._directory and self._ends_with_a_batch():
            text = f"the log ends before offset {end}, where it ended when it was read last: it has lost its end"
            return Change(Identity.TRIMMED, text)
        return None

    def _rewritten(self, last: CommittedStep, count: int) -> Change | None:
        """Explain a log with other records than the tables; None if a later leader has written them."""
        assert last.place is not None
        if not count and (self._is_another() or not self._has_beginning()):
            return self._another()
        _, now = find_place(self._disk, self._directory, last.place)
        if now.epoch > last.place.epoch:
            return None
        text = f"the log has other records at offset {last.place.offset} in epoch {now.epoch}, which is no later one"
        return Change(Identity.RESTORED, text)

    def _cut(self, before: Checkpoint) -> Change | None:
        """Whether damage after a place is a log that begins after the place now."""
        segments = segments_in(self._disk, self._directory)
        if before.place is None or not segments or segments[0] <= before.place.offset:
            return None
        text = f"the log begins at offset {segments[0]} now, and the tables end at {before.place.offset}"
        return Change(Identity.TRIMMED, text)

    def _is_another(self) -> bool:
        """Whether the log begins where it began, with something else."""
        origin, first = self._tables.head.origin, self._first()
        if origin is None or first is None or beginning(first) != self._tables.head.begins:
            return False
        now = place_of(first)
        return (now.offset, now.epoch, now.crc) != (origin.offset, origin.epoch, origin.crc)

    def _another(self) -> Change:
        wanted, begins = self._tables.head.begins, self._begins()
        if begins is not None and begins <= wanted:
            text = f"the log has the id of cluster {self._tables.head.cluster}, and other records from its beginning on"
            return Change(Identity.ANOTHER_LOG, text)
        now = "has no beginning" if begins is None else f"begins at {begins}"
        text = f"the log was rewritten below all checkpoints, and the log {now}, not at {wanted}"
        return Change(Identity.ANOTHER_LOG, text)

    def _ends_with_a_batch(self) -> bool:
        """Whether the last segment ends with a whole batch: no copy stopped inside one."""
        segments = segments_in(self._disk, self._directory)
        if not segments:
            return False
        path = f"{self._directory}/{file_name(segments[-1])}"
        return not any(isinstance(item, Damage) for item in read_file(self._disk, path, on_damage=OnDamage.SKIP))

    def _is_at_end(self, before: Checkpoint) -> bool:
        """Whether there is nothing after a checkpoint, not even damage; then the checkpoint need not be read."""
        try:
            return next(read_log(self._disk, self._directory)(before.place, OnDamage.STRICT), None) is None
        except MetadataLogError:
            return False

    def _can_complete(self, step: CommittedStep) -> bool:
        """Whether this version reads records that the tables lack, and the log still has its beginning."""
        if step.version == self._job.version or not any(one.is_known_now for one in step.unread):
            return False
        return self._has_beginning()

    def _has_beginning(self) -> bool:
        """Whether the log still has all that the tables were made of."""
        begins = self._begins()
        return begins is not None and begins <= self._tables.head.begins

    def _begins(self) -> int | None:
        """The offset with which the log begins; None if it has no beginning."""
        first = self._first()
        return None if first is None else beginning(first)

    def _first(self) -> Base | TimelineBatch | None:
        try:
            first = next(read_log(self._disk, self._directory)(None, OnDamage.STRICT), None)
        except MetadataLogError:
            return None
        return first if isinstance(first, Base | TimelineBatch) else None

    def _check_beginning(self) -> None:
        """Refuse to make tables again from a log that has lost its beginning: they would lose their past."""
        if self._has_beginning():
            return
        begins = self._begins()
        now = "has no beginning" if begins is None else f"begins at {begins}"
        raise TablesError(
            f"the tables shall be made again, and the log {now}, not at {self._tables.head.begins}: the history before"
            " would be lost",
            where=self._directory,
            hint="Give an archive with the whole log, or another directory for new tables.",
        )

    def _step(self, kept: int, before: Checkpoint, *, is_forced: bool) -> tuple[Step, CommittedStep | None]:
        """Read and commit one step; None if there is nothing new."""
        bad: BadItem | None = None
        while True:
            job = self._job
            step = Step(
                read_log(self._disk, self._directory),
                before,
                cluster=self._tables.head.cluster,
                views=self._tables.views,
                options=job.options,
                on_damage=OnDamage.STRICT if job.gate is Gate.FAIL else OnDamage.SKIP,
                settle=job.gate is Gate.SETTLE,
                most_records=job.most_records,
                in_front_of=bad,
            )
            goes_on = self._goes_on(kept, is_forced=is_forced)
            files = self._tables.begin(job.run, job.version, goes_on=goes_on)
            try:
                files.write(step.rows())
            except BadItem as met:
                self._tables.forget(files)
                bad = met
                continue
            except BaseException:
                self._tables.forget(files)
                raise
            return step, self._commit(kept, before, step, files, is_forced=is_forced)

    def _goes_on(self, kept: int, *, is_forced: bool) -> bool:
        """Whether a step follows the last one of the present log, and takes nothing back."""
        head = self._tables.head
        return head.own.start < kept == len(head.steps) and not is_forced

    def _commit(
        self, kept: int, before: Checkpoint, step: Step, files: StepFiles, *, is_forced: bool
    ) -> CommittedStep | None:
        tables, head = self._tables, self._tables.head
        begin = head.own.start
        damage = None if step.damage is None else str(step.damage)
        last = head.steps[-1] if self._goes_on(kept, is_forced=is_forced) else None
        now = (step.after.place, step.seen.offset, damage)
        if last is not None and now == (before.place, last.seen_offset, last.damage):
            tables.forget(files)
            return None
        done = files.finish()
        now_open = [*(file for file in done if file.is_open), *files.same]
        committed = CommittedStep(
            number=head.next_number,
            run=self._job.run,
            version=self._job.version,
            directory=self._directory,
            from_offset=0 if before.place is None else before.place.offset,
            place=step.after.place,
            seen_offset=step.seen.offset,
            records=step.records,
            sources=list(step.files),
            closed=[file.path for file in done if not file.is_open],
            open=[file.path for file in now_open],
            closed_rows=sum(file.rows for file in done if not file.is_open),
            open_rows=sum(file.rows for file in now_open),
            damage=damage,
            unread=step.unread,
            kept=head.steps[kept - 1].number if kept else head.floor,
            hashes={file.path: file.digest for file in now_open},
        )
        is_first = kept == begin
        extra: Sequence[str] = ()
        if is_first and len(head.steps) > begin:
            extra = [path for path in tables.all_files() if step_of(path) > head.floor]
        assert step.after.state is not None
        begins = (step.begins or 0) if is_first else None
        origin = step.origin if is_first else None if head.origin else self._origin()
        tables.commit(kept, committed, step.after.state, done, begins=begins, origin=origin, extra=extra)
        return committed

    def _origin(self) -> Place | None:
        """The place of origin of tables that an earlier version made, while the log still has it."""
        first = self._first()
        return place_of(first) if first is not None and beginning(first) == self._tables.head.begins else None

    def _outcome(self, status: Status, change: Change | None = None) -> ClusterOutcome:
        head = self._tables.head
        last = head.steps[-1] if head.steps else None
        return ClusterOutcome(
            cluster=head.cluster,
            directory=self._directory,
            status=status,
            to_offset=None if last is None else last.seen_offset,
            open_rows=None if last is None else last.open_rows,
            damage=None if last is None else last.damage,
            unread=[] if last is None else last.unread,
            change=change,
        )
