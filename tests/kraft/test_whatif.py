"""Forecasts against a real cluster: brokers were killed, and the forecast made before equals what the controller then
did.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from kraft.config.data_settings import TopicDefaults
from kraft.controller.topics.leader_selection import Election
from kraft.whatif import ImageOutcome, UnknownName, elect, fail, fail_rack, leaderships, reassign, shut_down
from metadata_log import replay
from metadata_log.image import MetadataImage
from metadata_log.reading.timeline import At
from support.real_data import archive, unpack

DEFAULTS = TopicDefaults()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a controller of a cluster that lost one broker after the other."""
    return unpack("clusters", "failover/nodes/c1", tmp_path_factory.mktemp("failover"))


def kills() -> list[tuple[int, int, int]]:
    """Every broker that was killed alone: when, which, and when its partitions had settled."""
    marks = json.loads(archive("history")["failover/operations.json"])["marks"]
    return [
        (mark["t_ms"], mark["broker"], later["t_ms"])
        for mark, later in pairwise(marks)
        if mark["event"] == "kill -9" and later["event"] == "observed while down"
    ]


def state(image: MetadataImage) -> dict[tuple[str, int], tuple[int, tuple[int, ...]]]:
    """The leader and the ISR of every partition."""
    return {
        (name, number): (partition.leader, tuple(sorted(partition.isr)))
        for name in image.topics
        for number, partition in enumerate(image.topics[name].partitions)
    }


@pytest.mark.parametrize("kill", kills())
def test_a_killed_broker_gives_the_predicted_state(directory: Path, kill: tuple[int, int, int]) -> None:
    killed_ms, broker, settled_ms = kill
    before = replay(str(directory), At(timestamp_ms=killed_ms))
    outcome = fail(before, [broker], DEFAULTS)
    earlier, happened = state(before), state(replay(str(directory), At(timestamp_ms=settled_ms)))
    assert state(outcome.after) == happened
    below = {(each.topic, each.partition) for each in outcome.partitions if each.falls_below_min_isr}
    limits = {name: int(before.configs.of((2, name)).get("min.insync.replicas", "1")) for name in before.topics}
    assert below == {
        key
        for key, (leader, isr) in happened.items()
        if leader >= 0 and len(isr) < limits[key[0]] <= len(earlier[key][1])
    }


@pytest.fixture(scope="module")
def image(directory: Path) -> MetadataImage:
    return replay(str(directory))


def test_brokers_fail_one_after_the_other(image: MetadataImage) -> None:
    outcome = fail(image, [101, 102], DEFAULTS)
    offline = [each for each in outcome.partitions if each.goes_offline]
    assert {frozenset(each.before.replicas) for each in offline} == {frozenset({101, 102})}
    assert all(each.after.leader == 103 for each in outcome.partitions if 103 in each.before.replicas)
    assert leaderships(outcome.after) == {101: 0, 102: 0, 103: 169, -1: 31}


def test_failing_a_rack_equals_failing_its_brokers(image: MetadataImage) -> None:
    (broker,) = [one.id for one in image.brokers.by_id.values() if one.rack == "rack-1"]
    assert fail_rack(image, "rack-1", DEFAULTS) == fail(image, [broker], DEFAULTS)
    with pytest.raises(UnknownName, match="no broker is registered in rack moon"):
        fail_rack(image, "moon", DEFAULTS)


def test_a_controlled_shutdown_gives_the_leaders_of_a_failure(image: MetadataImage) -> None:
    stopped, killed = shut_down(image, [102], DEFAULTS), fail(image, [102], DEFAULTS)
    assert state(stopped.after) == state(killed.after)
    assert stopped.after.brokers.by_id[102].in_controlled_shutdown


def test_preferred_leaders_come_back(image: MetadataImage) -> None:
    down = fail(image, [103], DEFAULTS).after
    assert not elect(image, Election.UNCLEAN, DEFAULTS).partitions
    outcome = elect(down, Election.PREFERRED, DEFAULTS)
    assert all(each.after.leader == each.before.replicas[0] for each in outcome.partitions)


def test_unclean_elections_are_marked_with_possible_data_loss(image: MetadataImage) -> None:
    """All of a partition's brokers are gone but one that was not in sync when the last leader went."""
    shrunk = fail(image, [101], DEFAULTS).after
    alone = fail(shrunk, [102], TopicDefaults(unclean_election=True))
    assert not any(each.loses_data for each in alone.partitions), "103 is in sync everywhere"
    offline = fail(image, [101, 102], DEFAULTS).after
    assert not elect(offline, Election.UNCLEAN, DEFAULTS).partitions, "no broker that holds them is left"


def test_a_reassignment_ends_on_its_target(image: MetadataImage) -> None:
    rng = Random(5)
    targets = {
        (name, number): tuple(rng.sample([101, 102, 103], rng.randint(1, 3)))
        for name in list(image.topics)[:10]
        for number in range(3)
    }
    outcome = reassign(image, targets, DEFAULTS)
    for (name, number), replicas in targets.items():
        partition = outcome.after.topics[name].partitions[number]
        assert (partition.replicas, partition.is_reassigning) == (replicas, False)
        assert partition.leader in partition.isr
        assert set(partition.isr) == set(replicas)
    with pytest.raises(UnknownName, match="there is no partition missing-0"):
        reassign(image, {("missing", 0): (101,)}, DEFAULTS)
    with pytest.raises(UnknownName, match="broker 7 is not registered"):
        reassign(image, {(next(iter(image.topics)), 0): (7,)}, DEFAULTS)


def test_predictions_do_not_change_the_image(image: MetadataImage) -> None:
    before = state(image)
    outcome: ImageOutcome = fail(image, [101, 102, 103], DEFAULTS)
    assert outcome.before is image
    assert state(image) == before
