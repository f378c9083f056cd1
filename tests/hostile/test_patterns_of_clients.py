"""Patterns of clients: what a turn of a broker matches and compiles, counted in units of the coordinators' budget."""

from __future__ import annotations

from typing import Any, Final

import pytest

from kraft.agenda import Agenda
from kraft.broker.requests import Requests
from kraft.coordinators.runtime.budget import Budget
from kraft.handling.patterns import Pattern
from kraft.limits import COORDINATOR_UNITS_PER_TURN, PATTERN_STEPS_PER_UNIT, PATTERN_UNITS_PER_PORTION
from metadata_log.records.metadata import FeatureLevelRecord
from metadata_log.types import Uuid
from support.broker.consumer_world import World
from support.broker.group_clients import GROUPS, GroupBrokers
from support.broker.request_brokers import NewTopic, topic_id
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

LARGE: Final = "(?:.?){999}#"
"""Twelve characters, nine thousand states."""
CLASS: Final = "".join(chr(0x400 + 2 * at) for at in range(1000))


class Work:
    """The units that each turn compiles and matches."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.turns = [0.0]
        self.matched = 0
        compiles, matches = Pattern.__init__, Pattern.matches

        def compiling(pattern: Pattern, text: str) -> None:
            compiles(pattern, text)
            self.turns[-1] += pattern.units

        def matching(pattern: Pattern, text: str) -> bool:
            self.turns[-1] += pattern.steps(text) / PATTERN_STEPS_PER_UNIT
            self.matched += 1
            return matches(pattern, text)

        def beginning(of: type, name: str) -> None:
            right = getattr(of, name)

            def begin(*args: Any) -> Any:
                self.turns.append(0)
                return right(*args)

            patch.setattr(of, name, begin)

        patch.setattr(Pattern, "__init__", compiling)
        patch.setattr(Pattern, "matches", matching)
        beginning(Requests, "on_request")
        beginning(Agenda, "take_due")


def test_the_groups_of_a_broker_share_the_matches_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    groups, topics = 20, 15
    brokers = GroupBrokers(
        GROUPS, *(NewTopic(f"{at:02}{'t' * 247}", topic_id(20 + at), ((101,),)) for at in range(topics))
    )
    brokers.brokers.change(FeatureLevelRecord(name="group.version", feature_level=1))
    brokers.wait(0)
    work = Work(monkeypatch)
    for at in range(groups):
        request = ConsumerGroupHeartbeatRequest(
            group_id=f"g{at}",
            member_id=str(Uuid(at.to_bytes(16, "big"))),
            rebalance_timeout_ms=30_000,
            subscribed_topic_regex=LARGE,
            topic_partitions=[],
        )
        brokers.send(request, 1)
    brokers.wait(5000)
    large = Pattern(LARGE)
    once = large.units + large.steps("t" * 249) / PATTERN_STEPS_PER_UNIT
    assert work.matched >= groups * topics
    # The last portion may begin just before the units are used up.
    assert max(work.turns) <= COORDINATOR_UNITS_PER_TURN + PATTERN_UNITS_PER_PORTION + once


def test_what_a_member_may_not_see_is_not_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({f"t{at}": 1 for at in range(5)})
    world.denied = {f"t{at}" for at in range(1, 5)}
    work = Work(monkeypatch)
    world.join("one", subscribed_topic_regex="t.*")
    world.wait(1000)
    assert work.matched == 1
    assert world.groups["g"].resolved["t.*"].topics == {"t0"}


def test_the_compilation_of_a_new_pattern_in_a_heartbeat_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    world, taken = World({"t": 1}), list[int]()
    right = Budget.take

    def take(budget: Budget, units: int = 1) -> None:
        taken.append(units)
        right(budget, units)

    monkeypatch.setattr(Budget, "take", take)
    epoch = world.join("one", subscribed_topic_regex="t").member_epoch
    for at in range(3):
        taken.clear()
        epoch = world.send("one", epoch, subscribed_topic_regex=f"[{CLASS}{at}]" + r"\pL*" * 100).member_epoch
        assert sum(taken) > 700
    taken.clear()
    world.send("one", epoch)
    assert sum(taken) == 0, "a pattern that the member has is not compiled again"


def test_a_pattern_that_is_too_large_is_refused_by_its_heartbeat() -> None:
    world = World({"t": 1})
    with pytest.raises(Exception, match="regular expression") as refused:
        world.join("one", subscribed_topic_regex=f"(?i)[^{CLASS}]{{0,1000}}x")
    assert getattr(refused.value, "error", None) is Error.INVALID_REGULAR_EXPRESSION
    assert not world.groups
