"""Real cores follow behaviours of the specification that TLC has written; a broken core does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from planted_bugs import planted
from support import ROOT
from support.behaviours import ModuleState, read_behaviour, walk
from support.interop.kafka_or_skip import skip_here
from support.kafka_jars import KafkaUnavailable
from support.played_behaviours import KNOWN, REASONS, UnknownRefusal, play
from support.tlc import jar

FIRST = """---------------- MODULE walk_0_0 -----------------
STATE_1 ==
/\\ step = [what |-> "Init", to |-> None, end |-> 0, who |-> None]
/\\ log = (n1 :> <<>> @@ n2 :> <<[epoch |-> 1, life |-> 0, voters |-> None]>>)
/\\ ledger = << >>
/\\ fetches = { [epoch |-> 0,
    replica |-> n1] }


STATE_2 ==
/\\ step = [what |-> "LearnEpoch", to |-> n2, end |-> 3, who |-> n1]
/\\ ledger = (2 :> [log |-> <<>>, hw |-> 0] @@ 3 :> [log |-> <<>>, hw |-> 1])
/\\ heard = (n1 :> FALSE @@ n2 :> TRUE)


=================================================
"""


def of(step: str, **changed: str) -> ModuleState:
    """A state of three replicas of which the first may be another one than at the beginning."""
    variables = {"role": '"Unattached"', "epoch": "0", "leader": "None", "vote": "None", "log": "<<>>"}
    variables |= {"flushed": "0", "hw": "0", "heard": "FALSE", "fresh": "{}"}
    lines = [f"/\\ step = {step}"]
    for name, value in variables.items():
        lines.append(f"/\\ {name} = (n1 :> {changed.get(name, value)} @@ n2 :> {value} @@ n3 :> {value})")
    return read_behaviour("STATE_1 == \n" + "\n".join(lines) + "\n\n\n")[0]


NOMINATE = '[who |-> n1, what |-> "Nominate", to |-> None, end |-> 0]'
INIT = of('[who |-> None, what |-> "Init", to |-> None, end |-> 0]')
NOMINATED = of(NOMINATE, role='"Prospective"')
TOLD_OF_2 = '[who |-> n1, what |-> "LearnLeader", to |-> n2, end |-> {epoch}]'


@pytest.fixture(scope="module")
def polite(tmp_path_factory: pytest.TempPathFactory) -> list[list[ModuleState]]:
    try:
        jar()
    except KafkaUnavailable as unavailable:
        skip_here(f"TLC cannot be run here: {unavailable}")
    return walk(tmp_path_factory.mktemp("walk"), count=5, depth=100, seed=3, polite=True)


def is_followed(states: list[ModuleState]) -> bool:
    try:
        return not play(states).refused
    except AssertionError:  # of the comparison, or of the core
        return False


def test_what_tlc_writes_is_read() -> None:
    first, second = read_behaviour(FIRST)
    assert (first.step.what, first.step.who) == ("Init", 0)
    assert first["log"] == {"n1": (), "n2": ({"epoch": 1, "life": 0, "voters": None},)}
    assert first["fetches"] == [{"epoch": 0, "replica": "n1"}]
    assert first.ledger(1) is None
    assert (second.step.who, second.step.to, second.step.end) == (1, 2, 3)
    assert second.ledger(3) == {"log": (), "hw": 1}
    assert second["heard"] == {"n1": False, "n2": True}


def test_a_step_that_the_module_does_not_allow_is_told_with_both_states() -> None:
    led = of(NOMINATE, role='"Leader"')
    with pytest.raises(
        UnknownRefusal, match=r"(?s)the core:   View\(role='Prospective'.*the module: View\(role='Leader'"
    ):
        play([INIT, led])


def test_a_step_that_no_core_takes_ends_a_behaviour_with_the_reason() -> None:
    follows = of(TOLD_OF_2.format(epoch=1), role='"Follower"', epoch="1", leader="n2")
    doubts = of(NOMINATE, role='"Prospective"', epoch="1", leader="n2")
    again = of(TOLD_OF_2.format(epoch=1), role='"Follower"', epoch="1", leader="n2")
    played = play([INIT, NOMINATED, follows, doubts, again])
    assert played.taken == ["Nominate", "LearnLeader", "Nominate"]
    assert played.refused == KNOWN


def test_cores_follow_every_polite_behaviour(polite: list[list[ModuleState]]) -> None:
    for states in polite:
        played = play(states)
        assert not played.refused
        assert not played.unsaid
        assert len(played.taken) == sum(state.step.what not in ("Init", "Wait") for state in states)


@pytest.mark.parametrize("bug", ["minority-elects", "one-commits", "vote-forgotten-on-following"])
def test_a_broken_core_does_not_follow(bug: str, polite: list[list[ModuleState]]) -> None:
    with planted(bug):
        assert not all(map(is_followed, polite))


def test_the_bench_has_a_table_of_reasons(polite: list[list[ModuleState]]) -> None:
    command = [sys.executable, "bench/behaviours.py", "--count", "5", "--depth", "60", "--seed", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 refused for no known reason" in done.stdout
    assert any(reason in done.stdout for reason in REASONS), done.stdout
