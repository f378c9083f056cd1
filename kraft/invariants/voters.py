"""The invariants of the voter sets in the logs (Kafka: `AtMostOneUncommittedVoterSet` and
`MajorityReachedHighWatermark` of `RaftEventSimulationTest`; KIP-853 and its TLA+ model).

The ledger reads the voter records by itself. A node violates an invariant, too, if its own voter set differs from the
one in its log.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import itemgetter

from msgspec import Struct

from kraft.invariants.majorities import is_voter
from kraft.quorum.values import Endpoints, ReplicaKey, VersionRange
from kraft.quorum.voters import QuorumChange, VoterSet
from metadata_log.types import Uuid

VotersInLog = list[tuple[int, VoterSet]]
"""The voter sets in one log, each with the place of its batch in the list of batches."""
_place = itemgetter(0)


class AnsweredChange(Struct, frozen=True):
    """A voter change that a node answers with success, and what that answer promises."""

    kind: str
    """`addition`, `removal`, `update`, or `upgrade` for the end of static voters."""
    key: ReplicaKey = ReplicaKey(-1)
    """The voter; an upgrade concerns all of them."""
    endpoints: Endpoints | None = None
    """The endpoints of the voter after the change."""
    kraft_versions: VersionRange | None = None
    """The supported versions of the voter after the change, if the request names them."""
    is_committed: bool = True
    """Whether the answer promises a committed change, and not only one in the log of the node."""


class VoterLedger:
    """The voter sets of one run. `first` is in force until a log contains another."""

    def __init__(self, first: VoterSet) -> None:
        self.first = first
        self.committed: VotersInLog = []
        """The sets in the committed batches."""
        self._sets: dict[tuple[int, int], VoterSet] = {}

    def written(self, epoch: int, base_offset: int, changes: tuple[QuorumChange, ...]) -> None:
        """Remember the voter set in a batch that was observed for the first time, if the batch contains one."""
        for change in changes:
            if isinstance(change.value, VoterSet):
                self._sets[epoch, base_offset] = change.value

    def set_in(self, epoch: int, base_offset: int) -> VoterSet | None:
        """The voter set in a batch, if there is one."""
        return self._sets.get((epoch, base_offset))

    def in_force(self, found: VotersInLog) -> VoterSet:
        """The voter set at the end of a log, committed or not."""
        return found[-1][1] if found else self.first

    def before(self, found: VotersInLog, place: int) -> VoterSet:
        """The voter set at the end of a log that is truncated before a place."""
        at = bisect_left(found, place, key=_place)
        return found[at - 1][1] if at else self.first

    def appended(self, node_id: int, found: VotersInLog, place: int, voters: VoterSet) -> str | None:
        """Add a voter set to a log; returns what is wrong with the set (SingleServerChange)."""
        known = self.in_force(found)
        found.append((place, voters))
        if _is_one_step(known, voters):
            return None
        return f"the voters change from {_told(known)} to {_told(voters)} at once in the log of node {node_id}"

    def uncommitted(self, node_id: int, found: VotersInLog, committed: int) -> str | None:
        """Check the voter changes after the first `committed` batches of a log (AtMostOneUncommittedVoterSet).

        Two uncommitted voter sets could have majorities without a common voter.
        """
        at = bisect_left(found, committed, key=_place)
        known = found[at - 1][1] if at else self.first
        changes = []
        for _, voters in found[at:]:
            if not _are_same(known, voters):
                changes.append(_told(voters))
            known = voters
        if len(changes) <= 1:
            return None
        return f"the log of node {node_id} changes the voters {len(changes)} times in what is not committed: {changes}"

    def believed(self, node_id: int, found: VotersInLog, keys: tuple[ReplicaKey, ...]) -> str | None:
        """Check that a node has the voters of its log. A joining node knows no voters before it has a log."""
        voters = self.in_force(found)
        if keys == voters.keys or not (keys or found):
            return None
        return f"node {node_id} has the voters {_keys(keys)}, and the voters in its log are {_told(voters)}"

    def not_made(self, node_id: int, found: VotersInLog, committed: int, change: AnsweredChange) -> str | None:
        """Check that a voter change that a node answers with success is made (AnsweredChangeIsMade). `found` are the
        voter sets in its log, and `committed` is how many batches it knows as committed. The leader makes no other
        change before the answer.
        """
        voters = self.before(found, committed) if change.is_committed else self.in_force(found)
        if _is_made(change, voters):
            return None
        where = "the voters that it knows as committed" if change.is_committed else "the voters in its log"
        what = f"the {change.kind} of {_keys((change.key,))}"
        return f"node {node_id} answers {what} with success; {where} are {_told(voters)}"


def _is_made(change: AnsweredChange, voters: VoterSet) -> bool:
    is_static = any(key.directory_id == Uuid.ZERO for key in voters.keys)
    match change.kind:
        case "removal":
            return change.key not in voters.keys
        case "upgrade":
            return not is_static
        case "update" if is_static:
            # The leader keeps the report in memory until kraft.version rises.
            return True
        case _:
            voter = voters.find(change.key.id)
            return (
                voter is not None
                and voter.key == change.key
                and voter.endpoints == change.endpoints
                and change.kraft_versions in (None, voter.kraft_versions)
            )


def _is_one_step(old: VoterSet, new: VoterSet) -> bool:
    """Whether two sets differ by one voter at most. An upgrade of kraft.version adds directory ids."""
    if _are_same(old, new):
        return True
    return len(set(old.keys) ^ set(new.keys)) == 1


def _are_same(old: VoterSet, new: VoterSet) -> bool:
    return len(old) == len(new) and all(is_voter(one, other) for one, other in zip(old.keys, new.keys, strict=True))


def _told(voters: VoterSet) -> str:
    return _keys(voters.keys)


def _keys(keys: tuple[ReplicaKey, ...]) -> str:
    known = (str(key.id) if key.directory_id == Uuid.ZERO else f"{key.id}@{key.directory_id}" for key in keys)
    return f"{{{', '.join(known)}}}"
