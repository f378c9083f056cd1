"""Schedules: what happened in a run, written down, replayed, shrunk and found again."""

from __future__ import annotations

import gzip
import re
import sys
from functools import cache
from itertools import combinations
from pathlib import Path

import msgspec
import pytest

from kraft.sim.pictures.execution import execution_lines, execution_of
from kraft.sim.runs.seeded_run import Result
from kraft.sim.search.schedule import BadSchedule, Schedule, check_of, decode_schedule, encode_schedule, replay
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.search.shrink import shrink
from kraft.sim.world.actions import Action, Deliver, Note, Return, RoundTrip
from kraft.sim.world.world import NoProgress
from support import DATA
from support.kraft.command_line import run
from support.kraft.hash_seeds import outputs_of

CLASSIC = ("vote-without-log-check", "vote-in-memory-only", "former-epochs-commit", "minority-commits")

FOUND = [
    decode_schedule(line, "found_schedules.jsonl.gz")
    for line in gzip.decompress((DATA / "found_schedules.jsonl.gz").read_bytes()).splitlines()
]
"""What searches over many seeds once found in the code, or in the checks themselves, as it was shrunk then."""


@cache
def _found(mutant: str, seeds: int = 100) -> Schedule:
    search = SeedSearch(members="core", mutant=mutant, profile="broad")
    for seed in range(seeds):
        outcome = search.run(seed)
        if isinstance(outcome, Schedule):
            return outcome
    pytest.fail(f"{seeds} seeds found nothing wrong with {mutant}")


@cache
def _shrunk(mutant: str) -> Schedule:
    return shrink(_found(mutant))


@pytest.mark.parametrize("members", ["core", "replica", "controller", "cluster"])
def test_a_schedule_replays_its_run_with_the_same_digest(members: str) -> None:
    """Through the file and back: the same digest, and nothing in it that cannot happen."""
    actions: list[Action] = []
    search = SeedSearch(members=members, chaos_ms=3000)
    result = search.run(3, actions)
    assert isinstance(result, Result)
    schedule = Schedule(scenario=search.scenario(3), actions=tuple(actions))
    replayed = replay(decode_schedule(encode_schedule(schedule), "memory"))
    assert replayed.failure is None
    assert replayed.digest == result.digest
    assert replayed.performed == schedule.actions


def test_a_schedule_replays_the_same_in_every_process(tmp_path: Path) -> None:
    file = tmp_path / "schedule.json"
    file.write_bytes(encode_schedule(_found("vote-without-log-check")))
    script = (
        "import sys; from kraft.sim.search.schedule import *; data = open(sys.argv[1], 'rb').read();"
        "print(replay(decode_schedule(data, 'file')).digest)"
    )
    assert len(outputs_of(script, str(file))) == 1


@pytest.mark.parametrize("mutant", CLASSIC)
def test_schedules_of_the_classic_bugs_shrink_below_30_actions(mutant: str) -> None:
    found = _found(mutant)
    lengths: list[int] = []
    shrunk = shrink(found, on_shorter=lengths.append)
    assert len(shrunk.actions) < 30
    assert lengths == sorted(lengths, reverse=True)
    replayed = replay(shrunk)
    assert replayed.failure is not None
    assert check_of(replayed.failure) == found.violated, "another bug than the one that was found"
    assert replayed.performed == shrunk.actions, "what cannot happen does not stand in it"
    assert replay(msgspec.structs.replace(shrunk, mutant=None)).failure is None, "the sound code breaks it, too"


def test_a_schedule_without_progress_of_a_node_shrinks() -> None:
    """The calm phase after the schedule is run anew each time, and the sound code makes progress in it."""
    shrunk = _shrunk("truncation-keeps-the-flushed-offset")
    assert len(shrunk.actions) < 30
    again = decode_schedule(encode_schedule(shrunk), "memory")
    failure = replay(again).failure
    assert isinstance(failure, NoProgress)
    assert check_of(failure) == shrunk.violated
    assert "all faults end" in list(execution_lines(execution_of(again)))[-1]
    assert replay(msgspec.structs.replace(again, mutant=None)).failure is None


@pytest.mark.parametrize("count", [1, 2])
def test_a_shrunk_schedule_is_minimal(count: int) -> None:
    shrunk = _shrunk("minority-commits")
    for left_out in combinations(range(len(shrunk.actions)), count):
        rest = tuple(action for place, action in enumerate(shrunk.actions) if place not in left_out)
        failure = replay(msgspec.structs.replace(shrunk, actions=rest)).failure
        assert failure is None or check_of(failure) != shrunk.violated, left_out


def test_a_round_trip_equals_a_request_and_its_immediate_answer() -> None:
    shrunk = _shrunk("minority-commits")
    one_by_one: list[Action] = []
    for action in shrunk.actions:
        if isinstance(action, RoundTrip):
            at_ms, sender, target, number, kind = action.at_ms, action.node, action.peer, action.number, action.kind
            one_by_one.append(Deliver(at_ms, target, sender, number, kind))
            one_by_one.append(Return(at_ms, sender, target, number, 0, kind))
        else:
            one_by_one.append(action)
    assert len(one_by_one) > len(shrunk.actions)
    assert replay(msgspec.structs.replace(shrunk, actions=tuple(one_by_one))).digest == replay(shrunk).digest


