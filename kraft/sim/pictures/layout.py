"""The places of a space-time diagram: time downwards, one lane for each node, and the labels beside the lanes.

All arrows stay between the first and the last lane. The times are left of the first lane, and the label of each moment
is right of the last lane in the row of that moment. So no arrow crosses a label.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.sim.pictures.execution import Arrow, Execution
from kraft.sim.pictures.wording import label_of

ROW: Final = 26
"""Pixels from one moment to the next."""
LANE: Final = 92
"""Pixels from one node to the next."""
FIRST_LANE: Final = 112
TOP: Final = 46
BAND: Final = 10
LETTER: Final = 7.5
"""The widest average letter of a label in pixels, at a font size of 12 pixels."""


class Box(Struct, frozen=True):
    """The place of a text."""

    x: float
    y: float
    width: float
    height: float


class Segment(Struct, frozen=True):
    """The line of a message."""

    x1: float
    y1: float
    x2: float
    y2: float
    arrow: Arrow


class Layout(Struct, frozen=True):
    """The places of everything in a diagram."""

    width: int
    height: int
    lanes: dict[int, int]
    """The middle of each node's lane."""
    labels: tuple[Box, ...]
    """The label of each moment."""
    times: tuple[Box, ...]
    """The time of each moment."""
    names: tuple[Box, ...]
    """The name of each node."""
    segments: tuple[Segment, ...]


def y_of(at: int) -> int:
    """The middle of the row of a moment."""
    return TOP + ROW * (at + 1)


def layout_of(execution: Execution) -> Layout:
    """Place the parts of a diagram.

    Args:
        execution: The description of a schedule.

    Returns:
        The places in pixels. No segment touches a label, a time or a name.
    """
    node_ids = tuple(execution.moments[-1].nodes) if execution.moments else ()
    lanes = {node_id: FIRST_LANE + LANE * at for at, node_id in enumerate(node_ids)}
    left = max(lanes.values(), default=FIRST_LANE) + 22
    labels = tuple(
        Box(left, y_of(at) - 9, LETTER * len(label_of(moment)), 18) for at, moment in enumerate(execution.moments)
    )
    times = tuple(_time_box(at, moment.at_ms) for at, moment in enumerate(execution.moments))
    names = tuple(Box(x - 4 * LETTER, 8, 8 * LETTER, 18) for x in lanes.values())
    segments = tuple(
        _segment(arrow, lanes) for arrow in execution.arrows if arrow.sender in lanes and arrow.receiver in lanes
    )
    right = max((box.x + box.width for box in labels), default=left)
    return Layout(int(right) + 12, y_of(len(execution.moments)) + ROW // 2, lanes, labels, times, names, segments)


def _time_box(at: int, at_ms: int) -> Box:
    width = LETTER * len(f"{at_ms:,} ms")
    return Box(FIRST_LANE - 20 - width, y_of(at) - 9, width, 18)


def _segment(arrow: Arrow, lanes: dict[int, int]) -> Segment:
    """The line from lane to lane; of a message that never arrives only the beginning."""
    x1, y1, x2 = lanes[arrow.sender], y_of(arrow.sent), lanes[arrow.receiver]
    edge = BAND // 2 if x2 > x1 else -BAND // 2
    if arrow.arrived is None:
        return Segment(x1 + edge, y1, x1 + (34 if x2 > x1 else -34), y1 + 11, arrow)
    return Segment(x1 + edge, y1, x2 - edge, y_of(arrow.arrived), arrow)
