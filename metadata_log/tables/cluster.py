"""The tables of one cluster brought up to the present end of its log."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from metadata_log.disk import Disk
from metadata_log.errors import MetadataLogError
from metadata_log.history.engine import Options
from metadata_log.history.saved_values import SavedPassError
from metadata_log.reading.damage import OnDamage
from metadata_log.reading.place import Standing
from metadata_log.reading.timeline import Base, TimelineBatch
from metadata_log.tables.commit import ClusterTables, CommittedStep, TablesError
from metadata_log.tables.files import StepFiles
from metadata_log.tables.increment import BadItem, Checkpoint, Step, beginning, read_log, standing_checkpoint


class Gate(StrEnum):
    """What a run does where a log is damaged or has a gap."""

    FAIL = "fail"
    """The tables end in front of the damage, and the run fails."""
    WARN = "warn"
    """The tables go on behind the damage, and the run warns. Rows behind the damage are made again by each run."""
    SETTLE = "settle"
    """As WARN, and the damage is accepted for good: later runs do not look back."""


class Status(StrEnum):
    """What a run did with a cluster."""

    NEW = "new"
    """There were new records."""
    NOTHING = "nothing new"
    """The tables were up to date: no file was changed."""
    BEHIND = "behind"
    """The log ends before the tables, in the same epoch: it is another copy, or one that is still being copied."""
    FAILED = "failed"
    """Nothing could be done: `text` has the reason."""


class Job(Struct, frozen=True, kw_only=True):
    """What a run shall do with each cluster.

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

    @property
    def settings(self) -> dict[str, str]:
        """What shapes the rows besides the views."""
        return {"showSecrets": str(self.show_secrets).lower(), "sessionTimeoutMs": str(self.session_timeout_ms)}

    @property
    def options(self) -> Options:
        """The options of the history engine."""
        return Options(session_timeout_ms=self.session_timeout_ms, show_secrets=self.show_secrets)


