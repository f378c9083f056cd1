"""FaultPlan: if it were not a pure function of its seed, or leaked through a cut, simulations would prove nothing."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transport.faults import LOST, FaultPlan, Faults, Kind

HOSTS = ["a", "b", "c", "d"]


def fates(seed: int, faults: Faults, count: int = 200) -> list[tuple[int, ...]]:
    plan = FaultPlan(Random(seed), faults)
    return [plan.decide("a", "b", Kind.REQUEST) for _ in range(count)]


def test_without_faults_messages_arrive_once_and_immediately():
    assert set(fates(1, Faults())) == {(0,)}


def test_fault_decisions_are_determined_by_the_seed():
    faults = Faults(drop=0.2, duplicate=0.2, delay_ms=(1, 50), slow=0.1, slow_ms=(100, 200))
    assert fates(7, faults) == fates(7, faults)
    assert fates(7, faults) != fates(8, faults)


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        (Faults(drop=1.0), LOST),
        (Faults(duplicate=1.0), (0, 0)),
        (Faults(delay_ms=(5, 5)), (5,)),
        (Faults(delay_ms=(5, 5), slow=1.0, slow_ms=(20, 20)), (25,)),
    ],
)
def test_faults_with_probability_one_always_happen(faults: Faults, expected: tuple[int, ...]):
    assert set(fates(3, faults, 20)) == {expected}


def test_fault_rates_are_near_the_configured_ones():
    seen = fates(11, Faults(drop=0.25, duplicate=0.25, delay_ms=(10, 20)), 4000)
    lost = seen.count(LOST) / len(seen)
    twice = sum(len(copies) == 2 for copies in seen) / len(seen)
    assert 0.22 < lost < 0.28
    assert 0.15 < twice < 0.23
    delays = [delay for copies in seen for delay in copies]
    assert min(delays) == 10
    assert max(delays) == 20


@given(
    cuts=st.lists(st.tuples(st.sampled_from(HOSTS), st.sampled_from(HOSTS))),
    isolated=st.lists(st.sampled_from(HOSTS), max_size=2),
)
def test_fault_plan_cuts_exactly_the_requested_links(cuts: list[tuple[str, str]], isolated: list[str]):
    """A fault plan that cut more, or less, than asked would make a scenario test something else than it says."""
    plan = FaultPlan(Random(0))
    for source, target in cuts:
        plan.cut([source], [target])
    for host in isolated:
        plan.isolate(host)
    for source in HOSTS:
        for target in HOSTS:
            expected = source != target and ((source, target) in cuts or source in isolated or target in isolated)
            assert plan.is_cut(source, target, Kind.REPLY) == expected


def test_a_slow_link_delays_both_directions_until_healed():
    plan = FaultPlan(Random(1), Faults(delay_ms=(5, 5)))
    plan.slow_down("a", "b", (100, 100))
    assert plan.decide("a", "b", Kind.REQUEST) == plan.decide("b", "a", Kind.REPLY) == (105,)
    assert plan.decide("a", "c", Kind.REQUEST) == (5,)
    plan.heal("c")
    assert plan.decide("a", "b", Kind.REQUEST) == (105,)
    plan.heal("b")
    assert plan.decide("a", "b", Kind.REQUEST) == (5,)
