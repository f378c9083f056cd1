"""A history in parts, each from one saved pass to the next: together they give the rows of one replay.

A saved pass knows since when and why each row is open, so the part in which a row's interval ends writes the whole row,
and a row that crosses a cut appears once. A pass that was saved with every view continues with some of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from metadata_log.errors import ReplayError
from metadata_log.history.engine import HistoryPass, steps
from metadata_log.history.open_rows import Row
from metadata_log.reading.damage import Damage
from metadata_log.reading.place import Place
from metadata_log.reading.timeline import At, Base, TimelineBatch, place_of

Item = Base | TimelineBatch | Damage


def part_rows(
    story: HistoryPass, items: Iterable[Item], *, at: At | None = None, until: Place | None = None
) -> Iterator[tuple[str, Row]]:
    """The rows that a pass writes between its place and another one, or up to the end of the history.

    Args:
        story: The pass at the beginning of the part.
        items: The items behind its place.
        at: The end of the history (inclusive); None for the end of the items.
        until: The place where the next part begins; None for the last part, which writes the open rows too.

    Returns:
        An iterator of rows, as of `rows`.

    Raises:
        ReplayError: A record contradicts the state, or the log no longer has a batch that ends at `until`.
    """
    for _ in part_steps(story, items, at=at, until=until):
        yield from story.sink.take()


def part_steps(
    story: HistoryPass, items: Iterable[Item], *, at: At | None = None, until: Place | None = None
) -> Iterator[None]:
    """Advance a pass through a part; the caller takes the rows of each step. Arguments and errors as of `part_rows`."""
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
