"""A replica notices a running replica with its node id from the committed voter sets (KIP-1186, decision 0017)."""

from __future__ import annotations

from kraft.quorum.joining import Joining
from kraft.quorum.values import ReplicaKey, VersionRange
from kraft.quorum.voter_history import VoterHistory
from kraft.quorum.voters import QuorumChange, Voter, VoterSet
from metadata_log.types import Uuid
from support.kraft.one_core import endpoints


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
