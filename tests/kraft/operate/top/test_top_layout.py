"""The screen as text: what an operator reads in 80 columns, and in fewer, without colour."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kraft.operate.top.layout import Layout, Settings, duration, layout, text_lines
from kraft.operate.top.model import Model
from kraft.operate.top.samples import Election, NodeFigures, Sample, Trouble
from support.kraft.top_samples import (
    METADATA,
    NOW_MS,
    SILENT,
    broker,
    quorum,
    replica,
    sample,
    trouble,
)

LIVE = Settings(interval_s=1.0)


def laid_out(*samples: Sample, settings: Settings = LIVE) -> Layout:
    model = Model()
    for one in samples:
        model.take(one)
    return layout(model.view(settings.sort), settings)


def lines(*samples: Sample, settings: Settings = LIVE) -> list[str]:
    found = laid_out(*samples, settings=settings)
    return text_lines((*found.head, *found.body))


def test_elections_notes_and_figures_have_their_lines() -> None:
    election = Election(epoch=14, leader_id=2, at_ms=NOW_MS + 61_000, offset=9)
    figures = (
        NodeFigures(address="h:1", node_id=1, fsync_s=0.0015, longest_turn_s=2.5),
        NodeFigures(address="h:2", problem="Connection refused"),
        NodeFigures(address="h:3", node_id=3, no_leader_reason="leader-silent"),
    )
    found = lines(sample(), sample(62.0, elections=(election,), figures=figures, metadata_note="x\x1b[2Jy " * 20))
    assert "1 election since 22:13:20Z" in found[1]
    assert found[4].endswith("FSYNC   TURN")
    assert found[5].endswith("1.5 ms  2.5 s")
    assert "22:14:21Z  controller 2 was elected for epoch 14" in found
    assert "--metrics h:2: Connection refused" in found
    assert "node 3 knows no live leader: leader-silent" in found
    assert all("\x1b" not in line for line in found)


@pytest.mark.parametrize("width", [20, 40, 60, 79, 80, 132, 200])
@pytest.mark.parametrize("is_silent", [False, True])
def test_no_line_is_longer_than_the_screen(width: int, is_silent: bool) -> None:
    end = 123_456_789_012
    huge = quorum(
        *(
            replica(node_id, ago_ms=node_id * 40_000_000, behind=node_id * 10**9, end=end)
            for node_id in range(3_000, 3_005)
        ),
        leader=3_000,
        epoch=1_234_567,
        high_watermark=end,
    )
    metadata = replace(
        METADATA,
        partitions=1_000_000,
        leaderless=1_000,
        brokers=tuple(broker(one) for one in range(10_000, 10_050)),
        troubled=tuple(trouble("t" * 249, Trouble.NO_LEADER, *range(10_000, 10_010)) for _ in range(1_000)),
    )
    what = replace(SILENT, problem="x" * 900) if is_silent else huge
    found = laid_out(sample(0, what, metadata=metadata), settings=replace(LIVE, width=width))
    assert max(len(line) for line in text_lines((*found.head, *found.body))) <= max(width, 40)
    assert len(found.head) <= 6
    assert text_lines(found.body)[-1] == "and 801 more partitions"


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (12_345, "12.3 s"),
        (200_000, "3 m 20 s"),
        (7_500_000, "2 h 5 m"),
        (273_600_000, "3 d 4 h"),
    ],
)
def test_durations_have_two_units_at_most(ms: int, text: str) -> None:
    assert duration(ms) == text
