"""New replicas are spread over racks and brokers, whatever the brokers and the seed."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.access.errors import ApiError
from kraft.controller.topics.placement import UsableBroker, place
from transport.protocol.errors import Error

BROKERS = st.lists(st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1, max_size=9).map(
    lambda facts: [UsableBroker(number, rack, fenced) for number, (rack, fenced) in enumerate(facts)]
)


@given(brokers=BROKERS, count=st.integers(1, 40), seed=st.integers(0, 2**32), data=st.data())
def test_every_placement_uses_distinct_brokers_and_all_racks(
    brokers: list[UsableBroker], count: int, seed: int, data: st.DataObject
) -> None:
    unfenced = [broker.id for broker in brokers if not broker.fenced]
    factor = data.draw(st.integers(1, len(brokers)))
    if not unfenced:
        with pytest.raises(ApiError) as refused:
            place(brokers, count, factor, Random(seed))
        assert refused.value.error is Error.INVALID_REPLICATION_FACTOR
        return
    placements = place(brokers, count, factor, Random(seed))
    assert placements == place(list(brokers), count, factor, Random(seed)), "the random source decides alone"
    rack_of = {broker.id: broker.rack for broker in brokers}
    assert len(placements) == count
    for replicas in placements:
        assert len(replicas) == len(set(replicas)) == factor
        assert replicas[0] in unfenced
        assert len({rack_of[broker] for broker in replicas}) == min(factor, len(set(rack_of.values())))


@pytest.mark.parametrize("seed", range(5))
def test_leaders_go_round(seed: int) -> None:
    brokers = [UsableBroker(number, f"rack-{number % 3}", fenced=False) for number in range(6)]
    leaders = Counter(replicas[0] for replicas in place(brokers, 6 * 10, 3, Random(seed)))
    assert set(leaders.values()) == {10}


@pytest.mark.parametrize(
    ("factor", "brokers"),
    [(0, 3), (-1, 3), (4, 3)],
)
def test_an_impossible_placement_is_refused(factor: int, brokers: int) -> None:
    with pytest.raises(ApiError) as refused:
        place([UsableBroker(number, None, fenced=False) for number in range(brokers)], 1, factor, Random(0))
    assert refused.value.error is Error.INVALID_REPLICATION_FACTOR
