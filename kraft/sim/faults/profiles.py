"""The profiles of runs: a broad one, in which each seed draws its own mix of all faults, and focused ones with
a few faults that belong together (swarm testing; Kafka's simulation has one fixed mix for each of its tests).

By default the profiles of a kind of members take turns, seed by seed. A focused profile has all of its faults in every
run, strikes more often, and changes settings of the quorum, so that the situation of its name is common.
"""

from __future__ import annotations

from random import Random
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.quorum.values import QuorumConfig
from kraft.sim.faults.nemesis import FAULTS

_CRASHES: Final = ("crash", "crash-leader", "crash-all", "crash-within-a-step")
_PARTITIONS: Final = ("split", "isolate-leader", "heal")
_NETWORK: Final = ("drop", "delay", "reorder")
_DAMAGE: Final = ("disk-rot", "disk-wiped", "disk-swapped")


class Profile(Struct, frozen=True, kw_only=True):
    """The faults of a run, and the settings that make these faults count."""

    name: str
    what: str
    """A description in one sentence."""
    faults: tuple[str, ...] = FAULTS
    """The names of the possible faults."""
    is_focused: bool = True
    """Whether every run has all of these faults, and not a part of them that the seed draws."""
    pauses_ms: tuple[int, ...] | None = None
    """The mean times between faults, of which a run draws one; None for the usual ones. Dynamic quorums and clusters
    have times of their own.
    """
    writes_ms: tuple[int, ...] | None = None
    """The mean times between submissions, of which a run draws one, with the same exceptions."""
    most_at_once: int = 1
    """The most submissions at one moment."""
    flush_ms: tuple[int, ...] = (1,)
    """The longest times of an fsync, of which each node draws one for the beginning."""
    nodes: tuple[int, ...] = (3,)
    """The numbers of voters, of which a run draws one unless the caller has chosen the number."""
    linger_ms: int | None = None
    """How long a leader waits for more records of a batch, in ms; None for a drawn time."""
    batch_bytes: tuple[int, ...] = ()
    """The limits of a batch in bytes, of which a run draws one; empty for the default of the quorum."""
    has_snapshots: bool = False
    """Whether plain replicas and controllers make snapshots, too."""
    has_dynamic_damage: bool = False
    """Whether the disks of a dynamic quorum may be damaged, too."""
    budget: int = 200
    """The number of seeds of this profile that a search should run: most planted bugs of its kind need fewer. Rare
    profiles have a turn in every eighth round only, so that a search by turns seldom reaches their budgets.
    """
    is_careless: bool = False
    """Whether the operator starts static voters with lost disks at any time, which breaks promises."""
    has_small_logs: bool = False
    """Whether the logs of brokers with data are small, and are copied and fetched in small steps."""
    has_full_directories: bool = False
    """Whether brokers with data have two log directories, of which one is full when the last records are written."""
    late_ms: int = 0
    """The most by which the network delays some of the messages that overtake each other at a leader of a partition:
    answers of the controller, metadata, and fetches of followers.
    """

    has_strikes: bool = True
    """Whether faults strike at drawn times; else only somebody who watches the run injects faults."""

    has_former_selves: bool = False
    """Whether late requests of replicas with lost disks reach the leaders of dynamic quorums."""

    def nodes_of(self, seed: int) -> int:
        """The number of voters in the run of a seed."""
        return Random(f"{seed}/nodes").choice(self.nodes)

    def tune(self, config: QuorumConfig, seed: int) -> QuorumConfig:
        """Change the drawn settings of a quorum, with a stream of random numbers of its own."""
        rng = Random(f"{seed}/profile")
        if self.batch_bytes:
            config = replace(config, max_batch_bytes=rng.choice(self.batch_bytes))
        if self.has_snapshots:
            config = replace(config, fetch_snapshot_max_bytes=rng.choice((100, 300, 1_048_576)))
        return config if self.linger_ms is None else replace(config, append_linger_ms=self.linger_ms)


