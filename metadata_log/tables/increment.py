"""One step of a materialised history: a saved pass and the items after it give rows and the next saved pass.

Rows come in two kinds. A closed row never changes: its interval has ended. An open row holds at the end of the log, so
the next step replaces all open rows, and what was open comes back as closed or open. A step stops in front of damage,
so a segment that arrives late is read as if it had always been there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from metadata_log.disk import Disk
from metadata_log.errors import MetadataLogError, ReplayError
from metadata_log.history.engine import HistoryPass, Options
from metadata_log.history.open_rows import Row, Sink
from metadata_log.history.partition_rows import CELL_VIEWS, whole_rows
from metadata_log.history.saved_pass import join_passes, part_steps, restore_pass, save_pass, saved_views
from metadata_log.history.unread import Unread
from metadata_log.reading.damage import Damage, DamagedFile, OnDamage
from metadata_log.reading.place import Place, Standing, find_place
from metadata_log.reading.timeline import Base, TimelineBatch, continue_timeline, place_of, read_timeline

Item = Base | TimelineBatch | Damage
Read = Callable[[Place | None, OnDamage], Iterator[Item]]
"""The items after a place, or from the beginning of a log."""


def read_log(disk: Disk, directory: str) -> Read:
    """The items of a partition directory, for `Step`. A record of a later release ends no table (decision 0092)."""

    def read(place: Place | None, on_damage: OnDamage) -> Iterator[Item]:
        if place is None:
            return read_timeline(disk, directory, on_damage=on_damage, pass_newer=True)
        return continue_timeline(disk, directory, place, on_damage=on_damage, pass_newer=True)

    return read


class Checkpoint(Struct, frozen=True):
    """The state of a pass and the place of its last item; at the beginning neither."""

    place: Place | None = None
    state: bytes | None = None


class TableRows(Struct, frozen=True, gc=False):
    """Rows for a table that became known together.

    Args:
        view: The view.
        rows: The rows: of cells for a view of cells (`Ended`), else the values of the view's columns.
        is_open: Whether the next step replaces the rows.
        file: The file with the records that made the rows known; None for no file.
        offset: The offset that follows those records.
        unread: The offset of the first record of a later release that may have changed the rows; None without one.
    """

    view: str
    rows: Sequence[Any]
    is_open: bool
    file: str | None
    offset: int
    unread: int | None = None

    @property
    def values(self) -> Sequence[Row]:
        """The rows as the values of the view's columns."""
        return whole_rows(self.view, self.rows) if self.view in CELL_VIEWS else self.rows


def taken(sink: Sink) -> Iterator[tuple[str, list[Any]]]:
    """The rows of each view since the last call, as `TableRows` has them."""
    plain: dict[str, list[Any]] = {}
    for view, values in sink.take_plain():
        plain.setdefault(view, []).append(values)
    yield from plain.items()
    for view, ended in sink.ended.items():
        if ended:
            yield view, ended[:]
            ended.clear()


