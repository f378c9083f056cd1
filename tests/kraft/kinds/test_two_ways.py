"""Plain commits, commits of transactions and deletions of the same partitions, in any order: each has its effect alone.

The state is compared with a list: what was written, in the order of the log.
"""

from __future__ import annotations

from random import Random

import pytest
from msgspec import Struct, field

from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups.classic import ClassicGroups
from kraft.coordinators.groups.offsets import expired, fetched, tombstone
from kraft.coordinators.groups.state import GroupsState, Place, end_transaction, replay_groups
from kraft.coordinators.runtime.shard import Context, Record
from kraft.coordinators.runtime.timers import Timers
from kraft.handling.coordinators import Counted
from metadata_log.image import MetadataImage
from metadata_log.records.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from metadata_log.serde.codec import finished
from transport.protocol.errors import Error

PLAIN = -1
PRODUCERS = (7, 8, 9)
PLACES: tuple[Place, ...] = (("orders", 0), ("orders", 1))
GROUPS = ("g", "h")
MINUTE_MS = 60_000


def commit(group: str, place: Place, offset: int, at_ms: int = 0) -> Record:
    return Record(OffsetCommitKey(group, *place), OffsetCommitValue(offset, -1, "", at_ms, -1))


class Model(Struct):
    """What was written for each partition of each group: the value, and where in the log."""

    plain: dict[tuple[str, Place], tuple[int, int]] = field(default_factory=dict)
    pending: dict[tuple[int, str, Place], tuple[int, int]] = field(default_factory=dict)

    def end(self, producer: int, *, is_commit: bool) -> None:
        for key in [one for one in self.pending if one[0] == producer]:
            offset, at = self.pending.pop(key)
            if is_commit and at > self.plain.get(key[1:], (0, -1))[1]:
                self.plain[key[1:]] = offset, at

    def delete(self, group: str, place: Place) -> None:
        self.plain.pop((group, place), None)
        for producer in PRODUCERS:
            self.pending.pop((producer, group, place), None)


@pytest.mark.parametrize("seed", range(20))
def test_each_order_of_commits_deletions_and_ends(seed: int) -> None:
    print("seed", seed)
    rng, state, model = Random(f"two ways {seed}"), GroupsState(), Model()
    for at in range(150):
        group, place, offset = rng.choice(GROUPS), rng.choice(PLACES), rng.randrange(100)
        match rng.choice(("plain", "open", "open", "open", "delete", "end")):
            case "plain":
                state = replay_groups(state, commit(group, place, offset), at, PLAIN)
                model.plain[group, place] = offset, at
            case "open":
                producer = rng.choice(PRODUCERS)
                state = replay_groups(state, commit(group, place, offset), at, producer)
                model.pending[producer, group, place] = offset, at
            case "delete":
                state = replay_groups(state, tombstone(group, place), at, PLAIN)
                model.delete(group, place)
            case _:
                producer, is_commit = rng.choice(PRODUCERS), rng.random() < 0.7
                state = finished(end_transaction(state, producer, is_commit=is_commit))
                model.end(producer, is_commit=is_commit)
        for name in GROUPS:
            for one in PLACES:
                known = state.offsets.get(name, {}).get(one)
                assert (known and known.offset) == (model.plain.get((name, one)) or (None,))[0]
                is_open = any((producer, name, one) in model.pending for producer in PRODUCERS)
                assert state.is_pending(name, one) == is_open
                stable = fetched(state, name, one, None, is_stable=True)
                assert (stable is Error.UNSTABLE_OFFSET_COMMIT) == is_open
                assert state.is_known(name, one) == (is_open or known is not None)


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_old_offset_stays_while_a_transaction_has_another_one(*, is_commit: bool) -> None:
    """An abort leaves the old one in force, as if the transaction had not been."""
    place, settings = PLACES[0], GroupConfig(retention_minutes=1)
    state = replay_groups(GroupsState(), commit("g", place, 1), 0, PLAIN)
    state = replay_groups(state, commit("g", place, 2, 10 * MINUTE_MS), 1, PRODUCERS[0])

    def old(state: GroupsState) -> list[Record]:
        context = Context(state, 10 * MINUTE_MS, MetadataImage(), Timers(), Random(0), lambda *_: None)
        groups = ClassicGroups(settings, Counted())
        return expired("g", [place], groups, settings, context, are_last=True)

    assert old(state) == []
    state = finished(end_transaction(state, PRODUCERS[0], is_commit=is_commit))
    assert [type(one.key).__name__ for one in old(state)] == (
        [] if is_commit else ["OffsetCommitKey", "GroupMetadataKey"]
    )