BROAD: Final = Profile(name="broad", what="A mix of all faults, which the seed draws.", budget=1000, is_focused=False)
SLOW_DISK: Final = Profile(
    name="slow-disk",
    what="Long fsyncs, frequent writes, crashes and partitions.",
    faults=(*_NETWORK, "slow-disk", *_CRASHES, *_PARTITIONS, "stranded-leaders"),
    pauses_ms=(400, 1000),
    writes_ms=(5, 20),
    flush_ms=(20, 200, 1000, 4000),
    nodes=(3, 3, 5),
)
FULL_BATCHES: Final = Profile(
    name="full-batches",
    what="Small batches, and many records at once that do not fit into one batch.",
    is_focused=False,
    writes_ms=(20, 100),
    most_at_once=40,
    linger_ms=25,
    batch_bytes=(512, 700, 1500),
    nodes=(3, 3, 5),
)
PARTITIONS: Final = Profile(
    name="partitions",
    what="Four to seven voters, and partitions that last.",
    faults=(*_NETWORK, *_PARTITIONS, "cut-one-way", "cut-requests", "cut-links", "slow-links", "crash"),
    pauses_ms=(600, 2000),
    nodes=(4, 5, 5, 7),
)
SNAPSHOTS: Final = Profile(
    name="snapshots-and-rot",
    what="Frequent snapshots, and disks that are damaged, wiped or replaced.",
    faults=(*_NETWORK, *_DAMAGE, *_CRASHES, "isolate-leader", "heal"),
    pauses_ms=(200, 600),
    writes_ms=(10, 50),
    nodes=(3, 5),
    has_snapshots=True,
)
VOTERS: Final = Profile(
    name="voters-and-rot",
    what="Changes of the voters, and disks that are damaged or replaced.",
    faults=(*_NETWORK, "disk-rot", "disk-swapped", "crash", "crash-leader", *_PARTITIONS),
    nodes=(4, 5),
    has_dynamic_damage=True,
)
WIPED_VOTERS: Final = Profile(
    name="wiped-static-voters",
    what="Static voters that return at once with empty disks, against the rules for operators.",
    faults=(*_NETWORK, "disk-wiped", "slow-disk", *_CRASHES, *_PARTITIONS),
    pauses_ms=(400, 1000),
    writes_ms=(5, 20),
    flush_ms=(20, 200, 1000),
    is_careless=True,
)
UNCHECKED: Final = Profile(
    name="unchecked-bytes",
    what="Damage of quorum-state and of the epochs of batches, which no checksum covers.",
    faults=(*_NETWORK, "quorum-state-damaged", "batch-epochs-damaged", "crash", "crash-leader", *_PARTITIONS),
    pauses_ms=(200, 600),
    writes_ms=(10, 50),
    nodes=(3, 5),
    has_dynamic_damage=True,
)
CORRUPTION: Final = Profile(
    name="corruption",
    what="Responses with records that are corrupted in transit, and frames that are cut.",
    faults=(*_NETWORK, "duplicate", "corrupted-answers", "crash", "crash-leader", *_PARTITIONS),
    pauses_ms=(200, 600),
    writes_ms=(5, 20),
    nodes=(3, 5),
    has_snapshots=True,
)
CLOCKS: Final = Profile(
    name="clocks",
    what="Clocks that step forward and back between two lives of a node, and run at different rates.",
    faults=(*_NETWORK, "clock-steps", "wrong-clock", "crash", "crash-leader", "pause", *_PARTITIONS),
    pauses_ms=(200, 600),
    writes_ms=(5, 20, 100),
    nodes=(3, 5),
    has_snapshots=True,
)
RECORDS: Final = Profile(
    name="records",
    what="Crashes, power failures, and cuts between brokers that hold records.",
    faults=(
        *(*_NETWORK, "duplicate", "crash", "crash-all", "crash-within-a-step", "shut-down", "pause"),
        *(*_PARTITIONS, "cut-links", "slow-links"),
    ),
)
SMALL_LOGS: Final = Profile(
    name="small-logs",
    what="Brokers that restart at once, slow followers, retention by size, compaction, and slow moves of logs.",
    faults=(
        *("delay", "reorder", "duplicate", "crash", "crash-all", "quick-restarts", "pause", "shut-down"),
        *("cut-links", "slow-links", "heal"),
    ),
    pauses_ms=(300, 1000),
    has_small_logs=True,
)
FULL_DIRECTORIES: Final = Profile(
    name="full-directories",
    what="Brokers with two log directories, of which one is full: its partitions go on at the other brokers.",
    faults=("delay", "reorder", "duplicate", "directory-full", "crash", "pause", "shut-down", "cut-links", "heal"),
    pauses_ms=(300, 1000),
    has_full_directories=True,
)
OVERTAKING: Final = Profile(
    name="overtaking",
    what="Answers of the controller, metadata and fetches of restarted followers that overtake each other at leaders.",
    faults=("delay", "reorder", "duplicate", "crash", "quick-restarts", "pause"),
    pauses_ms=(1500, 4000),
    budget=100,
    late_ms=2500,
)
FORMER_SELVES: Final = Profile(
    name="former-selves",
    what="Late requests of replicas with lost disks, and leaders that change while snapshots are downloaded.",
    faults=(*_NETWORK, "duplicate", "slow-messages", "crash", "crash-leader", "resign", "isolate-leader", "heal"),
    pauses_ms=(300, 1000),
    nodes=(3, 4, 5),
    budget=100,
    has_former_selves=True,
)
QUIET: Final = Profile(
    name="quiet",
    what="No faults of its own, for somebody who watches and injects them (`docs/howto/lab.md`).",
    faults=(),
    writes_ms=(500,),
    nodes=(3, 5),
    has_strikes=False,
)
PROFILES: Final[dict[str, Profile]] = {
    profile.name: profile
    for profile in (
        BROAD,
        SLOW_DISK,
        FULL_BATCHES,
        PARTITIONS,
        SNAPSHOTS,
        VOTERS,
        UNCHECKED,
        CORRUPTION,
        CLOCKS,
        RECORDS,
        SMALL_LOGS,
        FULL_DIRECTORIES,
        OVERTAKING,
        FORMER_SELVES,
        WIPED_VOTERS,
        QUIET,
    )
}
"""All profiles by name. The last two have no turn: one may end with a documented violation, the other has no faults."""
BY_TURNS: Final = "by-turns"
"""The name for the choice of a profile by the seed."""
_DYNAMIC: Final = (BROAD, VOTERS, SLOW_DISK)
_TURNS: Final[dict[str, tuple[Profile, ...]]] = {
    "core": (BROAD, SLOW_DISK, PARTITIONS, FULL_BATCHES),
    "replica": (BROAD, SLOW_DISK, SNAPSHOTS, PARTITIONS, FULL_BATCHES),
    "controller": (BROAD, SLOW_DISK, SNAPSHOTS, PARTITIONS, FULL_BATCHES),
    "state-machine": (BROAD, SLOW_DISK, SNAPSHOTS),
    "store": (BROAD, SNAPSHOTS),
    "dynamic": _DYNAMIC,
    "dynamic-controller": _DYNAMIC,
    "upgraded-controller": _DYNAMIC,
    "cluster": (BROAD, SLOW_DISK, SNAPSHOTS),
    "data-cluster": (BROAD, RECORDS),
    "dynamic-data-cluster": (BROAD, RECORDS),
    "combined-cluster": (BROAD, RECORDS),
    "coordinator-cluster": (BROAD, RECORDS),
    "share-cluster": (BROAD, RECORDS),
}
"""The profiles that take turns, by the kind of members; the broad one alone for any other kind."""
_RARE: Final[dict[str, tuple[Profile, ...]]] = {
    "replica": (UNCHECKED, CORRUPTION, CLOCKS),
    "controller": (UNCHECKED, CORRUPTION, CLOCKS),
    "state-machine": (UNCHECKED, CORRUPTION, CLOCKS),
    "store": (CLOCKS,),
    "dynamic": (UNCHECKED, CORRUPTION, CLOCKS, FORMER_SELVES),
    "dynamic-controller": (UNCHECKED, CORRUPTION, CLOCKS, FORMER_SELVES),
    "upgraded-controller": (UNCHECKED, CORRUPTION, CLOCKS, FORMER_SELVES),
    "cluster": (UNCHECKED, CORRUPTION, CLOCKS),
    "dynamic-cluster": (FORMER_SELVES,),
    "data-cluster": (SMALL_LOGS, FULL_DIRECTORIES, OVERTAKING),
    "dynamic-data-cluster": (SMALL_LOGS, FULL_DIRECTORIES, OVERTAKING, FORMER_SELVES),
    "combined-cluster": (SMALL_LOGS, FULL_DIRECTORIES, OVERTAKING),
}
"""The profiles that take turns among themselves in every eighth round of the others, by the kind of members."""
_ROUNDS: Final = 8


def profiles_of(members: str) -> tuple[Profile, ...]:
    """The profiles that take turns for a kind of members, in the order of their turns."""
    return _TURNS.get(members, (BROAD,))


def rare_profiles_of(members: str) -> tuple[Profile, ...]:
    """The profiles that have the turns of every eighth round, in the order of their turns."""
    return _RARE.get(members, ())


def profile_of(members: str, seed: int) -> Profile:
    """The profile that has its turn with a seed. Seed 0 is a broad run.

    The profiles of every eighth round came later. All other seeds keep their profiles.
    """
    profiles, rare = profiles_of(members), rare_profiles_of(members)
    rounds, turn = divmod(seed, len(profiles))
    if not rare or rounds % _ROUNDS != _ROUNDS - 1:
        return profiles[turn]
    return rare[(rounds // _ROUNDS * len(profiles) + turn) % len(rare)]