class Step:
    """One step. `rows` does the work; the other attributes hold once its iteration has ended.

    Args:
        read: The log.
        before: Where the step begins.
        cluster: The cluster of the rows.
        views: The views.
        options: The options of the history engine; `on_damage` is not used.
        on_damage: STRICT: the step ends in front of damage, and its open rows are those before the damage. SKIP: rows
            after the damage are open rows, which every later step makes again until the damage is gone.
        settle: Whether damage is accepted for good: the step goes on past it, and all rows but the last are closed.
        most_records: About how many records the step may read.
        in_front_of: The bad item that a former attempt at this step met: this one ends in front of the item.
    """

    def __init__(
        self,
        read: Read,
        before: Checkpoint,
        *,
        cluster: str,
        views: Collection[str],
        options: Options,
        on_damage: OnDamage = OnDamage.STRICT,
        settle: bool = False,
        most_records: int | None = None,
        in_front_of: BadItem | None = None,
    ) -> None:
        self._read = read
        self._before = before
        self._cluster = cluster
        self._views = frozenset(views)
        self._options = options
        self._on_damage = on_damage
        self._settle = settle
        self._most_records = most_records
        self._in_front_of = in_front_of
        self.after = before
        """Where the next step begins."""
        self.begins: int | None = None
        """The offset of the first item that was read: of the snapshot's end, if the log begins at a snapshot."""
        self.origin: Place | None = None
        """The place after that item."""
        self.records = 0
        """The records of the log that were read, up to `after`."""
        self.files: dict[str, None] = {}
        """The files of those records."""
        self.damage: MetadataLogError | None = None
        """The damage in front of which the step stopped; None for none."""
        self.is_whole = True
        """Whether nothing but damage is left to read."""
        self.seen = Place(0, -1) if before.place is None else before.place
        """The end of what the open rows know: beyond `after` if they are of records after damage."""
        self._file: str | None = None
        self.unread: list[Unread] = []
        """The records of a later release, from the beginning of the history up to the end of what the rows know."""
        self._marks: dict[str, int] = {}
        """By view the offset of the first of them that may have changed its rows."""

    def rows(self) -> Iterator[TableRows]:
        """The closed rows, then the open rows.

        Raises:
            BadItem: An item is damaged inside, or contradicts the state. The rows so far are void; another step with
                this error as `in_front_of` reaches the item in front.
        """
        bad = self._in_front_of
        mode = OnDamage.SKIP if self._settle else OnDamage.STRICT
        story = yield from self._begun(mode)
        accepted: list[Item] = []
        """Damage without anything after it is told anew by each step."""
        place, count = self._before.place, 0
        items = self._read(place, mode)
        while True:
            if bad is not None and count == bad.count:
                self.damage = bad.reason
                break
            try:
                item = next(items, None)
            except MetadataLogError as wrong:
                self.damage = wrong
                break
            if item is None:
                break
            if isinstance(item, Damage) and item.unfinished:
                accepted.append(item)
                break
            if isinstance(item, Damage):
                if mode is OnDamage.STRICT:
                    self.damage = DamagedFile(item)
                    break
                accepted.append(item)
                continue
            for one in (*accepted, item):
                yield from self._told(story, one, count)
            accepted, count, place = [], count + 1, place_of(item)
            self._note(item, place)
            if self._most_records is not None and self.records >= self._most_records:
                self.is_whole = False
                break
        rest: Iterator[Item] = chain(accepted, items) if accepted else iter(())
        self.after = Checkpoint(place, self._saved(story))
        if self.damage is not None and self._on_damage is OnDamage.SKIP:
            story = self._restored(self.after, OnDamage.SKIP)
            rest = self._read(place, OnDamage.SKIP)
        for item in rest:
            story.tell(item, None)
            if not isinstance(item, Damage):
                self._file, self.seen = item.path, place_of(item)
            yield from self._taken(story, is_open=True)
        self._marked(story)
        story.finish()
        yield from self._taken(story, is_open=True)

    def _told(self, story: HistoryPass, item: Item, count: int) -> Iterator[TableRows]:
        if not isinstance(item, Damage):
            self._file, self.seen = item.path, place_of(item)
        try:
            story.tell(item, None)
        except (DamagedFile, ReplayError) as bad:
            raise BadItem(count, bad) from bad
        yield from self._taken(story, is_open=False)

    def _note(self, item: Base | TimelineBatch, place: Place) -> None:
        if self.begins is None:
            self.begins, self.origin = beginning(item), place
        self.files[item.path] = None
        if isinstance(item, TimelineBatch):
            self.records += place.offset - item.from_offset

    def _taken(self, story: HistoryPass, *, is_open: bool) -> Iterator[TableRows]:
        file, offset = self._file, self.seen.offset
        if story.unread_types != len(self.unread):
            self._marked(story)
        marks = self._marks
        for view, rows in taken(story.sink):
            yield TableRows(view, rows, is_open, file, offset, marks.get(view))

    def _marked(self, story: HistoryPass) -> None:
        self.unread = story.unread()
        self._marks = {}
        for one in self.unread:
            for view in one.views:
                self._marks[view] = min(one.from_offset, self._marks.get(view, one.from_offset))

    def _begun(self, mode: OnDamage) -> Generator[TableRows, None, HistoryPass]:
        """The pass with which the step begins, and the closed rows of views that the pass before did not write."""
        before = self._before
        added = frozenset() if before.state is None else self._views - saved_views(before.state)
        if before.state is None or not added:
            return self._restored(before, mode)
        reading = self._on_damage if mode is OnDamage.STRICT else mode
        options = replace(self._options, on_damage=reading)
        story = HistoryPass(self._cluster, added, options)
        if before.place is not None:
            try:
                for _ in part_steps(story, self._seen_items(self._read(None, reading)), until=before.place):
                    yield from self._taken(story, is_open=False)
            except (DamagedFile, ReplayError) as bad:
                raise NoBackfill(sorted(added), bad) from bad
            self.seen = before.place
        had = self._views - added
        options = replace(options, on_damage=mode)
        old = restore_pass(before.state, cluster=self._cluster, views=had, options=options)
        return join_passes(old, story, cluster=self._cluster, old_views=had, new_views=added, options=options)

    def _seen_items(self, items: Iterator[Item]) -> Iterator[Item]:
        for item in items:
            if not isinstance(item, Damage):
                self._file, self.seen = item.path, place_of(item)
            yield item

    def _restored(self, checkpoint: Checkpoint, mode: OnDamage) -> HistoryPass:
        options = replace(self._options, on_damage=mode)
        if checkpoint.state is None:
            return HistoryPass(self._cluster, self._views, options)
        return restore_pass(checkpoint.state, cluster=self._cluster, views=self._views, options=options)

    def _saved(self, story: HistoryPass) -> bytes:
        return save_pass(story, cluster=self._cluster, views=self._views, options=self._options)


