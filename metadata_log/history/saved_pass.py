"""A history pass as bytes: everything that the engine knows between two batches, so that a later pass continues there.

A snapshot of Kafka holds the state of a cluster. A pass also knows since when and why each open row holds, what led to
it, and what waits for an explanation. So the bytes hold the attributes of the engine's families, each as a value, and a
restored pass writes the same rows as one that was never interrupted (decision 0062). The bytes name classes and fields;
reading makes values and calls nothing else.

A history in parts, each from one saved pass to the next, gives the rows of one replay: the part in which the interval
of a row ends writes the whole row, so a row that crosses a cut appears once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import repeat
from struct import Struct as Layout
from typing import Any, Final

import msgspec
from msgspec import Struct

from metadata_log.errors import ReplayError
from metadata_log.history.acls import Acls
from metadata_log.history.brokers import Brokers, Fencing
from metadata_log.history.churn import Churn
from metadata_log.history.cluster import Cluster
from metadata_log.history.configs import Configs, Drift
from metadata_log.history.engine import HistoryPass, Options, steps
from metadata_log.history.families import Families
from metadata_log.history.former_rows import cells_of_rows
from metadata_log.history.incidents import Incidents
from metadata_log.history.leaders import (
    IsrFlaps,
    IsrHistory,
    LeaderHistory,
    Reassignments,
    Unavailability,
    UncleanElections,
)
from metadata_log.history.open_rows import CellRows, OpenRows
from metadata_log.history.partition_rows import ISR_FLAPS, Cell, Head
from metadata_log.history.partitions import Partitions, Topic
from metadata_log.history.quorum import Quorum
from metadata_log.history.retention import Retention
from metadata_log.history.saved_values import Reader, SavedPassError, Writer
from metadata_log.history.topics import Topics
from metadata_log.reading.damage import Damage
from metadata_log.reading.place import Place
from metadata_log.reading.timeline import At, Base, TimelineBatch, place_of

FORMAT: Final = 4
"""Raised whenever a family keeps something else, or in another meaning: an older pass is then read from its log."""
FORMAT_WITH_ROWS: Final = 3
"""The format before, which is read too: open rows of views with rows of cells were kept as values."""

STATE: Final[dict[type, tuple[str, ...]]] = {
    HistoryPass: ("_cluster", "_retention", "_image", "_last", "_held", "_transaction"),
    Cluster: (
        *("quorum", "_configs", "_partitions", "_brokers", "_topics", "_acls", "_families", "_churn", "_kept"),
        *("_kraft_version", "_born", "_min_isr_set"),
    ),
    Quorum: ("_epochs", "_voters", "_known_voters", "_last", "_leader", "_has_clock"),
    Configs: ("image", "_rows", "_drift"),
    Drift: ("rows",),
    Partitions: ("_topics", "_ids", "_cells"),
    Brokers: ("image", "last_seen_ms", "_rows", "fencing"),
    Fencing: ("rows", "_moved", "_left"),
    Topics: ("_rows", "_shape", "_changed"),
    Acls: ("_image", "_rows", "_audit", "_denied_by"),
    Families: (
        *("_features", "_quotas", "_scram", "_tokens", "_producer_ids", "_controllers"),
        *("_levels", "_controllers_image"),
    ),
    Churn: ("_hour", "_counters"),
    LeaderHistory: ("rows",),
    IsrHistory: ("rows",),
    IsrFlaps: ("_out",),
    UncleanElections: ("rows",),
    Reassignments: ("rows",),
    Unavailability: ("rows", "incidents"),
    Incidents: ("_groups",),
    Retention: ("_first", "_last", "_path", "_records", "_unknown", "is_lost", "ignored"),
    OpenRows: ("_rows",),
    CellRows: ("_rows",),
}
"""The attributes of each family that change with the records."""

WIRING: Final[dict[type, tuple[str, ...]]] = {
    HistoryPass: ("sink", "_options", "_templates", "_states"),
    Cluster: ("_sink", "_session_timeout_ms", "_table", "_incidents"),
    Quorum: ("_sink", "_tolerance_ms"),
    Configs: ("listeners", "_show_secrets", "_wanted"),
    Drift: ("_wanted", "_show_secrets"),
    Partitions: ("followers", "_shapes", "_made", "_sink", "_ended", "_told", "_unclean_allowed"),
    Acls: ("_audited",),
    Families: ("_all",),
    Churn: ("_sink", "_summed", "_waiting"),
    LeaderHistory: ("_moves",),
    IsrHistory: ("follow",),
    IsrFlaps: ("_ended",),
    Unavailability: ("_configs", "_cells_of", "_min_isr", "_is_quiet"),
    Incidents: ("_sink", "_wanted"),
    Retention: ("_sink",),
    OpenRows: ("_sink", "_seconds_at", "_wanted", "view"),
    CellRows: ("_ended", "view"),
}
"""The attributes that follow from the options, and those that only save work (templates, shapes, steps)."""


class _Saved(Struct, frozen=True):
    """A pass in bytes; `shared` and `values` are decoded one by one, as a pass of fewer views needs fewer."""

    format: int
    cluster: str
    views: list[str]
    options: Any
    classes: list[tuple[str, list[str]]]
    shared: list[msgspec.Raw]
    values: dict[str, msgspec.Raw]


def save_pass(story: HistoryPass, *, cluster: str, views: Collection[str], options: Options) -> bytes:
    """The state of a pass between two items, as bytes.

    Args:
        story: The pass; its sink must be empty.
        cluster: The cluster of the pass.
        views: The views of the pass.
        options: The options of the pass.

    Returns:
        The bytes. They hold secrets if the log does: of SCRAM, tokens and configurations.
    """
    writer = Writer()
    encode = msgspec.msgpack.Encoder().encode

    def raw(written: Any) -> msgspec.Raw:
        return msgspec.Raw(encode(written))

    values = {label: raw(_written(writer, part, name)) for label, part, name in _values_of(story)}
    told = (FORMAT, cluster, sorted(views), _told(options))
    return encode(_Saved(*told, writer.classes, list(map(raw, writer.shared)), values))


def restore_pass(
    data: bytes, *, cluster: str, views: Collection[str], options: Options, of: Collection[str] | None = None
) -> HistoryPass:
    """The pass that `save_pass` has saved.

    Args:
        data: The bytes.
        cluster: The cluster, as it was saved.
        views: The views of the pass that continues.
        options: The options, as they were saved.
        of: The views of the pass that was saved, with all of `views` among them; None for `views`.

    Returns:
        A pass that continues with the next item.

    Raises:
        SavedPassError: The bytes do not fit the arguments or this version.
    """
    try:
        saved = msgspec.msgpack.decode(data, type=_Saved)
    except msgspec.DecodeError as bad:
        raise SavedPassError(f"this is no saved pass: {bad}") from bad
    known = (cluster, sorted(views if of is None else of), _told(options))
    is_known = saved.format in (FORMAT_WITH_ROWS, FORMAT) and set(views) <= set(saved.views)
    if not is_known or (saved.cluster, saved.views, saved.options) != known:
        raise SavedPassError("the pass was saved by another version, or with another cluster, views or options")
    story = HistoryPass(cluster, frozenset(views), options)
    places = list(_values_of(story))
    partitions = next(part for _, part, _ in places if isinstance(part, Partitions))
    reader = Reader(saved.classes, saved.shared, partitions._shape, cluster)
    for label, part, name in places:
        written = saved.values.get(label)
        if written is None:
            raise SavedPassError(f"the pass has no {label}")
        value = msgspec.msgpack.decode(written)
        if _cells(part, name) is None:
            setattr(part, name, reader.value(value))
        elif saved.format == FORMAT:
            _put_cells(part, _read_cells(reader, partitions, value))
        else:
            rows = saved.values.get(label.replace("/_out", "/rows/_rows"), written)
            _put_cells(part, _former_cells(reader, partitions, part, msgspec.msgpack.decode(rows)))
    return story


def saved_views(data: bytes) -> frozenset[str]:
    """The views of the pass that `save_pass` has saved; raises `SavedPassError`."""
    try:
        return frozenset(msgspec.msgpack.decode(data, type=_Saved).views)
    except msgspec.DecodeError as bad:
        raise SavedPassError(f"this is no saved pass: {bad}") from bad


_GATED: Final = {
    (Topics, "_shape"): "topic_history",
    (Topics, "_changed"): "topic_history",
    (Fencing, "_moved"): "fencing",
    (Fencing, "_left"): "fencing",
    (Acls, "_denied_by"): "acl_audit",
    (Incidents, "_groups"): "incidents",
}
"""Attributes that a family always has, and fills for one view only."""


def join_passes(
    old: HistoryPass,
    new: HistoryPass,
    *,
    cluster: str,
    old_views: Collection[str],
    new_views: Collection[str],
    options: Options,
) -> HistoryPass:
    """One pass of two that stand at the same place of one log and write different views.

    What both know is taken from the older one: its open rows may reach back to records that the log no longer has.

    Args:
        old: The older pass, which is of no further use.
        new: The pass of the further views, which is of no further use.
        cluster: The cluster of both.
        old_views: The views of the older pass.
        new_views: The views of the other one.
        options: The options of both.

    Returns:
        A pass of all views that continues with the next item.
    """
    story = HistoryPass(cluster, frozenset(old_views) | frozenset(new_views), options)
    known = {label: (part, name) for label, part, name in _values_of(old)}
    further = {label: (part, name) for label, part, name in _values_of(new)}
    for label, part, name in list(_values_of(story)):
        is_further = _GATED.get((type(part), name)) in new_views or label not in known
        source, attribute = further[label] if is_further else known[label]
        setattr(part, name, getattr(source, attribute))
    return story


def _told(options: Options) -> Any:
    """The options that shape the rows. A pass may meet damage in one mode and continue in another."""
    return {name: value for name, value in msgspec.to_builtins(options).items() if name != "on_damage"}


def labelled_parts(part: Any, label: str = "", seen: list[Any] | None = None) -> Iterator[tuple[str, Any]]:
    """A family and the families inside, each once, in the order of `STATE`, with the way to each."""
    seen = [] if seen is None else seen
    if any(one is part for one in seen):
        return
    seen.append(part)
    yield label, part
    for name in STATE[type(part)]:
        value = getattr(part, name)
        if isinstance(value, list):
            for inner in value:
                if type(inner) in STATE:
                    yield from labelled_parts(inner, f"{label}/{type(inner).__name__}", seen)
        elif type(value) in STATE:
            yield from labelled_parts(value, f"{label}/{name}", seen)


def _values_of(story: HistoryPass) -> Iterator[tuple[str, Any, str]]:
    """Each attribute of each family that is a value, and the way to the attribute.

    A view or an image that no view needs has no value.
    """
    for label, part in labelled_parts(story):
        if (isinstance(part, OpenRows) and not part._wanted) or (isinstance(part, CellRows) and not part.is_wanted):
            continue
        for name in STATE[type(part)]:
            value = getattr(part, name)
            is_family = type(value) in STATE or name == "_kept"
            if not is_family and not (value is None and name in ("_churn", "_image")):
                yield f"{label}/{name}", part, name


# ----------------------------------------------------------------------------------------------------- partitions

_KEY: Final = Layout(">20s")
_NUMBER_AND_TOPIC: Final = Layout(">i16s")
"""The key of a partition, and the same with the parts by themselves."""
_SHAPE_AT: Final = 0
_REASON_AT: Final = 3
_TEXT_AT: Final = 7
"""The columns of shapes, of reasons and of texts."""

_Row = tuple[bytes, Any, Cell]
"""The key of a partition, what comes before the cell in rows of its view, and the cell."""


def _cells(part: Any, name: str) -> list[_Row] | None:
    """An attribute that has a cell for each partition: by far the largest values, which are written in columns."""
    if type(part) is Partitions and name == "_cells":
        return [(key, None, cell) for key, cell in part._cells.items()]
    if type(part) is CellRows:
        return [(key, before, cell) for key, (before, cell) in part._rows.items()]
    if type(part) is IsrFlaps:
        return [(key, broker, cell) for key, out in part._out.items() for broker, cell in out.items()]
    return None


def _written(writer: Writer, part: Any, name: str) -> Any:
    cells = _cells(part, name)
    return writer.value(getattr(part, name)) if cells is None else _written_cells(writer, cells)


def _written_cells(writer: Writer, rows: list[_Row]) -> list[Any]:
    """The rows in columns; topic and partition follow from the keys."""
    if not rows:
        return []
    columns: list[Any] = [[cell[place] for _, _, cell in rows] for place in range(1, len(rows[0][2]))]
    for place in (_SHAPE_AT, _REASON_AT):
        columns[place] = list(map(writer.number, columns[place]))
    befores = [writer.value(before) for _, before, _ in rows] if any(row[1] is not None for row in rows) else []
    return [b"".join([key for key, _, _ in rows]), befores, *columns]


def _read_cells(reader: Reader, partitions: Partitions, written: list[Any]) -> Iterator[_Row]:
    if not written:
        return iter(())
    joined, befores, *columns = written
    keys = [key for (key,) in _KEY.iter_unpack(joined)]
    for place in (_SHAPE_AT, _REASON_AT):
        columns[place] = map(reader.shared, columns[place])
    columns[_TEXT_AT] = map(reader.text, columns[_TEXT_AT])
    cells = zip(_heads(partitions, joined, keys), *columns, strict=True)
    return zip(keys, map(reader.value, befores) if befores else repeat(None, len(keys)), cells, strict=True)


def _heads(partitions: Partitions, joined: bytes, keys: Sequence[bytes]) -> list[Head]:
    """The heads of partitions: those that they have, if their present cells are read already."""
    if known := partitions._cells:
        return [known[key][0] for key in keys]
    topics: dict[Any, Topic] = dict(partitions._topics)
    named = [(topics[topic_id], number) for number, topic_id in _NUMBER_AND_TOPIC.iter_unpack(joined)]
    return [Head(topic.head, number) for topic, number in named]


def _former_cells(reader: Reader, partitions: Partitions, part: Any, written: list[Any]) -> Iterable[_Row]:
    """The same of a pass of the format before."""
    if part is partitions:
        return _read_cells(reader, partitions, [written[0], [], *written[1:]] if written[0] else [])
    keys = {(cell[0].topic_id, cell[0].partition): (key, cell[0]) for key, cell in partitions._cells.items()}
    view = part.view if isinstance(part, CellRows) else ISR_FLAPS
    return cells_of_rows(view, reader.value(written), keys, partitions._shape)


def _put_cells(part: Any, rows: Iterable[_Row]) -> None:
    """Set the attribute that `_cells` has read."""
    if type(part) is Partitions:
        part._cells = {key: cell for key, _, cell in rows}
    elif type(part) is CellRows:
        part._rows = {key: (before, cell) for key, before, cell in rows}
    else:
        for key, broker, cell in rows:
            part._out.setdefault(key, {})[broker] = cell


# ---------------------------------------------------------------------------------------------------------- parts

Item = Base | TimelineBatch | Damage


def part_steps(
    story: HistoryPass, items: Iterable[Item], *, at: At | None = None, until: Place | None = None
) -> Iterator[None]:
    """Advance a pass to another place, or up to the end of the history; the caller takes the rows of each step.

    Args:
        story: The pass at the beginning of the part.
        items: The items after its place.
        at: The end of the history (inclusive); None for the end of the items.
        until: The place where the next part begins; None for the last part, which writes the open rows too.

    Returns:
        An iterator of steps.

    Raises:
        ReplayError: A record contradicts the state, or the log no longer has a batch that ends at `until`.
    """
    if until is None:
        yield from steps(story, items, at)
        return
    for item in items:
        if not story.tell(item, at):
            break
        yield
        if not isinstance(item, Damage):
            reached = place_of(item)
            if (reached.offset, reached.epoch) == (until.offset, until.epoch):
                return
            if reached.offset >= until.offset:
                break
    raise ReplayError(f"no batch of epoch {until.epoch} ends at offset {until.offset}: the log was rewritten")
