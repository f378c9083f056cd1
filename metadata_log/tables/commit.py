"""How a step becomes visible: `_kraft/CLUSTER/head.json` below the tables names what is committed.

A step first writes its files under hidden names, and its checkpoint. Then it replaces the head by a rename: from there
on the step is committed. At last the files get their names, and the files that the step replaces are removed. The head
lists both, so the next run repeats what a crash has interrupted, and removes what an uncommitted step has left
(decision 0062).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from metadata_log.disk import Disk, Lock, make_directory, read_whole, replace_file
from metadata_log.errors import MetadataLogError
from metadata_log.history.unread import Unread
from metadata_log.reading.place import Place
from metadata_log.tables.files import DataFile, StepFiles, partition_value, step_of, table_schema
from metadata_log.tables.increment import Checkpoint

T = TypeVar("T")
FORMAT: Final = 1
HEAD: Final = "head.json"
_JOURNAL: Final = "journal"
_LOCK: Final = "lock"
STAGING: Final = "_staging"
"""The folder in the directory of a run with the files that are published into a lake."""
FOLDER: Final = "_kraft"
KEPT_STEPS: Final = 8
"""The steps that can be taken back when a log was rewritten; each has a checkpoint on disk."""


class CommittedStep(Struct, frozen=True, kw_only=True):
    """One committed step of a cluster.

    Args:
        number: Its number, from 1 up; steps that were taken back keep their numbers to themselves.
        run: The id of the run.
        version: The version of this software.
        directory: The log that was read.
        from_offset: The first offset that was read.
        place: The last batch that was read.
        seen_offset: The end of what the open rows know.
        records: The records that were read.
        sources: The files that were read.
        closed: The paths of its closed rows' files.
        open: The paths of its open rows' files. A file that would have the rows of an earlier step's is that file.
        closed_rows: How many closed rows there are.
        open_rows: How many open rows there are.
        damage: What the step stopped in front of; None if the log was sound.
        kept: The number of the step before it; steps between the two were taken back.
        unread: The records of a later release, from the beginning of the history on.
        closing: Why nothing more can be known of the log; the step has ended all rows that were open.
        hashes: The hashes of the rows of these files, by path.
    """

    number: int
    run: str
    version: str
    directory: str
    from_offset: int
    place: Place | None
    seen_offset: int
    records: int
    sources: list[str]
    closed: list[str]
    open: list[str]
    closed_rows: int
    open_rows: int
    damage: str | None = None
    kept: int = 0
    unread: list[Unread] = []
    closing: str | None = None
    hashes: dict[str, str] = {}


class Head(Struct, frozen=True, kw_only=True):
    """The commits of a cluster: the latest steps, oldest first, and the work after the commit of the last one."""

    cluster: str
    views: list[str]
    settings: dict[str, str]
    next_number: int = 1
    begins: int = 0
    """The offset with which the history begins: 0, or the end of the snapshot at which the log began."""
    steps: list[CommittedStep] = []
    publish: list[tuple[str, str]] = []
    """The hidden and the final paths of the last step's files."""
    remove: list[str] = []
    """Files that the last step has replaced."""
    columns: str = ""
    """The fingerprint of the columns that all files have."""
    origin: Place | None = None
    """The place after the first item of the log: two logs with the same place of origin are copies of one."""
    floor: int = 0
    """The last step of a former log of this cluster; its rows and those before stay as they are."""
    closed: str | None = None
    """Why no more rows are expected, until the log is found again."""
    followed_by: str | None = None
    """The cluster whose log was found in the directory of this one."""
    format: int = FORMAT

    @property
    def own(self) -> slice:
        """The steps of the present log."""
        begin = sum(step.number <= self.floor for step in self.steps)
        end = len(self.steps)
        while end > begin and self.steps[end - 1].closing is not None:
            end -= 1
        return slice(begin, end)