def closing_rows(before: Checkpoint, *, cluster: str, options: Options, where: str, reason: str) -> Iterator[TableRows]:
    """The rows that end where nothing more can be known of a cluster, as after damage.

    Args:
        before: The last that is known.
        cluster: The cluster.
        options: The options of the history engine.
        where: The directory that held the log.
        reason: Why nothing more can be known, for the row of `retention`.

    Returns:
        Closed rows.

    Raises:
        SavedPassError: The checkpoint does not fit this version.
    """
    assert before.state is not None
    views = saved_views(before.state)
    options = replace(options, on_damage=OnDamage.SKIP)
    story = restore_pass(before.state, cluster=cluster, views=views, options=options)
    offset = 0 if before.place is None else before.place.offset
    story.tell(Damage(where=where, what=reason, expected="the log of the cluster", offset=offset), None)
    story.finish()
    for view, rows in taken(story.sink):
        yield TableRows(view, rows, is_open=False, file=None, offset=offset)


def beginning(item: Base | TimelineBatch) -> int:
    """The offset at which an item begins; the end of a snapshot, as nothing is known of the time before."""
    return item.end.offset if isinstance(item, Base) else item.from_offset


def standing_checkpoint(
    disk: Disk, directory: str, checkpoints: Sequence[Checkpoint]
) -> tuple[Standing, int, Checkpoint]:
    """The newest checkpoint that the log still holds.

    Args:
        disk: The disk.
        directory: The partition directory.
        checkpoints: Checkpoints of this log, oldest first.

    Returns:
        HOLDS with the number of the checkpoints from the beginning up to the newest that holds, and that one with its
        present segment (0 and an empty checkpoint if none does); or BEHIND, if the log ends before the newest.
    """
    for count in range(len(checkpoints), 0, -1):
        checkpoint = checkpoints[count - 1]
        if checkpoint.place is None:
            return Standing.HOLDS, count, checkpoint
        standing, place = find_place(disk, directory, checkpoint.place)
        if standing is Standing.HOLDS:
            return standing, count, replace(checkpoint, place=place)
        if standing is Standing.BEHIND and count == len(checkpoints):
            return standing, count, checkpoint
    return Standing.HOLDS, 0, Checkpoint()


class NoBackfill(MetadataLogError):
    """Views cannot be added to tables, as the log does not tell their past."""

    def __init__(self, views: Sequence[str], reason: MetadataLogError) -> None:
        super().__init__(
            f"{', '.join(views)} cannot be added to the tables: {reason}",
            hint="Give an archive with the whole log, or --gate warn for a history with the unknown range.",
        )


class BadItem(MetadataLogError):
    """An item of the log that the engine cannot read. The pass is between two states, and is of no further use.

    Args:
        count: The items before it.
        reason: The error.
    """

    def __init__(self, count: int, reason: MetadataLogError) -> None:
        super().__init__(reason.what, where=reason.where, position=reason.position)
        self.count = count
        self.reason = reason
