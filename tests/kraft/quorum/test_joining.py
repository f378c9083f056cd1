"""Replicas that join by themselves, and two running ones with one node id (KIP-1186, decision 0017)."""

from __future__ import annotations

from random import Random

import pytest

from kraft.quorum.effects import AppendControl, PeerFault
from kraft.quorum.joining import Joining
from kraft.quorum.messages import ProbeVersions, ProbeVersionsReply
from kraft.quorum.values import OWN_KRAFT_VERSIONS, QuorumConfig, ReplicaKey, VersionRange
from kraft.quorum.voter_history import VoterHistory
from kraft.quorum.voters import QuorumChange, Voter, VoterSet
from kraft.sim.world.member_interface import Answer, Flush, Output, SimulatedRequest
from metadata_log.records.control import VotersRecord
from metadata_log.types import Uuid
from support.kraft.one_core import endpoints
from support.transcripts.voters import DynamicMember, key_of, name_of, voter_of


def directory(number: int) -> ReplicaKey:
    return ReplicaKey(2, Uuid(bytes(15) + bytes([number])))


def sets(*entries: ReplicaKey | None) -> VoterHistory:
    """Voter sets at the offsets 0, 10, 20 …: each with this voter beside the voter 1."""
    one = Voter(ReplicaKey(1, Uuid(bytes(15) + b"\1")), endpoints(1), VersionRange(0, 1))
    changes = [
        QuorumChange(
            10 * at, VoterSet.of([one, *(() if key is None else (Voter(key, endpoints(2), VersionRange(0, 1)),))])
        )
        for at, key in enumerate(entries)
    ]
    return VoterHistory(VoterSet(())).with_changes(changes)


def test_a_former_replica_that_is_not_removed_yet_is_no_rival() -> None:
    """A former disk cannot return after its removal: a replica that does is running."""
    joining = Joining(directory(7))
    joining.removes(directory(6))
    joining.take_committed(sets(directory(6), directory(6)), 100)
    assert joining.rival is None
    joining.take_committed(sets(directory(6), directory(6), None), 100)
    assert joining.rival is None
    joining.take_committed(sets(directory(6), directory(6), None, directory(6)), 30)
    assert joining.rival is None, "the last set is not committed"
    joining.take_committed(sets(directory(6), directory(6), None, directory(6)), 31)
    assert joining.rival == directory(6)


def test_a_replica_that_has_voted_and_is_replaced_has_a_rival_until_it_votes_again() -> None:
    joining = Joining(directory(7))
    joining.take_committed(sets(directory(7)), 100)
    assert joining.rival is None
    joining.take_committed(sets(directory(7), directory(6)), 100)
    assert joining.rival == directory(6)
    joining.take_committed(sets(directory(7), directory(6), directory(7)), 100)
    assert joining.rival is None


def test_a_set_that_was_examined_before_a_request_shows_no_removal_by_that_request() -> None:
    joining = Joining(directory(7))
    joining.take_committed(sets(directory(6), None), 100)
    joining.removes(directory(6))
    joining.take_committed(sets(directory(6), None), 100)
    joining.take_committed(sets(directory(6), None, directory(6)), 100)
    assert joining.rival is None


# Two running replicas with one node id that join by themselves: each removed the other for ever (decision 0017).


CONFIG = QuorumConfig(append_linger_ms=0, auto_join=True)
START_MS = 1_800_000_000_000