class Outcome(Struct, frozen=True, kw_only=True):
    """What a run did with one cluster: a row of the table of runs.

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
    text: str | None = None


def materialize_cluster(log_disk: Disk, directory: str, cluster: str, disk: Disk, job: Job) -> Outcome:
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
    tables = ClusterTables(disk, job.root, cluster, job.views, job.settings, is_staged=job.is_staged)
    try:
        return _Run(log_disk, directory, tables, job).go()
    finally:
        tables.close()


class _Run:
    """One run over one cluster."""

    def __init__(self, log_disk: Disk, directory: str, tables: ClusterTables, job: Job) -> None:
        self._disk = log_disk
        self._directory = directory
        self._tables = tables
        self._job = job

    def go(self) -> Outcome:
        tables, head = self._tables, self._tables.head
        standing, kept, before = Standing.HOLDS, 0, Checkpoint()
        if not self._job.rebuild:
            standing, kept, before = self._standing()
        if standing is Standing.BEHIND:
            return self._outcome(Status.BEHIND)
        if head.steps and not kept:
            self._check_beginning()
        taken_back = len(head.steps) - kept
        first, steps, records, closed_rows = None, 0, 0, 0
        is_rebuilt = bool(head.steps) and not kept
        if kept and kept == len(head.steps) and head.steps[-1].damage is None and self._is_at_end(before):
            return self._outcome(Status.NOTHING)
        while True:
            step, committed = self._step(kept, before, is_forced=is_rebuilt and not steps)
            if committed is None:
                break
            first = committed.from_offset if first is None else first
            steps, records = steps + 1, records + committed.records
            closed_rows += committed.closed_rows
            kept, before = len(tables.head.steps), step.after
            if step.is_whole:
                break
        status = Status.NEW if steps else Status.NOTHING
        outcome = self._outcome(status)
        return Outcome(
            cluster=outcome.cluster,
            directory=outcome.directory,
            status=status,
            steps=steps,
            taken_back=taken_back if steps else 0,
            from_offset=first,
            to_offset=outcome.to_offset,
            records=records,
            closed_rows=closed_rows,
            open_rows=outcome.open_rows,
            damage=outcome.damage if steps else None if step.damage is None else str(step.damage),
        )

    def _standing(self) -> tuple[Standing, int, Checkpoint]:
        """The newest step with an end that the log still holds, and its checkpoint."""
        steps = self._tables.head.steps
        places = [Checkpoint(step.place) for step in steps]
        standing, kept, found = standing_checkpoint(self._disk, self._directory, places)
        if standing is Standing.BEHIND or not kept:
            return standing, kept, found
        return standing, kept, Checkpoint(found.place, self._tables.checkpoint(steps[kept - 1]).state)

    def _is_at_end(self, before: Checkpoint) -> bool:
        """Whether there is nothing behind a checkpoint, not even damage; then the checkpoint need not be read."""
        try:
            return next(read_log(self._disk, self._directory)(before.place, OnDamage.STRICT), None) is None
        except MetadataLogError:
            return False

    def _check_beginning(self) -> None:
        """Refuse to make tables again from a log that has lost its beginning: they would lose their past."""
        wanted, begins = self._tables.head.begins, None
        try:
            first = next(read_log(self._disk, self._directory)(None, OnDamage.STRICT), None)
        except MetadataLogError:
            first = None
        if isinstance(first, Base | TimelineBatch):
            begins = beginning(first)
        if begins is not None and begins <= wanted:
            return
        told = "the tables shall be made again" if self._job.rebuild else "the log was rewritten below all checkpoints"
        now = "has no beginning" if begins is None else f"begins at {begins}"
        raise TablesError(
            f"{told}, and the log {now}, not at {wanted}: the history before would be lost",
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
                views=job.views,
                options=job.options,
                on_damage=OnDamage.STRICT if job.gate is Gate.FAIL else OnDamage.SKIP,
                settle=job.gate is Gate.SETTLE,
                most_records=job.most_records,
                in_front_of=bad,
            )
            files = self._tables.begin(job.run, job.version)
            try:
                files.write(step.rows())
            except BadItem as met:
                self._tables.forget(files)
                bad = met
                continue
            except SavedPassError as other:
                self._tables.forget(files)
                raise TablesError(
                    f"{other.what}", where=self._tables.folder, hint="With --rebuild the tables are made again."
                ) from other
            except BaseException:
                self._tables.forget(files)
                raise
            return step, self._commit(kept, before, step, files, is_forced=is_forced)

    def _commit(
        self, kept: int, before: Checkpoint, step: Step, files: StepFiles, *, is_forced: bool
    ) -> CommittedStep | None:
        tables, head = self._tables, self._tables.head
        damage = None if step.damage is None else str(step.damage)
        last = head.steps[-1] if kept and kept == len(head.steps) and not is_forced else None
        now = (step.after.place, step.seen.offset, damage)
        if last is not None and now == (before.place, last.seen_offset, last.damage):
            tables.forget(files)
            return None
        done = files.finish()
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
            open=[file.path for file in done if file.is_open],
            closed_rows=sum(file.rows for file in done if not file.is_open),
            open_rows=sum(file.rows for file in done if file.is_open),
            damage=damage,
            kept=head.steps[kept - 1].number if kept else 0,
        )
        extra: Sequence[str] = ()
        if head.steps and not kept:
            extra = tables.all_files()
        assert step.after.state is not None
        tables.commit(kept, committed, step.after.state, done, begins=step.begins or 0, extra=extra)
        return committed

    def _outcome(self, status: Status) -> Outcome:
        head = self._tables.head
        last = head.steps[-1] if head.steps else None
        return Outcome(
            cluster=head.cluster,
            directory=self._directory,
            status=status,
            to_offset=None if last is None else last.seen_offset,
            open_rows=None if last is None else last.open_rows,
            damage=None if last is None else last.damage,
        )
