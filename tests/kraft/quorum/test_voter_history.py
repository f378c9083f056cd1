"""The voter set at each offset of the log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kraft.quorum.values import Endpoints, ListenerAddress, ReplicaKey, VersionRange
from kraft.quorum.voter_history import DYNAMIC, STATIC, VoterHistory, recorded_in
from kraft.quorum.voters import QuorumChange, Voter, VoterSet
from metadata_log.types import Uuid

CONFIGURED = VoterSet.parse("1@n1:9093,2@n2:9093")


def directory(node_id: int) -> Uuid:
    return Uuid(bytes(15) + bytes([100 + node_id]))


def voters(*ids: int) -> VoterSet:
    return VoterSet.of(
        Voter(
            ReplicaKey(one, directory(one)),
            Endpoints((ListenerAddress("CONTROLLER", f"n{one}", 9093),)),
            VersionRange(0, 1),
        )
        for one in ids
    )


def test_configured_voters_count_while_the_log_has_no_voters_record() -> None:
    static = VoterHistory(CONFIGURED)
    dynamic = static.with_changes([QuorumChange(7, DYNAMIC), QuorumChange(8, voters(1, 2, 3))])
    assert (static.voters, static.kraft_version, static.voters_offset) == (CONFIGURED, STATIC, None)
    assert (dynamic.voters, dynamic.kraft_version, dynamic.voters_offset) == (voters(1, 2, 3), DYNAMIC, 8)
    assert dynamic.truncated(9) is dynamic
    assert dynamic.truncated(7) == static


def test_a_voter_set_is_effective_from_its_record_on() -> None:
    history = VoterHistory(CONFIGURED).with_changes(
        [*recorded_in(0, DYNAMIC, voters(1)), QuorumChange(5, voters(1, 2)), QuorumChange(9, voters(2))]
    )
    assert [history.voters_at(at) for at in (-2, -1, 4, 5, 8, 9, 50)] == [
        None,
        voters(1),
        voters(1),
        voters(1, 2),
        voters(1, 2),
        voters(2),
        voters(2),
    ]
    assert (history.kraft_version_at(-2), history.kraft_version_at(0)) == (STATIC, DYNAMIC)


def test_a_snapshot_without_kraft_version_holds_no_voters() -> None:
    assert recorded_in(10, STATIC, None) == ()


def test_a_second_change_is_counted_only_while_the_first_is_uncommitted() -> None:
    history = VoterHistory(CONFIGURED).with_changes(
        [*recorded_in(0, DYNAMIC, voters(1)), QuorumChange(5, voters(1, 2)), QuorumChange(9, voters(1, 2, 3))]
    )
    assert [history.uncommitted_changes(high_watermark) for high_watermark in (1, 5, 6, 9, 10)] == [2, 2, 1, 1, 0]


def test_a_new_voter_address_is_no_change_of_the_voter_set() -> None:
    moved = voters(1, 2).with_voter(Voter(ReplicaKey(2, directory(2)), Endpoints(), VersionRange(0, 1)))
    history = VoterHistory(CONFIGURED).with_changes([*recorded_in(0, DYNAMIC, voters(1, 2)), QuorumChange(5, moved)])
    assert history.voters == moved
    assert history.uncommitted_changes(1) == 0


def test_a_voter_set_survives_encoding_as_a_record() -> None:
    assert VoterSet.of_record(voters(3, 1).to_record()) == voters(1, 3)


OFFSETS = st.lists(st.integers(0, 50), unique=True, max_size=8).map(sorted)


@given(OFFSETS, st.integers(0, 55), st.integers(0, 55))
def test_pruning_and_truncation_keep_the_voter_sets_in_between(offsets: list[int], start: int, end: int) -> None:
    """What holds at every offset from the start to the end of the log is the same as in the whole history."""
    changes = [QuorumChange(offset, voters(1, 2 + at)) for at, offset in enumerate(offsets)]
    whole = VoterHistory(CONFIGURED).with_changes([*recorded_in(0, DYNAMIC, voters(1)), *changes])
    kept = whole.truncated(end).pruned(start)
    for offset in range(start, end):
        assert kept.voters_at(offset) == whole.voters_at(offset)
        assert kept.kraft_version_at(offset) == DYNAMIC
    for cut in range(start, end):
        assert kept.truncated(cut).voters == whole.truncated(cut).voters
        assert kept.truncated(cut).kraft_version == DYNAMIC
    assert all(offset < end for offset, _ in kept.sets)
    assert sum(offset < start for offset, _ in kept.sets) <= 1


def test_the_first_voters_record_of_a_log_may_be_truncated() -> None:
    """The snapshot that the log begins with ends before it, and may be all that is committed."""
    changes = [*recorded_in(3, DYNAMIC, voters(1, 2)), QuorumChange(6, voters(1))]
    kept = VoterHistory(CONFIGURED).with_changes(changes).pruned(6)
    assert kept.voters == voters(1)
    assert kept.truncated(6).voters == voters(1, 2)


def test_the_last_record_removes_the_voters_that_only_the_record_before_has() -> None:
    def key(node_id: int) -> ReplicaKey:
        return ReplicaKey(node_id, directory(node_id))

    first = VoterHistory(CONFIGURED).with_changes(recorded_in(0, DYNAMIC, voters(1, 2)))
    second = first.with_changes([QuorumChange(5, voters(1, 3))])
    third = second.with_changes([QuorumChange(9, voters(1))])
    assert [[one.removes(key(node)) for node in (1, 2, 3)] for one in (first, second, third)] == [
        [False, False, False],
        [False, True, False],
        [False, False, True],
    ]


def test_a_record_of_voters_without_an_id_or_an_endpoint_is_invalid() -> None:
    sound = voters(1, 2).to_record()
    no_id = replace(sound.voters[1], voter_id=-1)
    no_endpoint = replace(sound.voters[1], endpoints=())
    assert VoterSet.of_record(sound) == voters(1, 2)
    for wrong in (no_id, no_endpoint):
        with pytest.raises(ValueError, match=f"voter {wrong.voter_id} of a voter set has no valid id or no endpoint"):
            VoterSet.of_record(replace(sound, voters=(sound.voters[0], wrong)))
    with pytest.raises(ValueError, match="a voter set is empty"):
        VoterSet.of_record(replace(sound, voters=()))
