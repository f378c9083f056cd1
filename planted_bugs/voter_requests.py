"""Mutants of the requests that add, remove and update voters: the checks of the leader, and its answers (KIP-853)."""

from __future__ import annotations

from msgspec.structs import replace

from kraft.quorum import membership
from kraft.quorum.effects import SendReply
from kraft.quorum.events import Received
from kraft.quorum.joining import Joining
from kraft.quorum.messages import AddVoter, ProbeVersionsReply, RemoveVoter, UpdateVoter
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import LeaderState
from kraft.quorum.states.leader import PendingChange, Progress
from kraft.quorum.values import Endpoints, ReplicaKey
from kraft.quorum.voters import VoterSet
from planted_bugs.registry import Patches, Scope, mutant, survivor
from transport.protocol.errors import Error

# Checks


@survivor(
    Scope.DYNAMIC,
    tried_classic=379,
    tried=100,
    killed_by=(
        "tests/kraft/replica/test_remote_never_ends_node.py::"
        "test_a_late_response_of_one_replica_does_not_count_for_another"
    ),
    because=(
        "The request to the former replica and the change that sent the request end at the same millisecond, "
        "so that a late answer needs that one tick: 1 of 1,843 answers in 379 runs. All simulated nodes "
        "support the same versions, and no check asks which node said so."
    ),
)
def any_answer_to_a_probe_counts(code: Patches) -> None:
    """A leader that adds a voter takes the late response of another replica for the response of the new voter."""

    def adding(leader: LeaderState, request_id: int) -> PendingChange | None:
        return leader.change if leader.change is not None and leader.change.adding is not None else None

    code.replace(membership, "_adding", adding)


@mutant(Scope.DYNAMIC, budget=1000, faults=None)
def voter_added_before_it_has_caught_up(code: Patches) -> None:
    """A leader adds a voter that has not fetched the log."""
    code.replace(membership, "_is_caught_up", lambda leader, key, now_ms: True)


@mutant(Scope.DYNAMIC, budget=1000, faults=None)
def second_directory_of_a_voter_id_is_added(code: Patches) -> None:
    """A leader adds a replica with the id of a voter, which replaces that voter in a single change."""

    def on_add(quorum: QuorumState, event: Received, request: AddVoter, now_ms: int) -> None:
        voters = quorum.voters
        quorum.voters = voters.without(request.voter.id)
        try:
            on_add_voter(quorum, event, request, now_ms)
        finally:
            quorum.voters = voters

    on_add_voter = membership.on_add_voter
    code.replace(membership, "on_add_voter", on_add)


@survivor(
    Scope.DYNAMIC,
    tried_classic=32,
    tried=100,
    killed_by="tests/kraft/replica/test_voter_changes.py::test_every_refusal_of_a_removal_has_kafkas_error",
    because="No invariant asks which replica an administrator meant.",
)
def any_directory_of_a_voter_id_is_removed(code: Patches) -> None:
    """A request to remove a former directory of a voter id removes the present voter of that id."""
    on_remove_voter = membership.on_remove_voter

    def on_remove(quorum: QuorumState, event: Received, request: RemoveVoter, now_ms: int) -> None:
        voter = quorum.voters.find(request.voter.id)
        on_remove_voter(quorum, event, request if voter is None else replace(request, voter=voter.key), now_ms)

    code.replace(membership, "on_remove_voter", on_remove)


@survivor(
    Scope.DYNAMIC,
    tried_classic=32,
    tried=100,
    killed_by="tests/kraft/replica/test_voter_changes.py::test_every_refusal_of_an_update_has_kafkas_error",
    because="The request of a former epoch has the same endpoints as the request that follows it.",
)
def update_of_any_epoch(code: Patches) -> None:
    """A leader accepts UpdateRaftVoter of former epochs."""
    update = membership._update

    def update_in_this_epoch(quorum: QuorumState, request: UpdateVoter, now_ms: int) -> Error:
        return update(quorum, replace(request, epoch=quorum.epoch), now_ms)

    code.replace(membership, "_update", update_in_this_epoch)


@survivor(
    Scope.DYNAMIC,
    tried_classic=32,
    tried=100,
    killed_by=(
        "tests/kraft/replica/test_known_bugs.py::test_an_update_waits_for_an_uncommitted_change_of_a_timed_out_caller"
    ),
    because="An update changes an address and no voter, so that all majorities overlap.",
)
def update_during_another_change(code: Patches) -> None:
    """A leader updates a voter while the last change of the voters is not committed."""
    sound = membership._refusal

    def refusal(
        quorum: QuorumState, key: ReplicaKey, endpoints: Endpoints | None, *, is_update: bool = False
    ) -> membership.Refusal | None:
        refused = sound(quorum, key, endpoints, is_update=is_update)
        is_busy = refused is not None and "voters is" in refused[1]
        return None if is_update and is_busy else refused

    code.replace(membership, "_refusal", refusal)


