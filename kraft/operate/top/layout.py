"""The rows as lines of text for a given width. Each part of a line has a tone, which a view may paint or ignore.

Words and numbers alone tell everything: a screen without colour loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from textwrap import wrap
from typing import Final

from msgspec import Struct

from kraft.operate.top.model import Sort, View
from kraft.operate.top.samples import ControllerAnswer, Trouble
from metadata_log.printable import printable
from metadata_log.times import moment_at

WORTH_TELLING_MS: Final = 2_000
"""A voter that fetched, or had everything, within this time is healthy."""
SILENT_MS: Final = 10_000
ELECTIONS_SHOWN: Final = 3
PARTITIONS_SHOWN: Final = 200
NARROWEST: Final = 40
_GAP: Final = 2
_NONE: Final = "-"


class Tone(Enum):
    """The meaning of a text, from which a view derives its colour."""

    PLAIN = "plain"
    HEAD = "head"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    DIM = "dim"


class Span(Struct, frozen=True):
    """A part of a line. The text has no control characters."""

    text: str
    tone: Tone = Tone.PLAIN


Line = tuple[Span, ...]
Cell = tuple[str, Tone]


class Settings(Struct, frozen=True, kw_only=True):
    """How the rows are shown."""

    width: int = 80
    sort: Sort = Sort.ID
    interval_s: float | None = None
    """The interval of refreshes; None for a single screen."""
    is_paused: bool = False


class Layout(Struct, frozen=True):
    """The lines that always stay visible, and those that may scroll. No line is longer than the width."""

    head: tuple[Line, ...]
    body: tuple[Line, ...]


class _Column(Struct, frozen=True):
    name: str
    is_number: bool = True


def layout(view: View | None, settings: Settings) -> Layout:
    """The lines for this width; before the first sample, the head says so."""
    settings = settings if settings.width >= NARROWEST else Settings(width=NARROWEST, sort=settings.sort)
    if view is None:
        return Layout(((Span("kraft top", Tone.HEAD), Span("  asking the controllers")),), ())
    head = [_title(view, settings), *_state(view, settings), *_counts(view)]
    body = [
        *_controllers(view, settings),
        *_brokers(view, settings),
        *_partitions(view, settings),
        *_notes(view, settings),
    ]
    return Layout(
        tuple(_cut(line, settings.width) for line in head), tuple(_cut(line, settings.width) for line in body)
    )


def text_lines(lines: Iterable[Line]) -> list[str]:
    """The lines without tones."""
    return ["".join(span.text for span in line).rstrip() for line in lines]


# ------------------------------------------------------------------------------------------------------------- the head


def _title(view: View, settings: Settings) -> Line:
    pace = ""
    if settings.interval_s is not None:
        requests = f"{view.requests} {'request' if view.requests == 1 else 'requests'}"
        order = "" if settings.sort is Sort.ID else f"by {settings.sort.value}  "
        pace = order + ("PAUSED  " if settings.is_paused else f"every {settings.interval_s:g} s, {requests}  ")
    right = f"{pace}{_clock(view.at_ms)}"
    left = f"kraft top  cluster {view.cluster_id}" if view.cluster_id else "kraft top"
    left = left[: max(0, settings.width - len(right) - _GAP)]
    return (Span(left.ljust(settings.width - len(right)), Tone.HEAD), Span(right))


def _state(view: View, settings: Settings) -> Iterator[Line]:
    if view.leader_id is not None:
        rate = "" if view.records_per_s is None else f" (+{view.records_per_s:,.1f}/s)"
        facts = (
            f"leader {view.leader_id}",
            f"epoch {view.epoch}",
            f"high watermark {_number(view.high_watermark)}{rate}",
        )
        yield (Span("  ".join(facts), Tone.GOOD), Span(f"  {_elections_text(view)}"))
        return
    assert view.without_leader_ms is not None
    # A single look does not know for how long.
    what = ["NO LEADER" if settings.interval_s is None else f"NO LEADER for {duration(view.without_leader_ms)}"]
    what += [] if view.epoch is None else [f"epoch {view.epoch}"]
    what += [] if view.last_leader_id is None else [f"last leader {view.last_leader_id}"]
    yield (Span("  ".join(what), Tone.BAD), Span(f"  {_elections_text(view)}"))
    for line in wrap(printable(view.problem or ""), settings.width, max_lines=3, placeholder=" …"):
        yield (Span(line, Tone.DIM),)


def _elections_text(view: View) -> str:
    number = len(view.elections)
    return f"{number} {'election' if number == 1 else 'elections'} since {_clock(view.started_ms)}"


def _counts(view: View) -> Iterator[Line]:
    metadata = view.metadata
    spans = [Span(f"voters {_NONE if view.voters is None else view.voters}")]
    if metadata is None:
        what = "the log has them, and no leader sends it" if view.leader_id is None else "the log is being read"
        yield (*spans, Span(f"  brokers and partitions: {what}" if view.metadata_note is None else ""))
        return
    inactive = sum(one.broker.state != "active" for one in view.brokers)
    spans.append(Span(f"  brokers {len(view.brokers):,}"))
    spans.append(Span(f" ({inactive:,} not active)", Tone.WARN if inactive else Tone.PLAIN))
    spans.append(Span(f"  partitions {metadata.partitions:,}"))
    spans.append(Span(f" ({metadata.leaderless:,} no leader,", Tone.BAD if metadata.leaderless else Tone.PLAIN))
    spans.append(
        Span(f" {metadata.below_min_isr:,} below min ISR)", Tone.WARN if metadata.below_min_isr else Tone.PLAIN)
    )
    yield tuple(spans)


# ------------------------------------------------------------------------------------------------------------- the body


def _controllers(view: View, settings: Settings) -> Iterator[Line]:
    yield ()
    if view.leader_id is None and not view.answers:
        yield (Span("asking each known controller"),)
        return
    if view.leader_id is None:
        answered = (_Column("ID"), _Column("EPOCH"), _Column("LEADER"), _Column("ADDRESS AND ANSWER", is_number=False))
        yield from _table(answered, [_answer_cells(one) for one in view.answers], settings.width)
        answering = sum(one.problem is None for one in view.answers)
        need = "" if view.voters is None else f" {view.voters // 2 + 1} of {view.voters} voters make a majority."
        yield (Span(f"{answering} of {len(view.answers)} known controllers answer.{need}", Tone.BAD),)
        return
    has_figures = any(one.problem is None for one in view.figures)
    names = [
        "ID",
        "ROLE",
        "EPOCH",
        "END OFFSET",
        "LAG",
        "FETCHED",
        "CAUGHT UP",
        "FSYNC",
        *(["TURN"] if has_figures else []),
    ]
    columns = tuple(_Column(name, is_number=name != "ROLE") for name in names)
    rows = []
    for row in view.replicas:
        is_leader = row.role == "leader"
        never = "never" if row.end_offset is None and not is_leader else _NONE
        cells: list[Cell] = [
            (str(row.id), Tone.PLAIN),
            (row.role, Tone.GOOD if is_leader else Tone.PLAIN),
            (_NONE if row.epoch is None else str(row.epoch), Tone.PLAIN),
            (_number(row.end_offset), Tone.PLAIN),
            (_number(row.lag), Tone.WARN if row.lag and (row.caught_up_ms or 0) > WORTH_TELLING_MS else Tone.PLAIN),
            _age(row.fetched_ms, never),
            _age(row.caught_up_ms, never),
            _milliseconds(row.fsync_ms),
        ]
        if has_figures:
            cells.append(_milliseconds(row.turn_ms))
        rows.append(cells)
    yield from _table(columns, rows, settings.width)


def _answer_cells(answer: ControllerAnswer) -> list[Cell]:
    if answer.problem is not None:
        said = answer.problem
    elif answer.leader_id is None:
        said = "knows no leader"
    else:
        said = f"names leader {answer.leader_id}"
    return [
        (_NONE if answer.id is None else str(answer.id), Tone.PLAIN),
        (_NONE if answer.epoch is None else str(answer.epoch), Tone.PLAIN),
        (_NONE if answer.leader_id is None else str(answer.leader_id), Tone.PLAIN),
        (f"{answer.address}: {said}", Tone.PLAIN if answer.problem is None else Tone.BAD),
    ]


def _brokers(view: View, settings: Settings) -> Iterator[Line]:
    if view.metadata is None or not view.brokers:
        return
    yield ()
    names = ("BROKER", "STATE", "REPLICAS", "IN SYNC", "LEADS", "LAG", "FETCHED", "RACK", "LISTENER")
    columns = tuple(_Column(name, is_number=name not in {"STATE", "RACK", "LISTENER"}) for name in names)
    rows = []
    for row in view.brokers:
        one = row.broker
        lacks = one.in_sync < one.replicas
        cells: list[Cell] = [
            (str(one.id), Tone.PLAIN),
            (one.state, Tone.PLAIN if one.state == "active" else Tone.BAD if one.state == "fenced" else Tone.WARN),
            (_number(one.replicas), Tone.PLAIN),
            (_number(one.in_sync), Tone.WARN if lacks else Tone.PLAIN),
            (_number(one.leads), Tone.PLAIN),
            (_number(row.lag), Tone.PLAIN),
            _age(row.fetched_ms, _NONE),
            (one.rack or _NONE, Tone.PLAIN),
            (one.endpoint or _NONE, Tone.DIM),
        ]
        rows.append(cells)
    yield from _table(columns, rows, settings.width)


def _partitions(view: View, settings: Settings) -> Iterator[Line]:
    if view.metadata is None or not view.metadata.troubled:
        return
    yield ()
    names = ("PARTITION", "TROUBLE", "ISR", "ELR", "REPLICAS")
    columns = tuple(_Column(name, is_number=False) for name in names)
    shown = view.metadata.troubled[:PARTITIONS_SHOWN]
    rows: list[list[Cell]] = []
    for one in shown:
        is_below = one.trouble is Trouble.BELOW_MIN_ISR
        what = f"{one.trouble.value} of {one.min_isr}" if is_below else one.trouble.value
        rows.append(
            [
                (f"{one.topic}-{one.partition}", Tone.PLAIN),
                (what, Tone.WARN if is_below else Tone.BAD),
                (_ids(one.isr), Tone.PLAIN),
                (_ids(one.elr), Tone.PLAIN),
                (_ids(one.replicas), Tone.PLAIN),
            ]
        )
    yield from _table(columns, rows, settings.width)
    more = view.metadata.leaderless + view.metadata.below_min_isr - len(shown)
    if more > 0:
        yield (Span(f"and {more:,} more partitions", Tone.WARN),)


def _notes(view: View, settings: Settings) -> Iterator[Line]:
    notes = [
        (f"{_clock(one.at_ms)}  controller {one.leader_id} was elected for epoch {one.epoch}", Tone.PLAIN)
        for one in view.elections[-ELECTIONS_SHOWN:]
    ]
    if view.metadata_note is not None:
        notes.append((view.metadata_note, Tone.WARN))
    age_ms = view.metadata_age_ms
    if view.metadata is not None and age_ms is not None and age_ms > WORTH_TELLING_MS:
        notes.append((f"brokers and partitions are those of {duration(age_ms)} ago", Tone.WARN))
    for figures in view.figures:
        name = figures.address if figures.node_id is None else f"node {figures.node_id}"
        if figures.problem is not None:
            notes.append((f"--metrics {figures.address}: {figures.problem}", Tone.WARN))
        elif figures.no_leader_reason is not None:
            notes.append((f"{name} knows no live leader: {figures.no_leader_reason}", Tone.WARN))
    if notes:
        yield ()
    for text, tone in notes:
        for line in wrap(printable(text), settings.width, subsequent_indent="  "):
            yield (Span(line, tone),)


# ------------------------------------------------------------------------------------------------------------ the parts


def _table(columns: Sequence[_Column], rows: Sequence[Sequence[Cell]], width: int) -> Iterator[Line]:
    texts = [[printable(text) for text, _ in row] for row in rows]
    widths = [
        max(len(column.name), *(len(row[at]) for row in texts)) if texts else len(column.name)
        for at, column in enumerate(columns)
    ]
    # `_cut` ends a last column of text; other long tables lose space between their columns first.
    fixed = widths if columns[-1].is_number else [*widths[:-1], len(columns[-1].name)]
    gap = " " * (_GAP if sum(fixed) + _GAP * (len(widths) - 1) <= width else 1)

    def line(cells: Iterable[Cell]) -> Line:
        spans = []
        for at, (text, tone) in enumerate(cells):
            padded = text.rjust(widths[at]) if columns[at].is_number else text.ljust(widths[at])
            spans.append(Span(padded if at == 0 else gap + padded, tone))
        return tuple(spans)

    yield line((column.name, Tone.HEAD) for column in columns)
    for row, text in zip(rows, texts, strict=True):
        yield line((said, tone) for said, (_, tone) in zip(text, row, strict=True))


def _cut(line: Line, width: int) -> Line:
    """The line, with an ellipsis at the end if it is longer than the width."""
    text = "".join(span.text for span in line)
    if len(text.rstrip()) <= width:
        return line
    spans, left = [], width - 1
    for span in line:
        spans.append(Span(span.text[:left], span.tone))
        left -= len(spans[-1].text)
        if left <= 0:
            break
    return (*spans, Span("…", Tone.DIM))


def _age(age_ms: int | None, unknown: str) -> Cell:
    if age_ms is None:
        return unknown, Tone.WARN if unknown == "never" else Tone.PLAIN
    tone = Tone.BAD if age_ms > SILENT_MS else Tone.WARN if age_ms > WORTH_TELLING_MS else Tone.PLAIN
    return duration(age_ms), tone


def _milliseconds(number: float | None) -> Cell:
    if number is None:
        return _NONE, Tone.PLAIN
    tone = Tone.BAD if number > 1_000 else Tone.WARN if number > 100 else Tone.PLAIN
    return (f"{number:.1f} ms" if number < 100 else duration(int(number))), tone


def _number(number: int | None) -> str:
    return _NONE if number is None or number < 0 else f"{number:,}"


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids)) or _NONE


def _clock(at_ms: int) -> str:
    """`20:15:03Z`."""
    moment = None if at_ms < 0 else moment_at(at_ms)
    return _NONE if moment is None else f"{moment:%H:%M:%S}Z"


def duration(ms: int) -> str:
    """A duration with two units at most: `340 ms`, `12.3 s`, `3 m 20 s`, `2 h 5 m`, `3 d 4 h`."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    seconds = ms // 1000
    for size, name, below, small in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= size:
            return f"{seconds // size} {name} {seconds % size // below} {small}"
    raise AssertionError(ms)