class Quorum:
    """One voter, and replicas that ask only that voter. Every message arrives at once."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.members: dict[str, DynamicMember] = {}
        self.sets: list[str] = []
        """The voters as the leader wrote them down, again and again."""
        self.reports: dict[str, list[str]] = {}
        self._asked: dict[int, tuple[str, int]] = {}
        self._todo: list[tuple[str, Output]] = []
        self.start("1")

    def start(self, name: str) -> None:
        member = DynamicMember(key_of(name), voters=VoterSet((voter_of(key_of("1")),)), config=CONFIG)
        self.members[name] = member
        self.reports[name] = []
        self._note(name, member.start(Random(name), self.now_ms))

    def _note(self, name: str, outputs: list[Output]) -> None:
        self._todo += [(name, output) for output in outputs]
        for effect in self.members[name].effects:
            match effect:
                case AppendControl(records=records):
                    for record in records:
                        if isinstance(record, VotersRecord):
                            self.sets.append(" ".join(map(name_of, VoterSet.of_record(record).keys)))
                case PeerFault(what=what):
                    self.reports[name].append(what)

    def advance(self, ms: int) -> None:
        end = self.now_ms + ms
        while True:
            while self._todo:
                self._carry_out(*self._todo.pop(0))
            name, member = min(self.members.items(), key=lambda one: (one[1].deadline_ms(), one[0]))
            if member.deadline_ms() > end:
                break
            self.now_ms = max(self.now_ms, member.deadline_ms())
            self._note(name, member.tick(self.now_ms))
        self.now_ms = end

    def _carry_out(self, name: str, output: Output) -> None:
        member = self.members[name]
        match output:
            case SimulatedRequest(message=ProbeVersions()):
                answer = ProbeVersionsReply(OWN_KRAFT_VERSIONS)
                self._note(name, member.on_reply(output.request_id, answer, self.now_ms))
            case SimulatedRequest(peer_id=1):
                request_id = len(self._asked) + 1
                self._asked[request_id] = (name, output.request_id)
                self._note("1", self.members["1"].on_request(request_id, output.message, self.now_ms))
            case Answer():
                asker, asked_as = self._asked[output.request_id]
                if asker in self.members:
                    self._note(asker, self.members[asker].on_reply(asked_as, output.message, self.now_ms))
            case Flush():
                self._note(name, member.on_flushed(output.ticket, self.now_ms))


@pytest.mark.parametrize("second_after_ms", [0, 700, 1900, 5000])
def test_one_of_two_nodes_with_one_id_votes_and_the_other_reports_why(second_after_ms: int) -> None:
    quorum = Quorum()
    quorum.start("2")
    quorum.advance(second_after_ms)
    quorum.start("2'")
    quorum.advance(60_000)
    settled = len(quorum.sets)
    quorum.advance(600_000)
    assert len(quorum.sets) == settled, quorum.sets
    assert quorum.sets[-1] in ("1 2", "1 2'")
    loser = "2'" if quorum.sets[-1] == "1 2" else "2"
    assert any("two replicas have node id 2" in what for what in quorum.reports[loser])
    winner = "2" if loser == "2'" else "2'"
    assert not any("two replicas" in what for what in quorum.reports[winner])


def test_a_replaced_disk_takes_over_the_voter_id() -> None:
    quorum = Quorum()
    quorum.start("2")
    quorum.advance(10_000)
    assert quorum.sets[-1] == "1 2"
    del quorum.members["2"]
    quorum._todo = [one for one in quorum._todo if one[0] != "2"]
    quorum.start("2'")
    quorum.advance(20_000)
    assert quorum.sets[-1] == "1 2'"
    assert quorum.reports["2'"] == []


def history(*sets: str) -> VoterHistory:
    return VoterHistory(
        VoterSet(()),
        tuple((10 * at, VoterSet.of(voter_of(key_of(name)) for name in one.split())) for at, one in enumerate(sets)),
    )


def test_only_committed_records_show_a_rival_with_the_same_id() -> None:
    """A rival with a truncated record has removed no voter."""
    joining = Joining(key_of("2'"))
    known = history("1 2", "1 2'", "1", "1 2")
    joining.take_committed(known, 10)
    assert joining.rival is None
    joining.take_committed(known, 30)
    assert joining.rival is None
    joining.take_committed(known, 31)
    assert joining.rival == key_of("2")
    joining.take_committed(history("1 2", "1 2'", "1", "1 2", "1"), 41)
    assert joining.rival is None, "an operator has removed the other one"
