"""Hostile messages in the simulation: they are what they say, they arrive as frames, and a schedule holds them."""

from __future__ import annotations

from random import Random

import pytest

from kraft.invariants.observation import View
from kraft.quorum.values import LeaderAndEpoch, QuorumConfig, ReplicaKey
from kraft.sim import Scenario, Simulator
from kraft.sim.faults.hostile import AttackTarget, absurd_request
from kraft.sim.faults.nemesis import FAULTS, FORGED_FRAMES, ONLY_BY_NAME
from kraft.sim.pictures.execution import execution_lines, execution_of
from kraft.sim.runs.seeded_run import Result
from kraft.sim.search.schedule import Schedule, decode_schedule, encode_schedule, replay
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.search.shrink import shrink
from kraft.sim.world.actions import Action, Crash, Forge, Intrude
from kraft.sim.world.world import NodeEnded
from metadata_log.serde import encode
from metadata_log.types import Uuid
from planted_bugs import planted
from planted_bugs.registry import CLASSIC_FAULTS
from transport.protocol.errors import Error
from transport.protocol.messages import VoteRequest, fetch

VOTERS = tuple(ReplicaKey(node_id) for node_id in (1, 2, 3))
FOLLOWER = AttackTarget(VOTERS[1], View(7, "Follower", LeaderAndEpoch(1, 7), 40, 44, 44), VOTERS, (1, 2, 3))
DRAWS = 400


def settled_simulator(kind: str = "replica") -> Simulator:
    """A quorum with a leader and some records, to which nothing bad happens by itself."""
    simulator = Simulator(Scenario.drawn(kind, 3, 1, config=QuorumConfig()), faults=())
    simulator.begin()
    simulator.run_until(20_000, lambda: simulator.world.has_settled(10))
    assert simulator.world.has_settled(10)
    return simulator


# What is drawn


def test_absurd_requests_get_no_vote_and_acknowledge_no_record() -> None:
    """Those are forgeries, against which a quorum on an open port is helpless, as Kafka's is."""
    rng, votes, fetches = Random(2), 0, 0
    for _ in range(10 * DRAWS):
        message = absurd_request(rng, FOLLOWER).message
        if isinstance(message, VoteRequest) and len(message.topics) == 1 == len(message.topics[0].partitions):
            part = message.topics[0].partitions[0]
            is_sound = (
                0 <= part.replica_epoch < 2**31 - 2
                and part.replica_id >= 0
                and part.last_offset >= 0
                and 0 <= part.last_offset_epoch < part.replica_epoch
                and part.partition_index == 0
                and message.cluster_id == "AAAAAAAAAAAAAAAAAAAkrA"
            )
            assert part.pre_vote or not is_sound or message.topics[0].topic_name == "__cluster_metadatax", message
            votes += 1
        if isinstance(message, fetch.FetchRequest) and message.replica_state.replica_id in FOLLOWER.voter_ids:
            asked = message.topics[0].partitions[0] if message.topics and message.topics[0].partitions else None
            is_whole = asked is not None and len(message.topics) == 1 == len(message.topics[0].partitions)
            if asked is not None and is_whole and message.cluster_id != "AAAAAAAAAAAAAAAAAAAkrZ":
                assert (
                    not 0 <= asked.fetch_offset <= FOLLOWER.view.log_end_offset
                    or not 0 <= asked.last_fetched_epoch <= FOLLOWER.view.epoch
                    or asked.current_leader_epoch != FOLLOWER.view.epoch
                    or message.max_wait_ms < 0
                    or asked.partition != 0
                    or message.topics[0].topic_id != Uuid(bytes(15) + b"\x01")
                ), message
            fetches += 1
    assert votes > DRAWS
    assert fetches > DRAWS // 4


# What becomes of them


def test_a_request_of_an_unknown_sender_is_answered_and_changes_nothing() -> None:
    simulator = settled_simulator()
    world, leader = simulator.world, simulator.leaders()[0]
    part = fetch.FetchPartition(current_leader_epoch=1, fetch_offset=-1, last_fetched_epoch=0)
    message = fetch.FetchRequest(topics=[fetch.FetchTopic(partitions=[part])])
    before = world.hosts[leader].member.view()
    body = encode(message, 18)
    assert world.perform(Intrude(simulator.now_ms, leader, 1, 18, body, "a Fetch of nothing"))
    assert world.hosts[leader].member.view() == before
    assert "intruder: a Fetch of nothing" in world.trace.text
    assert world.perform(Crash(simulator.now_ms, leader, 1))
    assert not world.perform(Intrude(simulator.now_ms, leader, 1, 18, body, "a Fetch of nothing")), "it is down"