class KnownCluster(Struct, frozen=True, kw_only=True):
    """The part of a cluster's head that every run must know, once the cluster has tables."""

    class Step(Struct, frozen=True):
        """The directory of a step."""

        directory: str

    cluster: str
    views: list[str]
    columns: str = ""
    closed: str | None = None
    followed_by: str | None = None
    steps: list[Step] = []

    @property
    def directory(self) -> str | None:
        """The directory of the last step."""
        return self.steps[-1].directory if self.steps else None


def known_clusters(disk: Disk, root: str) -> list[KnownCluster]:
    """The clusters that have tables below a directory."""
    folder = f"{root}/{FOLDER}"
    clusters = []
    for name in disk.list(folder) if disk.exists(folder) else ():
        path = f"{folder}/{name}/{HEAD}"
        if disk.exists(path):
            clusters.append(_decoded(read_whole(disk, path), KnownCluster, path))
    return clusters


def columns_of(views: Iterable[str]) -> str:
    """A fingerprint of the columns of some tables."""
    return _fingerprint(tuple(sorted(views)))


@cache
def _fingerprint(views: tuple[str, ...]) -> str:
    told = [(view, *((field.name, str(field.type)) for field in table_schema(view))) for view in views]
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


class TablesError(MetadataLogError):
    """The tables cannot be continued."""


class TablesBusy(TablesError):
    """Another run has the tables open."""


