"""Whatever the cleaner has taken from a log, its share groups are those of the whole log."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

import pytest
from msgspec.structs import replace

from kraft.coordinators.groups.shares.group import ShareGroup
from kraft.coordinators.groups.state import GroupsState, replay_groups
from kraft.coordinators.runtime.shard import Record
from metadata_log.image.persistent_map import Map
from metadata_log.records.batch import scan
from metadata_log.records.consumer_offsets import ShareGroupMetadataKey
from metadata_log.records.coordinator import CONSUMER_OFFSETS, decode_pair, encode_key
from metadata_log.records.record import records
from support.real_data import archive

FILES: Final = archive("share/group/logs")
LOGS: Final = sorted(path for path in FILES if path.endswith(".log"))
Step = tuple[int, bytes, Record]


def steps_of(path: str) -> Iterator[Step]:
    for batch in scan(FILES[path], where=path):
        for one in () if batch.is_control else records(batch, where=path):
            assert one.key is not None
            pair = decode_pair(CONSUMER_OFFSETS, one.key, one.value)
            assert pair is not None
            yield one.offset, encode_key(pair.key), Record(pair.key, pair.value, pair.version)


def cleaned(steps: list[Step], rng: Random) -> list[Step]:
    """The steps after passes of the cleaner up to somewhere: the last of each key, and of old tombstones any part."""
    end = rng.randrange(len(steps) + 1)
    last = {key: offset for offset, key, _ in steps[:end]}
    kept = [one for one in steps[:end] if last[one[1]] == one[0]]
    return [one for one in kept if one[2].value is not None or rng.random() < 0.5] + steps[end:]


def replayed(steps: list[Step]) -> GroupsState:
    state = GroupsState()
    for offset, _, record in steps:
        state = replay_groups(state, record, offset, -1)
    return state


def share_groups(state: GroupsState) -> dict[str, Any]:
    """The share groups, without the order in which their members came."""
    return {
        name: replace(group, joins=0, members=Map({key: replace(one, joined=0) for key, one in group.members.items()}))
        for name, group in state.groups.items()
        if isinstance(group, ShareGroup)
    }


@pytest.mark.parametrize("path", LOGS)
def test_share_groups_are_those_of_the_whole_log(path: str) -> None:
    whole = list(steps_of(path))
    expected = share_groups(replayed(whole))
    for seed in range(12):
        state = replayed(cleaned(whole, Random(f"{path} {seed}")))
        assert share_groups(state) == expected, seed
        held = state.bytes
        for name in expected:
            state = replay_groups(state, Record(ShareGroupMetadataKey(name)), 10_000, -1)
        assert not share_groups(state)
        assert 0 <= state.bytes < held or not expected
