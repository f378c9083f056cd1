"""One step of a materialised history: a saved pass and the items behind it give rows and the next saved pass.

Rows come in two kinds. A closed row never changes: its interval has ended. An open row holds at the end of the log, so
the next step replaces all open rows, and what was open comes back as closed or open. A step stops in front of damage,
so a segment that arrives late is read as if it had always been there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from metadata_log.disk import Disk
from metadata_log.errors import MetadataLogError, ReplayError
from metadata_log.history.engine import HistoryPass, Options
from metadata_log.history.open_rows import Row
from metadata_log.history.saved_pass import restore_pass, save_pass
from metadata_log.reading.damage import Damage, DamagedFile, OnDamage
from metadata_log.reading.place import Place, Standing, find_place
from metadata_log.reading.timeline import Base, TimelineBatch, continue_timeline, place_of, read_timeline

Item = Base | TimelineBatch | Damage
Read = Callable[[Place | None, OnDamage], Iterator[Item]]
"""The items behind a place, or from the beginning of a log."""


def read_log(disk: Disk, directory: str) -> Read:
    """The items of a partition directory, for `Step`."""

    def read(place: Place | None, on_damage: OnDamage) -> Iterator[Item]:
        if place is None:
            return read_timeline(disk, directory, on_damage=on_damage)
        return continue_timeline(disk, directory, place, on_damage=on_damage)

    return read


class Checkpoint(Struct, frozen=True):
    """The state of a pass and the place of its last item; at the beginning neither."""

    place: Place | None = None
    state: bytes | None = None


class TableRow(Struct, frozen=True, gc=False):
    """A row for a table.

    Args:
        view: The view.
        values: The values of the view's columns.
        is_open: Whether the next step replaces the row.
        file: The file with the records that made the row known; None for no file.
        offset: The offset that follows those records.
    """

    view: str
    values: Row
    is_open: bool
    file: str | None
    offset: int


class Step:
    """One step. `rows` does the work; the other attributes hold once its iteration has ended.

    Args:
        read: The log.
        before: Where the step begins.
        cluster: The cluster of the rows.
        views: The views.
        options: The options of the history engine; `on_damage` is not used.
        on_damage: STRICT: the step ends in front of damage, and its open rows are those before the damage. SKIP: rows
            behind the damage are open rows, which every later step makes again until the damage is gone.
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
        self.records = 0
        """The records of the log that were read, up to `after`."""
        self.files: dict[str, None] = {}
        """The files of those records."""
        self.damage: MetadataLogError | None = None
        """What the step stopped in front of."""
        self.is_whole = True
        """Whether nothing but damage is left to read."""
        self.seen = Place(0, -1) if before.place is None else before.place
        """The end of what the open rows know: beyond `after` if they are of records behind damage."""
        self._file: str | None = None

    def rows(self) -> Iterator[TableRow]:
        """The closed rows, then the open rows.

        Raises:
            BadItem: An item is damaged inside, or contradicts the state. The rows so far are void; another step with
                this error as `in_front_of` reaches the item in front.
        """
        bad = self._in_front_of
        mode = OnDamage.SKIP if self._settle else OnDamage.STRICT
        story = self._restored(self._before, mode)
        accepted: list[Item] = []
        """Damage without anything behind it is told anew by each step."""
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
        story.finish()
        yield from self._taken(story, is_open=True)

    def _told(self, story: HistoryPass, item: Item, count: int) -> Iterator[TableRow]:
        if not isinstance(item, Damage):
            self._file, self.seen = item.path, place_of(item)
        try:
            story.tell(item, None)
        except (DamagedFile, ReplayError) as bad:
            raise BadItem(count, bad) from bad
        yield from self._taken(story, is_open=False)

    def _note(self, item: Base | TimelineBatch, place: Place) -> None:
        self.begins = beginning(item) if self.begins is None else self.begins
        self.files[item.path] = None
        if isinstance(item, TimelineBatch):
            self.records += place.offset - item.from_offset

    def _taken(self, story: HistoryPass, *, is_open: bool) -> Iterator[TableRow]:
        file, offset = self._file, self.seen.offset
        for view, values in story.sink.take():
            yield TableRow(view, values, is_open, file, offset)

    def _restored(self, checkpoint: Checkpoint, mode: OnDamage) -> HistoryPass:
        options = replace(self._options, on_damage=mode)
        if checkpoint.state is None:
            return HistoryPass(self._cluster, self._views, options)
        return restore_pass(checkpoint.state, cluster=self._cluster, views=self._views, options=options)

    def _saved(self, story: HistoryPass) -> bytes:
        return save_pass(story, cluster=self._cluster, views=self._views, options=self._options)


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
