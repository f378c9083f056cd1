"""The colours of a page. Each colour has one meaning on every page, and a pattern or a text repeats that meaning.

The colours are those of Okabe and Ito, in a light and a dark form; colour-blind readers can distinguish them. States
that share a lane also differ in their patterns. A broker's number is written in its marks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from msgspec import Struct


class Look(Struct, frozen=True):
    """The appearance of one meaning.

    Attributes:
        id: The CSS class.
        meaning: The text of the legend.
        light: The colour on a light page.
        dark: The colour on a dark page.
        pattern: The CSS pattern over the colour: plain, stripes, rising, dots or cross.
        severity: The rank of a state; of several states in one place, the page shows the state with the highest rank.
    """

    id: str
    meaning: str
    light: str
    dark: str
    pattern: str = "plain"
    severity: int = 0


ACTIVE: Final = Look("active", "active", "#7cc9ae", "#1f7a5c")
SHUTTING_DOWN: Final = Look("stopping", "in controlled shutdown", "#e6b93c", "#b98a10", "stripes", 1)
FENCED: Final = Look("fenced", "fenced", "#5a5f6b", "#a9b0bf", "cross", 2)
NO_CONTROLLER: Final = Look("headless", "no active controller", "#8a2c6e", "#d070b4", "rising", 3)
NO_LEADER: Final = Look("leaderless", "no leader", "#c1121f", "#ff5c5c", "plain", 6)
BELOW_MIN_ISR: Final = Look("below", "below min.insync.replicas", "#e07b39", "#d9702b", "stripes", 5)
OUT_OF_SYNC: Final = Look("lagging", "a replica not in sync", "#f3dc8c", "#8f7a22", "dots", 4)
AMOUNT: Final = Look("amount", "how many", "#6b7a94", "#8796b3")

_BROKERS: Final = (
    ("#0072b2", "#3d9bd8"),
    ("#79c5f0", "#1d5f86"),
    ("#8c6bb1", "#a98bd0"),
    ("#a8a236", "#7d7820"),
    ("#d9a5c2", "#96507a"),
    ("#7a5548", "#b08a7b"),
)
OTHER_BROKER: Final = Look("broker-other", "another broker as leader", "#c3c8d1", "#4a5160")

LOOKS: Final = (
    ACTIVE,
    SHUTTING_DOWN,
    FENCED,
    NO_CONTROLLER,
    NO_LEADER,
    BELOW_MIN_ISR,
    OUT_OF_SYNC,
    AMOUNT,
    OTHER_BROKER,
)
"""Every look apart from those of single brokers."""


def broker_looks(leaders: Iterable[int]) -> dict[int, Look]:
    """The look of each broker as a leader.

    Args:
        leaders: The leader of each span on the page; -1 is no leader.

    Returns:
        A look for each broker. The six brokers with the most spans have colours of their own; the others share one.
    """
    counts = Counter(leader for leader in leaders if leader >= 0)
    ranked = sorted(counts, key=lambda broker: (-counts[broker], broker))
    own = sorted(ranked[: len(_BROKERS)])
    looks = dict.fromkeys(ranked, OTHER_BROKER)
    for broker, (light, dark) in zip(own, _BROKERS, strict=False):
        looks[broker] = Look(f"broker-{broker}", f"broker {broker} as leader", light, dark)
    return looks