@mutant(Scope.DYNAMIC, budget=100, faults=None, profile="former-selves")
def update_of_a_former_directory(code: Patches) -> None:
    """A leader accepts UpdateRaftVoter of a former directory, which replaces the present voter of that id."""
    update = membership._update

    def update_any(quorum: QuorumState, request: UpdateVoter, now_ms: int) -> Error:
        voters = quorum.voters
        entry = voters.find(request.voter.id)
        if entry is None:
            return update(quorum, request, now_ms)
        quorum.voters = known = voters.with_voter(replace(entry, key=request.voter.key))
        try:
            return update(quorum, request, now_ms)
        finally:
            if quorum.voters is known:
                quorum.voters = voters

    code.replace(membership, "_update", update_any)


@survivor(
    Scope.DYNAMIC,
    tried_classic=32,
    tried=100,
    killed_by="tests/kraft/quorum/test_joining.py",
    because="No two simulated nodes have one id at the same time.",
)
def two_nodes_with_one_id_remove_each_other(code: Patches) -> None:
    """A replica that joins does not notice that the voter with its node id is alive, and removes it (KIP-1186)."""
    code.replace(Joining, "take_committed", lambda joining, history, high_watermark: None)


@mutant(Scope.UPGRADED, budget=200, faults=None)
def kraft_version_without_directory_ids(code: Patches) -> None:
    """A leader raises kraft.version before every voter has reported its directory id."""
    code.replace(membership, "upgrade_obstacle", lambda quorum, level: None)


# Answers


@mutant(Scope.DYNAMIC, budget=200, faults=None)
def voter_change_answered_before_its_commit(code: Patches) -> None:
    """A leader answers AddRaftVoter and RemoveRaftVoter once the voter set is appended."""

    def answer(quorum: QuorumState) -> None:
        leader = quorum.state
        if not isinstance(leader, LeaderState):
            return
        change = leader.change
        if change is not None and change.offset >= 0 and change.reply is not None:
            quorum.emit(SendReply(change.request_id, change.reply))
            leader.change = replace(change, reply=None)

    def on_versions(quorum: QuorumState, peer_id: int, request_id: int, reply: ProbeVersionsReply, now_ms: int) -> None:
        sound_on_versions(quorum, peer_id, request_id, reply, now_ms)
        answer(quorum)

    def on_remove(quorum: QuorumState, event: Received, request: RemoveVoter, now_ms: int) -> None:
        sound_on_remove(quorum, event, request, now_ms)
        answer(quorum)

    sound_on_versions, sound_on_remove = membership.on_versions, membership.on_remove_voter
    code.replace(membership, "on_versions", on_versions)
    code.replace(membership, "on_remove_voter", on_remove)


# The effect of a change


@mutant(Scope.DYNAMIC, budget=400)
def new_voter_counts_as_caught_up(code: Patches) -> None:
    """A leader counts a new voter as if it had all committed records, before the first Fetch as a voter."""
    take_voters = LeaderState.take_voters

    def take_and_count(leader: LeaderState, voters: VoterSet) -> None:
        known = set(leader.progress)
        take_voters(leader, voters)
        for voter_id, one in leader.progress.items():
            if voter_id not in known:
                one.end_offset = max(other.end_offset for other in leader.progress.values())

    code.replace(LeaderState, "take_voters", take_and_count)


@survivor(
    Scope.DYNAMIC,
    tried_classic=32,
    tried=100,
    killed_by=(
        "tests/kraft/quorum/test_leader_rules.py::test_a_new_voter_keeps_the_offset_that_it_has_reached_as_an_observer"
    ),
    because="The new voter fetches again at once, so that only time is lost.",
)
def new_voter_loses_its_progress(code: Patches) -> None:
    """A new voter has no offset at the leader until its next Fetch, although it has fetched as an observer."""
    take_voters = LeaderState.take_voters

    def take_and_forget(leader: LeaderState, voters: VoterSet) -> None:
        known = set(leader.progress)
        take_voters(leader, voters)
        for voter_id, one in leader.progress.items():
            if voter_id not in known:
                leader.progress[voter_id] = Progress(one.key)

    code.replace(LeaderState, "take_voters", take_and_forget)
