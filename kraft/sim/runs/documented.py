"""The violations that a static quorum may show after its operator has broken the rules for lost disks.

A static voter with an empty disk keeps its id, and so votes and acknowledges a second time: see
`docs/howto/damaged-disk.md`. Kafka's simulation loses no disks.
"""

from __future__ import annotations

from traceback import walk_tb
from typing import Final

from kraft.invariants.violation import InvariantViolated
from kraft.sim.world.world import World

DOCUMENTED: Final = {
    "_check_leader": "an epoch has two leaders, as a voter votes twice",
    "_append": "two leaders of an epoch write different records at one offset",
    "_check_leading": "a leader lacks committed records",
    "_cut": "a follower truncates committed records",
    "_check_high_watermark": "two nodes have committed different records",
}
"""What may happen, by the check that notices it."""


def documented(world: World, failure: InvariantViolated) -> str:
    """What a violation means, if a lost disk that has returned against the rules explains it; otherwise empty."""
    if not world.disk_losses.has_broken_rules:
        return ""
    names = [frame.f_code.co_name for frame, _ in walk_tb(failure.__traceback__)]
    return next((meaning for name, meaning in DOCUMENTED.items() if name in names), "")