def test_actions_on_unknown_messages_are_skipped() -> None:
    """An edited schedule may name messages that no node sent."""
    search = SeedSearch(members="core")
    lost = Deliver(10, 2, 1, 99, "Vote")
    schedule = Schedule(scenario=search.scenario(0), actions=(lost, Note(20, 0, "nothing")))
    assert replay(schedule).performed == schedule.actions[1:]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text[:-10], "not a schedule"),
        (lambda text: text.replace('"deliver"', '"teleport"'), "not a schedule"),
        (lambda text: text.replace('"format": 1', '"format": 7'), "format 7"),
        (lambda text: text.replace('"mutant": null', '"mutant": "gremlin"'), "gremlin"),
    ],
)
def test_an_invalid_schedule_is_refused(change: object, says: str) -> None:
    assert callable(change)
    schedule = Schedule(scenario=SeedSearch().scenario(0), actions=(Deliver(10, 2, 1, 1),))
    text = encode_schedule(schedule).decode()
    with pytest.raises(BadSchedule, match=says):
        decode_schedule(change(text).encode(), "file")


# The story and the picture


def test_an_explanation_names_sender_message_and_receiver() -> None:
    story = execution_of(_shrunk("minority-commits"))
    assert len(story.moments) == len(story.schedule.actions)
    elected = [at for at, moment in enumerate(story.moments) if "Candidate->Leader elected" in moment.details]
    assert elected, [moment.details for moment in story.moments]
    leader = story.moments[elected[0]].node
    assert story.moments[elected[0]].nodes[leader].state == "Leader"
    arrived = [arrow for arrow in story.arrows if arrow.arrived is not None]
    assert {arrow.what for arrow in arrived} >= {"PreVote", "PreVote answered", "Vote", "Vote answered"}
    assert all(arrow.sent <= arrow.arrived for arrow in arrived if arrow.arrived is not None)
    ends = [(arrow, story.moments[arrow.arrived]) for arrow in arrived if arrow.arrived is not None]
    assert all(moment.node in (arrow.sender, arrow.receiver) for arrow, moment in ends)
    at_once = {arrow.sent for arrow in arrived if arrow.sent == arrow.arrived}
    assert at_once == {at for at, moment in enumerate(story.moments) if moment.what.startswith("asks ")}
    lines = list(execution_lines(story))
    assert len(lines) == len(story.moments)
    assert re.search(f"node {leader}  asks [0-9]: Vote ", lines[elected[0]])


# The command


def test_a_bug_is_found_shrunk_saved_and_replayed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The same seed whether one process looks for it or two."""
    words = ("--seeds", "0..9", "--members", "core", "--mutant", "minority-commits", "--out", str(tmp_path))
    one = run(capsys, "sim", "run", *words, "--jobs", "1")
    two = run(capsys, "sim", "run", *words, "--jobs", "2")
    assert one == two
    assert one.code == 1
    (file,) = tmp_path.iterdir()
    assert f"kraft sim replay {file}" in one.out
    picture = tmp_path / "picture.html"
    again = run(capsys, "sim", "replay", str(file), "--html", str(picture))
    assert "<svg" in picture.read_text()
    assert again.code == 1
    assert decode_schedule(file.read_bytes(), "file").message in again.out
    sound = run(capsys, "sim", "replay", str(file), "--without-mutant", "--quiet")
    assert sound.code == 0
    assert "no invariant was broken" in sound.out


def test_without_the_package_of_planted_bugs_the_commands_say_where_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where Trio-kraft is installed from a wheel, which has none of these bugs."""
    monkeypatch.setitem(sys.modules, "planted_bugs", None)
    for words in (("mutants",), ("run", "--mutant", CLASSIC[0]), ("explore", "--mutant", CLASSIC[0])):
        done = run(capsys, "sim", *words)
        assert (done.code, "in a checkout of Trio-kraft" in done.err) == (2, True), done
    assert run(capsys, "sim", "run", "--seeds", "0", "--members", "core").code == 0
    with pytest.raises(BadSchedule, match="needs the mutant vote-again, which this version does not have"):
        decode_schedule(encode_schedule(msgspec.structs.replace(FOUND[0], mutant="vote-again")), "a file")


@pytest.mark.parametrize(
    "schedule", FOUND, ids=lambda schedule: f"{schedule.scenario.members}-{schedule.scenario.seed}"
)
def test_schedules_of_fixed_bugs_violate_nothing(schedule: Schedule) -> None:
    """A Vote request that named records not yet on disk; and damage of a disk, minimum ISRs and repeated votes that the
    checks did not understand; a bootstrap server that answered late; an old disk of a former only voter.
    """
    replayed = replay(schedule)
    assert replayed.failure is None, f"again: {schedule.message}"


@pytest.mark.parametrize(
    ("members", "seed"), [("dynamic-cluster", 700_023), ("controller", 700_364), ("dynamic", 702_061)]
)
def test_seeds_that_once_showed_a_violation_show_none(members: str, seed: int) -> None:
    """A late reply that looked like a fault; ticks after all other events of a busy node; and a damaged disk that the
    operator replaced while the quorum needed its node.
    """
    outcome = SeedSearch(members=members).run(seed)
    assert isinstance(outcome, Result), outcome.message
