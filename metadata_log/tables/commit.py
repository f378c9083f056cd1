"""How a step becomes visible: `_kraft/CLUSTER/head.json` below the tables names what is committed.

A step first writes its files under hidden names, and its checkpoint. Then it replaces the head by a rename: from there
on the step is committed. At last the files get their names, and the files that the step replaces are removed. The head
lists both, so the next run repeats what a crash has interrupted, and removes what an uncommitted step has left
(decision 0065).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from metadata_log.disk import Disk, Lock, make_directory, read_whole, replace_file
from metadata_log.errors import MetadataLogError
from metadata_log.reading.place import Place
from metadata_log.tables.files import DataFile, StepFiles, partition_value
from metadata_log.tables.increment import Checkpoint

FORMAT: Final = 1
HEAD: Final = "head.json"
_JOURNAL: Final = "journal"
_LOCK: Final = "lock"
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
        open: The paths of its open rows' files.
        closed_rows: How many closed rows there are.
        open_rows: How many open rows there are.
        damage: What the step stopped in front of; None if the log was sound.
        kept: The number of the step before it; steps between the two were taken back.
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


class Head(Struct, frozen=True, kw_only=True):
    """What is committed of a cluster: the latest steps, oldest first, and the work after the commit of the last one."""

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
    format: int = FORMAT


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
        views: The views to be materialised.
        settings: What shapes the rows besides the views.
        is_staged: Whether the files wait for a table format: the head then keeps each step until `published`.

    Raises:
        TablesError: Another run has them open, or they were made with other views or settings.
    """

    def __init__(
        self,
        disk: Disk,
        root: str,
        cluster: str,
        views: Sequence[str],
        settings: dict[str, str],
        *,
        is_staged: bool = False,
    ) -> None:
        self._disk = disk
        self._is_staged = is_staged
        self.root = root
        self.folder = f"{root}/{FOLDER}/{partition_value(cluster)}"
        make_directory(disk, self.folder)
        self._lock = self._locked(cluster)
        try:
            self.head = self._read_head(cluster, sorted(views), settings)
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

    def begin(self, run: str, version: str) -> StepFiles:
        """The files of a new step."""
        head = self.head
        return StepFiles(
            self._disk,
            self.root,
            head.cluster,
            head.next_number,
            run=run,
            version=version,
            on_file=self.note,
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
        begins: int = 0,
        extra: Sequence[str] = (),
    ) -> None:
        """Replace the steps behind the first `kept` ones by a new step.

        Args:
            kept: How many of the head's steps stay.
            step: The new step; its files are complete under their hidden names.
            state: The pass behind the step.
            files: The files of the step.
            begins: The offset with which the history begins, if no step stays.
            extra: Further files that the step replaces, as paths below the root.
        """
        head = self.head
        replace_file(self._disk, self.folder, _state_name(step.number), zlib.compress(state, 1))
        last = head.steps[-1:]
        taken_back = [path for one in head.steps[kept:] for path in one.closed]
        steps = [*head.steps[:kept], step]
        committed = Head(
            cluster=head.cluster,
            views=head.views,
            settings=head.settings,
            next_number=step.number + 1,
            begins=head.begins if kept else begins,
            steps=steps if self._is_staged else steps[-KEPT_STEPS:],
            publish=[(file.staged, file.path) for file in files],
            remove=sorted({*(path for one in last for path in one.open), *taken_back, *extra}),
        )
        self._replace(committed)

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

    def all_files(self) -> list[str]:
        """The paths of all files of the cluster's tables, found by listing directories."""
        found = []
        name = f"cluster={partition_value(self.head.cluster)}"
        for view in self.head.views:
            folder = f"{view}/{name}"
            for date in self._names(f"{self.root}/{folder}"):
                inner = f"{folder}/{date}"
                found += [f"{inner}/{each}" for each in self._names(f"{self.root}/{inner}") if not each.startswith(".")]
        return found

    # ------------------------------------------------------------------------------------------------- after a commit

    def _finish(self) -> None:
        """Give the committed files their names, remove replaced and abandoned ones. Repeating this changes nothing."""
        disk, head = self._disk, self.head
        folders = set()
        for staged, path in head.publish:
            if disk.exists(f"{self.root}/{staged}"):
                disk.rename(f"{self.root}/{staged}", f"{self.root}/{path}")
            folders.add(path.rpartition("/")[0])
        abandoned = self._journal()
        for path in [*head.remove, *(path for path in abandoned if path not in dict(head.publish))]:
            if disk.exists(f"{self.root}/{path}"):
                disk.remove(f"{self.root}/{path}")
                folders.add(path.rpartition("/")[0])
        for folder in sorted(folders):
            disk.fsync_dir(f"{self.root}/{folder}")
        wanted = {_state_name(step.number) for step in head.steps}
        for name in disk.list(self.folder):
            if name == _JOURNAL or (name.startswith("state-") and name not in wanted):
                disk.remove(f"{self.folder}/{name}")
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

    def _read_head(self, cluster: str, views: list[str], settings: dict[str, str]) -> Head:
        path = f"{self.folder}/{HEAD}"
        if not self._disk.exists(path):
            return Head(cluster=cluster, views=views, settings=settings)
        try:
            head = msgspec.json.decode(read_whole(self._disk, path), type=Head)
        except msgspec.DecodeError as bad:
            raise TablesError(f"the head of the tables cannot be read: {bad}", where=path) from bad
        if head.format != FORMAT:
            raise TablesError(f"the tables are of format {head.format}, and this version writes {FORMAT}", where=path)
        if (head.views, head.settings) != (views, settings):
            raise TablesError(
                f"the tables were made with {_difference(head, views, settings)}",
                where=path,
                hint="Name the same views and settings, or another directory for the tables.",
            )
        return replace(head, cluster=cluster)


def _difference(head: Head, views: list[str], settings: dict[str, str]) -> str:
    """What the tables have other than a run wants."""
    also = sorted(set(head.views) - set(views))
    lacking = sorted(set(views) - set(head.views))
    others = [f"{name}={value}" for name, value in head.settings.items() if settings.get(name) != value]
    told = [
        *([f"the further views {', '.join(also)}"] if also else []),
        *([f"no view {', '.join(lacking)}"] if lacking else []),
        *others,
    ]
    return " and ".join(told) or "other settings"


def _state_name(number: int) -> str:
    return f"state-{number:08d}"