class ClusterTables:
    """The tables of one cluster, locked until `close`. Opening them finishes what a crash has interrupted.

    Args:
        disk: The disk of the tables.
        root: The directory of the tables.
        cluster: The cluster.
        views: The views to be materialised, besides those that the tables have.
        settings: What shapes the rows besides the views.
        is_rebuilt: Whether the tables are made again, with these views only.
        is_staged: Whether the files wait for a table format: the head then keeps each step until `published`.

    Raises:
        TablesError: Another run has them open, or they were made with other settings.
    """

    def __init__(
        self,
        disk: Disk,
        root: str,
        cluster: str,
        views: Sequence[str],
        settings: dict[str, str],
        *,
        is_rebuilt: bool = False,
        is_staged: bool = False,
    ) -> None:
        self._disk = disk
        self._is_staged = is_staged
        self.root = root
        self.folder = f"{root}/{FOLDER}/{partition_value(cluster)}"
        make_directory(disk, self.folder)
        self._lock = self._locked(cluster)
        try:
            self.head = self._read_head(cluster, settings)
            self.views = sorted(views if is_rebuilt else {*views, *self.head.views})
            self._finish()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the tables."""
        self._lock.release()

    def checkpoint(self, step: CommittedStep) -> Checkpoint:
        """Where the step after this one begins; raises `TablesError` for a damaged file."""
        path = f"{self.folder}/{_state_name(step.number)}"
        try:
            return Checkpoint(step.place, zlib.decompress(read_whole(self._disk, path)))
        except (OSError, zlib.error) as bad:
            raise TablesError(f"the checkpoint of step {step.number} cannot be read: {bad}", where=path) from bad

    def begin(self, run: str, version: str, *, goes_on: bool = False) -> StepFiles:
        """The files of a new step; with `goes_on` it follows the last one, and open files with the same rows stay.

        Files that wait for a table format stay only if all open ones of their view do, as the open rows of a view are
        replaced as a whole there, and only those of this version, as the rows of another one may lack a column.
        """
        head = self.head
        may_stay = goes_on and (not self._is_staged or head.steps[-1].version == version)
        return StepFiles(
            self._disk,
            self.root,
            head.cluster,
            head.next_number,
            run=run,
            version=version,
            on_file=self.note,
            before=head.steps[-1].hashes if may_stay else {},
            whole_views=self._is_staged,
        )

    def forget(self, files: StepFiles) -> None:
        """Remove the files of a step that is not committed."""
        files.discard()
        if self._disk.exists(f"{self.folder}/{_JOURNAL}"):
            self._disk.remove(f"{self.folder}/{_JOURNAL}")

    def commit(
        self,
        kept: int,
        step: CommittedStep,
        state: bytes,
        files: Sequence[DataFile],
        *,
        begins: int | None = None,
        origin: Place | None = None,
        extra: Sequence[str] = (),
    ) -> None:
        """Replace the steps after the first `kept` ones by a new step.

        Args:
            kept: How many of the head's steps stay.
            step: The new step; its files are complete under their hidden names.
            state: The pass after the step.
            files: The files of the step.
            begins: The offset with which the history begins; None if it stays.
            origin: The place after the first item of the log; None if it stays.
            extra: Further files that the step replaces, as paths below the root.
        """
        replace_file(self._disk, self.folder, _state_name(step.number), zlib.compress(state, 1))
        head = self._with_step(kept, step, files, extra)
        self._replace(
            replace(
                head,
                views=self.views,
                columns=columns_of(self.views),
                begins=head.begins if begins is None else begins,
                origin=origin or head.origin,
                closed=None,
                followed_by=None,
            )
        )

    def close_log(
        self,
        kept: int,
        step: CommittedStep,
        files: Sequence[DataFile],
        *,
        followed_by: str | None = None,
        goes_on: bool = False,
    ) -> None:
        """Commit a step that ends all open rows, as nothing more can be known of the log.

        Args:
            kept: How many of the head's steps stay.
            step: The step; its `closing` has the reason.
            files: The files of the step.
            followed_by: The cluster whose log is in the directory now.
            goes_on: Whether another log of the same cluster follows: the rows so far stay as they are from now on.
        """
        head = self._with_step(kept, step, files, ())
        if goes_on:
            head = replace(head, floor=step.number, origin=None, begins=0)
        else:
            head = replace(head, closed=step.closing, followed_by=followed_by)
        self._replace(head)

    def _with_step(self, kept: int, step: CommittedStep, files: Sequence[DataFile], extra: Sequence[str]) -> Head:
        head = self.head
        last = head.steps[-1:]
        taken_back = [path for one in head.steps[kept:] for path in one.closed]
        replaced = [path for one in last for path in one.open if path not in step.open]
        steps = [*head.steps[:kept], step]
        return replace(
            head,
            next_number=step.number + 1,
            steps=steps if self._is_staged else steps[-KEPT_STEPS:],
            publish=[(file.staged, file.path) for file in files],
            remove=sorted({*replaced, *taken_back, *extra}),
        )

    def _replace(self, head: Head) -> None:
        replace_file(self._disk, self.folder, HEAD, msgspec.json.encode(head))
        self.head = head
        self._finish()

    def published(self, number: int) -> None:
        """Remove the files of all steps up to a number, which a table format has taken over.

        Args:
            number: The number.
        """
        head = self.head
        taken = [step for step in head.steps if step.number <= number]
        self._replace(
            replace(
                head,
                steps=[*taken[-KEPT_STEPS:], *head.steps[len(taken) :]],
                publish=[],
                remove=sorted({path for step in taken for path in (*step.closed, *step.open)}),
            )
        )

    def note(self, staged: str) -> None:
        """Note a file of an uncommitted step before it is made, so that the next run can remove it."""
        path = f"{self.folder}/{_JOURNAL}"
        is_new = not self._disk.exists(path)
        file = self._disk.open(path, create=True)
        try:
            file.append(f"{staged}\n".encode())
            file.fsync()
        finally:
            file.close()
        if is_new:
            self._disk.fsync_dir(self.folder)

    def replace_files(self, files: Sequence[DataFile], old: Sequence[str]) -> None:
        """Replace files by others with the same rows, which are complete under their hidden names; no step changes.

        Args:
            files: The new files.
            old: The files to be replaced, as paths below the root; no step of the head has them.
        """
        head = self.head
        publish = [(file.staged, file.path) for file in files]
        self._replace(replace(head, next_number=head.next_number + 1, publish=publish, remove=sorted(old)))

    def rewritten(self, files: Sequence[DataFile]) -> None:
        """Replace files by others of the same names, which have the columns of this version."""
        publish = [(file.staged, file.path) for file in files]
        self._replace(replace(self.head, columns=columns_of(self.head.views), publish=publish, remove=[]))

    def all_files(self) -> list[str]:
        """The paths of all files of the cluster's tables, found by listing directories, oldest steps first."""
        files = []
        name = f"cluster={partition_value(self.head.cluster)}"
        for view in self.head.views:
            folder = f"{view}/{name}"
            for date in self._names(f"{self.root}/{folder}"):
                inner = f"{folder}/{date}"
                files += [f"{inner}/{each}" for each in self._names(f"{self.root}/{inner}") if not each.startswith(".")]
        return sorted(files, key=step_of)

    # ------------------------------------------------------------------------------------------------- after a commit

    def _finish(self) -> None:
        """Give the committed files their names, remove replaced and abandoned ones. Repeating this changes nothing.

        The journal goes last. While it is there, names that a killed run has changed may not be on disk.
        """
        disk, head = self._disk, self.head
        folders = set()
        abandoned = self._journal()
        for staged, path in head.publish:
            is_new = disk.exists(f"{self.root}/{staged}")
            if is_new:
                disk.rename(f"{self.root}/{staged}", f"{self.root}/{path}")
            if is_new or abandoned:
                folders.add(path.rpartition("/")[0])
        for path in [*head.remove, *(path for path in abandoned if path not in dict(head.publish))]:
            if disk.exists(f"{self.root}/{path}"):
                disk.remove(f"{self.root}/{path}")
                folders.add(path.rpartition("/")[0])
        for folder in sorted(folders):
            disk.fsync_dir(f"{self.root}/{folder}")
        wanted = {_state_name(step.number) for step in head.steps}
        left = [
            name
            for name in disk.list(self.folder)
            if name == _JOURNAL or (name.startswith("state-") and name not in wanted)
        ]
        for name in left:
            disk.remove(f"{self.folder}/{name}")
        if left:
            disk.fsync_dir(self.folder)

    def _journal(self) -> list[str]:
        """The noted files. A power failure may have cut the last line, of a file that was not made yet."""
        path = f"{self.folder}/{_JOURNAL}"
        if not self._disk.exists(path):
            return []
        return self._disk.read(path).decode().split("\n")[:-1]

    def _names(self, path: str) -> list[str]:
        return self._disk.list(path) if self._disk.exists(path) else []

    # ------------------------------------------------------------------------------------------------------- opening

    def _locked(self, cluster: str) -> Lock:
        path = f"{self.folder}/{_LOCK}"
        try:
            return self._disk.lock(path)
        except BlockingIOError as busy:
            hint = "Wait for that run to end."
            raise TablesBusy(f"another run writes the tables of cluster {cluster}", where=path, hint=hint) from busy

    def _read_head(self, cluster: str, settings: dict[str, str]) -> Head:
        path = f"{self.folder}/{HEAD}"
        if not self._disk.exists(path):
            return Head(cluster=cluster, views=[], settings=settings)
        head = _decoded(read_whole(self._disk, path), Head, path)
        if head.format != FORMAT:
            raise TablesError(f"the tables are of format {head.format}, and this version writes {FORMAT}", where=path)
        if head.settings != settings:
            others = [f"{name}={value}" for name, value in head.settings.items() if settings.get(name) != value]
            raise TablesError(
                f"the tables were made with {' and '.join(others) or 'other settings'}",
                where=path,
                hint="Name the same settings, or another directory for the tables.",
            )
        return replace(head, cluster=cluster)


def _decoded(content: bytes, kind: type[T], path: str) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as bad:
        raise TablesError(f"the head of the tables cannot be read: {bad}", where=path) from bad


def _state_name(number: int) -> str:
    return f"state-{number:08d}"