def test_a_forged_response_replaces_the_real_one() -> None:
    simulator = settled_simulator()
    world, leader = simulator.world, simulator.leaders()[0]
    exchange = next(one for one in world.under_way(leader) if one.kind == "Fetch")
    sent = world.hosts[exchange.sender].member.wire_request(exchange.message)
    assert sent is not None
    refusal = encode(fetch.FetchResponse(error_code=Error.INCONSISTENT_CLUSTER_ID), sent[1])
    forged = Forge(simulator.now_ms, exchange.sender, leader, exchange.number, "Fetch", refusal, "another cluster")
    assert world.perform(forged)
    assert exchange.is_settled
    assert not world.perform(forged), "a request is answered once"
    assert f"suspects {leader}" in world.trace.text


def test_a_node_ended_by_a_frame_is_an_explained_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = settled_simulator()
    world, leader = simulator.world, simulator.leaders()[0]
    member = world.hosts[leader].member

    def fails(*_: object) -> None:
        raise KeyError("no such topic")

    monkeypatch.setattr(member, "on_frame", fails)
    with pytest.raises(NodeEnded, match=f"node {leader} ends over intruder: x: KeyError: 'no such topic'"):
        world.perform(Intrude(simulator.now_ms, leader, 1, 18, b"", "x"))


@pytest.mark.parametrize("kind", ["core", "replica", "controller", "dynamic"])
@pytest.mark.parametrize("first", range(0, 24, 8))
def test_invariants_hold_under_absurd_frames(kind: str, first: int) -> None:
    print(f"seeds {first} to {first + 7}, {kind}")
    for seed in range(first, first + 8):
        outcome = SeedSearch(members=kind, faults=("absurd-frames",)).run(seed)
        assert isinstance(outcome, Result), outcome.message
        assert outcome.committed > 0


@pytest.mark.parametrize("kind", ["core", "replica", "controller", "dynamic"])
def test_forged_messages_end_no_node_and_no_start(kind: str) -> None:
    for seed in range(8):
        outcome = SeedSearch(members=kind, faults=(FORGED_FRAMES, "crash", "delay", "drop")).run(seed)
        assert isinstance(outcome, Result), outcome.message


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["core", "replica", "controller", "dynamic", "dynamic-controller"])
@pytest.mark.parametrize("faults", [FAULTS, ("absurd-frames",), (FORGED_FRAMES, *CLASSIC_FAULTS)])
def test_hostile_messages_in_many_runs(kind: str, faults: tuple[str, ...]) -> None:
    for seed in range(50_000, 50_300):
        outcome = SeedSearch(members=kind, faults=faults).run(seed)
        assert isinstance(outcome, Result), outcome.message


def test_forged_messages_are_off_by_default() -> None:
    """No quorum on an open port keeps its promises under them."""
    assert FORGED_FRAMES in ONLY_BY_NAME
    assert FORGED_FRAMES not in FAULTS
    assert SeedSearch(faults=(FORGED_FRAMES,)).scenario(1).is_forged
    assert not SeedSearch().scenario(1).is_forged


def test_a_violation_by_hostile_messages_is_saved_shrunk_and_explained() -> None:
    """The schedule holds the whole frame, so that the schedule means the same after attackers draw otherwise."""
    mutant = "minority-elects"
    search = SeedSearch(members="core", mutant=mutant, faults=("absurd-frames",))
    recorded: list[Action] = []
    with planted(None):
        simulator = Simulator(Scenario.drawn("core", 3, 3), faults=("absurd-frames",), recorded=recorded)
        simulator.begin()
        simulator.run_until(1500)
        for node_id in simulator.node_ids:
            simulator.attack(node_id, 3, 1, is_forging=False)
    schedule = Schedule(scenario=search.scenario(3), actions=tuple(recorded))
    assert decode_schedule(encode_schedule(schedule), "file") == schedule
    assert sum(isinstance(action, Intrude) for action in schedule.actions) > 3
    lines = list(execution_lines(execution_of(schedule)))
    assert any("gets a frame of an intruder" in line for line in lines)
    found = search.run(3)
    assert isinstance(found, Schedule)
    assert replay(shrink(found)).failure is not None
    assert isinstance(SeedSearch(members="core", faults=()).run(3), Result)
