"""A run that somebody watches: it is the run of `kraft sim`, with their faults, and replays with the same digest."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kraft.cli.run.sim import sim_command
from kraft.sim.lab.deeds import DEEDS, BadDeed, Deed
from kraft.sim.lab.kinds import known_kinds
from kraft.sim.lab.link import BadLink, LabRun, fragment_of, run_from
from kraft.sim.lab.page import Page
from kraft.sim.lab.session import LiveSession, ReplaySession
from kraft.sim.runs.seeded_run import Result
from kraft.sim.search.schedule import check_of, decode_schedule, encode_schedule, replay
from kraft.sim.search.seed_search import KINDS, SeedSearch

FAR_MS = 3_600_000


def ended(session: LiveSession | ReplaySession, *, most: int = 100_000) -> LiveSession | ReplaySession:
    while not session.is_over:
        session.advance(FAR_MS, most)
    return session


@pytest.mark.parametrize("most", [7, 100_000])
@pytest.mark.parametrize(
    "search",
    [
        SeedSearch(profile="broad", chaos_ms=2000),
        SeedSearch(members="dynamic", profile="broad", chaos_ms=2000),
        SeedSearch(members="core", profile="slow-disk", chaos_ms=2000),
    ],
    ids=lambda search: search.members,
)
def test_a_watched_run_has_the_digest_of_the_search(search: SeedSearch, most: int) -> None:
    expected = search.run(3)
    assert isinstance(expected, Result)
    session = ended(LiveSession(LabRun(search, 3)), most=most)
    assert session.digest == expected.digest
    assert session.failure is None


def test_a_watched_run_finds_what_the_search_finds() -> None:
    search = SeedSearch(members="core", profile="broad", mutant="vote-in-memory-only")
    seed, found = next((seed, one) for seed in range(50) if not isinstance(one := search.run(seed), Result))
    session = LiveSession(LabRun(search, seed))
    try:
        ended(session)
        assert str(session.failure) == found.message
        assert session.schedule == found
        assert "Violated" in session.verdict
    finally:
        session.close()


WON = re.compile(r"node (\d+) .*becomes Candidate \(pre vote won\)")
GRANTED = re.compile(r"is asked by node (\d+) whether it would vote, and grants that")


def told_of_pre_votes(session: LiveSession | ReplaySession) -> list[tuple[int, bool]]:
    """For each candidate that has won the pre-votes: its id, and whether a grant to it was told before."""
    told, granted = list[tuple[int, bool]](), set[int]()
    for moment in session.notes.told:
        if grant := GRANTED.search(moment.why):
            granted.add(int(grant.group(1)))
        if won := WON.search(moment.what):
            candidate = int(won.group(1))
            told.append((candidate, candidate in granted))
            granted.discard(candidate)
    return told


@pytest.mark.parametrize("members", ["core", "replica"])
def test_no_node_wins_pre_votes_that_were_told_as_refused(members: str) -> None:
    told = list[tuple[int, bool]]()
    for seed in range(6):
        session = LiveSession(LabRun(SeedSearch(members=members, nodes=3, profile="broad", chaos_ms=3000), seed))
        told += told_of_pre_votes(ended(session))
    assert len(told) > 10
    assert [one for one in told if not one[1]] == []


def test_a_pre_vote_against_a_leader_that_is_gone_is_told_as_granted() -> None:
    deeds = (Deed(2924, "crash", (2,)), Deed(4947, "write", (3,), text="a"), Deed(4953, "crash", (3,)))
    session = watched(*deeds, Deed(4953, "restart", (2,)), until_ms=6000)
    told = [moment.why for moment in session.notes.told if "grants that" in moment.why]
    assert any("its leader, node 3, is gone, or has not answered it in this epoch" in why for why in told)
    assert all(was_told for _, was_told in told_of_pre_votes(session))


def test_a_pre_vote_that_a_bug_grants_is_against_the_rule() -> None:
    search = SeedSearch(members="core", profile="by-turns", mutant="vote-without-log-check")
    session = LiveSession(LabRun(search, 0))
    try:
        ended(session)
        assert any(
            "grants that, against the rule: the candidate's log ends" in moment.why for moment in session.notes.told
        )
    finally:
        session.close()


def watched(*deeds: Deed, members: str = "replica", until_ms: int = 4000, nodes: int = 3) -> LiveSession:
    session = LiveSession(LabRun(SeedSearch(members=members, nodes=nodes, profile="quiet"), 7, deeds))
    session.advance(until_ms, 100_000)
    return session


def test_the_visitors_faults_replay_with_the_same_digest() -> None:
    deeds = (
        Deed(1500, "write", (1,), text="a.b, c&d"),
        Deed(1600, "crash", (1,)),
        Deed(2100, "restart", (1,)),
        Deed(2200, "cut", (1, 3)),
        Deed(2300, "slow-disk", (2,), ms=500),
        Deed(2500, "isolate", (2,)),
        Deed(2600, "pause", (3,), ms=700),
        Deed(3600, "heal"),
        Deed(3700, "resign", (1,)),
    )
    session = watched(*deeds, until_ms=6000)
    again = LiveSession(run_from(f"https://lab.example/#{fragment_of(session.run)}"))
    for until_ms in range(0, 6001, 100):
        again.advance(until_ms, 100_000)
    assert again.digest == session.digest
    schedule = decode_schedule(encode_schedule(session.schedule), "saved")
    assert replay(schedule).digest == session.digest
    stepped = ended(ReplaySession(schedule), most=1)
    assert stepped.digest == session.digest
    assert [one.what for one in stepped.notes.told] == [one.what for one in session.notes.told]


def test_a_deed_of_now_is_the_deed_of_the_link() -> None:
    live = watched(until_ms=2000)
    live.do(Deed(0, "crash", (2,)))
    live.advance(3000, 100_000)
    live.do(Deed(0, "restart", (2,)))
    live.advance(5000, 100_000)
    assert [one.name for one in live.run.deeds] == ["crash", "restart"]
    again = LiveSession(run_from(fragment_of(live.run)))
    again.advance(5000, 100_000)
    assert again.digest == live.digest


def test_a_crashed_node_stays_down_until_it_is_started() -> None:
    session = watched(Deed(2000, "crash", (2,)), until_ms=20_000)
    assert not session.world.hosts[2].is_running
    session.do(Deed(0, "restart", (2,)))
    session.advance(21_000, 100_000)
    assert session.world.hosts[2].is_running


def test_a_cut_leader_gets_a_successor_in_a_later_epoch() -> None:
    session = watched(until_ms=3000)
    (leader,) = session.world.leaders()
    session.do(Deed(0, "isolate", (leader,)))
    session.advance(12_000, 100_000)
    now = session.notes.moments[-1].nodes
    assert [one for one in session.world.leaders() if one != leader]
    assert now[leader].epoch < max(one.epoch for one in now.values())
    cuts = next(one.cuts for one in reversed(session.notes.told) if one.cuts is not None)
    assert all(leader in pair for pair in cuts)


def test_a_record_of_the_visitor_is_committed() -> None:
    session = watched(until_ms=3000)
    (leader,) = session.world.leaders()
    before = session.world.invariants.commits.end_offset
    session.do(Deed(0, "write", (leader,), text="hello"))
    session.advance(3400, 100_000)
    assert session.world.invariants.commits.end_offset > before
    assert any("hello" in one.what for one in session.notes.told)


def test_the_visitor_changes_the_voters() -> None:
    session = LiveSession(LabRun(SeedSearch(members="dynamic", nodes=5, profile="quiet"), 3))
    session.advance(4000, 100_000)
    voters = session.world.invariants.voter_sets()[-1].ids
    outside = [one for one in session.world.node_ids if one not in voters]
    assert outside, voters
    session.do(Deed(0, "add-voter", (outside[0],)))
    session.advance(8000, 100_000)
    assert outside[0] in session.world.invariants.voter_sets()[-1].ids
    session.do(Deed(0, "remove-voter", (voters[0],)))
    session.advance(8500, 100_000)
    assert any("RemoveRaftVoter" in one.what for one in session.notes.told)


def test_the_run_says_who_votes_for_whom_and_why() -> None:
    session = watched(until_ms=3000)
    reasons = [one.why for one in session.notes.told if one.why]
    assert any("its first vote in this epoch" in one for one in reasons)
    (leader,) = session.world.leaders()
    other = next(one for one in session.world.node_ids if one != leader)
    session.do(Deed(0, "cut", (other, leader)))
    session.advance(12_000, 100_000)
    later = [one.why for one in session.notes.told if f"asked by node {other}" in one.why]
    assert any("refuses: it hears of its leader" in one for one in later), later


@pytest.mark.parametrize(
    "fragment",
    [
        "seed=x",
        "members=nobody",
        "profile=none-such",
        "bug=none-such",
        "faults=none-such",
        "nodes=99",
        "do=5.crash.1,1.crash.1",
        "do=1",
        "do=x.crash.1",
        "chaos=99999999999",
        "seed=1&do=" + "1.crash.1," * 5000,
    ],
)
def test_a_bad_link_is_refused(fragment: str) -> None:
    with pytest.raises(BadLink):
        run_from(fragment)


@pytest.mark.parametrize(
    "deed",
    [
        Deed(1, "explode", (1,)),
        Deed(1, "crash", (9,)),
        Deed(1, "crash"),
        Deed(1, "cut", (1,)),
        Deed(1, "pause", (1,), ms=10**9),
        Deed(1, "write", (1,), text="x" * 1000),
    ],
)
def test_a_bad_deed_is_refused(deed: Deed) -> None:
    with pytest.raises(BadDeed):
        LiveSession(LabRun(SeedSearch(nodes=3, profile="quiet"), deeds=(deed,)))


def test_each_deed_is_possible_at_any_time() -> None:
    deeds = [
        Deed(at_ms, name, tuple(range(1, 1 + kind.nodes)), 300 if name in ("pause", "slow-disk") else 0)
        for at_ms in (0, 1, 1500, 1500)
        for name, kind in DEEDS.items()
    ]
    session = watched(*deeds, members="dynamic", until_ms=9000)
    assert session.failure is None
    assert len([one for one in session.notes.told if "visitor:" in one.what]) == len(deeds)


def state(text: str) -> Any:
    return json.loads(text)


def test_the_calls_of_the_page() -> None:
    page = Page()
    known = state(page.known())
    assert "raft-figure-8" in [one["name"] for one in known["bugs"]]
    assert [name for name, _ in known["profiles"] if name in ("quiet", "broad")][::-1] == ["quiet", "broad"]
    opened = state(page.open("seed=7&members=replica&nodes=3&profile=quiet", 2000))
    assert opened["node_ids"] == [1, 2, 3]
    assert opened["moments"]
    done = state(page.do("crash", [1], 0, ""))
    assert done["fragment"].endswith("do=2000.crash.1") or ".crash.1" in done["fragment"]
    ahead = state(page.advance(3000, 50))
    assert len(ahead["moments"]) <= 50
    assert page.diagram().startswith("<!doctype html>")
    replayed = state(page.open_schedule(page.saved()))
    assert replayed["fragment"] == ""
    assert state(page.advance(FAR_MS, 100_000))["digest"] == ahead["digest"]


def test_the_page_finds_and_shortens_a_planted_bug() -> None:
    page, told = Page(), list[str]()
    found = state(page.search("vote-in-memory-only", 0, 20, told.append))
    assert found["shrunk"] < found["actions"]
    assert any("violates" in one for one in told)
    opened = state(page.open(found["fragment"], 0))
    while not opened["is_over"]:
        opened = state(page.advance(FAR_MS, 3000))
    assert opened["is_violated"]
    sound = state(page.open("seed=7", 0))
    assert not sound["is_violated"]


@pytest.mark.parametrize("faults", [None, ("crash",), ()])
@pytest.mark.parametrize("profile", ["by-turns", "broad"])
@pytest.mark.parametrize("mutant", [None, "vote-without-log-check"])
def test_a_link_names_the_run_of_a_search(mutant: str | None, profile: str, faults: tuple[str, ...] | None) -> None:
    search = SeedSearch(members="core", nodes=5, mutant=mutant, profile=profile, faults=faults, chaos_ms=100)
    assert run_from(fragment_of(LabRun(search, 9))).search == search


def test_sim_run_prints_the_link_of_what_it_found(tmp_path: Path) -> None:
    where = "https://docs.example/lab/"
    found = CliRunner().invoke(
        sim_command,
        [
            "run",
            "--mutant",
            "vote-in-memory-only",
            "--jobs",
            "1",
            "--seeds",
            "0..20",
            "--out",
            str(tmp_path),
            "--lab",
            where,
        ],
    )
    assert found.exit_code == 1, found.output
    (line,) = (one for one in found.output.splitlines() if one.startswith("lab: "))
    address = line.removeprefix("lab:").strip()
    assert address.startswith(f"{where}#seed=")
    assert len(address) < 120
    session = LiveSession(run_from(address))
    try:
        assert check_of(ended(session).failure or AssertionError()) in found.output
    finally:
        session.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_visitor_may_do_to_each_kind_of_nodes_what_it_is_made_for(kind: str) -> None:
    session = LiveSession(LabRun(SeedSearch(members=kind, nodes=3, profile="quiet"), 7))
    try:
        session.advance(1500, 100_000)
        for name, deed in DEEDS.items():
            made = Deed(0, name, tuple(range(1, 1 + deed.nodes)), 300 if name in ("pause", "slow-disk") else 0)
            with suppress(BadDeed):
                session.do(made)
            session.advance(session.now_ms + 50, 100_000)
        session.advance(2500, 100_000)
        assert session.failure is None
    finally:
        session.close()


def test_nodes_refuse_what_they_are_not_made_for() -> None:
    for kind, name in (("core", "add-voter"), ("store", "write")):
        with pytest.raises(BadDeed, match=r"do not change|commands of their own"):
            LiveSession(LabRun(SeedSearch(members=kind, nodes=3, profile="quiet"), 7, (Deed(9, name, (1,)),)))


def test_the_page_offers_each_kind_and_the_known_ones_first() -> None:
    kinds = known_kinds()
    assert sorted(one.name for one in kinds) == sorted(KINDS)
    assert [one.label for one in kinds[:4]] == [
        "quorum",
        "quorum, voters change",
        "data cluster",
        "groups and transactions",
    ]


def test_a_node_that_is_down_still_has_its_vote_on_disk() -> None:
    session = watched(until_ms=3000)
    (leader,) = session.world.leaders()
    other = next(one for one in session.world.node_ids if one != leader)
    session.do(Deed(0, "crash", (other,)))
    node = next(one.nodes[other] for one in reversed(session.notes.told) if other in one.nodes)
    assert node.now.state == "down"
    assert (node.stored_epoch, node.now.vote) == (1, leader)


def test_a_client_hears_what_became_of_its_record() -> None:
    session = watched(until_ms=3000)
    (leader,) = session.world.leaders()
    other = next(one for one in session.world.node_ids if one != leader)
    session.do(Deed(0, "write", (leader,), text="mine"))
    session.do(Deed(0, "write", (other,), text="yours"))
    session.advance(3400, 100_000)
    told = [one.what for one in session.notes.told]
    assert any("mine is acknowledged" in one for one in told)
    assert any("yours is refused" in one for one in told)
