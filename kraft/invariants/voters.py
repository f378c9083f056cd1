"""What must hold of the voters, by what stands in the logs (Kafka: `AtMostOneUncommittedVoterSet` and
`MajorityReachedHighWatermark` of `RaftEventSimulationTest`; KIP-853 and its TLA+ model).

The ledger reads the records by itself and asks a node only to compare: who believes in other voters than its log names
is wrong, too.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import itemgetter

from kraft.quorum.values import ReplicaKey
from kraft.quorum.voters import QuorumChange, VoterSet
from metadata_log.types import Uuid

VotersInLog = list[tuple[int, VoterSet]]
"""The voter sets in one log, each with the place of its batch in the list of batches."""
_place = itemgetter(0)


class VoterLedger:
    """The voter sets of one run. `first` counts until a log names another."""

    def __init__(self, first: VoterSet) -> None:
        self.first = first
        self.committed: VotersInLog = []
        """The sets in what is committed."""
        self._sets: dict[tuple[int, int], VoterSet] = {}

    def written(self, epoch: int, base_offset: int, changes: tuple[QuorumChange, ...]) -> None:
        """A batch was seen for the first time; remember the set in it, if there is one."""
        for change in changes:
            if isinstance(change.value, VoterSet):
                self._sets[epoch, base_offset] = change.value

    def set_in(self, epoch: int, base_offset: int) -> VoterSet | None:
        """The set that a batch brings."""
        return self._sets.get((epoch, base_offset))

    def in_force(self, found: VotersInLog) -> VoterSet:
        """Who votes at the end of a log, committed or not."""
        return found[-1][1] if found else self.first

    def before(self, found: VotersInLog, place: int) -> VoterSet:
        """Who votes at the end of a log that is cut before a place."""
        at = bisect_left(found, place, key=_place)
        return found[at - 1][1] if at else self.first

    def appended(self, node_id: int, found: VotersInLog, place: int, voters: VoterSet) -> str | None:
        """A set came into a log; what is wrong with it (SingleServerChange)."""
        known = self.in_force(found)
        found.append((place, voters))
        if _is_one_step(known, voters):
            return None
        return f"the voters change from {_told(known)} to {_told(voters)} at once in the log of node {node_id}"

    def uncommitted(self, node_id: int, found: VotersInLog, committed: int) -> str | None:
        """What is wrong if of a log only so many batches are committed (AtMostOneUncommittedVoterSet).

        Among two that are not committed, each could have a majority that knows nothing of the other's.
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
        """What is wrong if a node takes these for the voters. Who joins knows of none before it has a log."""
        voters = self.in_force(found)
        if keys == voters.keys or not (keys or found):
            return None
        return f"node {node_id} takes {_keys(keys)} for the voters, and its log says {_told(voters)}"


def _is_one_step(old: VoterSet, new: VoterSet) -> bool:
    """Whether two sets differ by one voter at most; when kraft.version rises, directories become known."""
    if _are_same(old, new):
        return True
    return len(set(old.keys) ^ set(new.keys)) == 1


def _are_same(old: VoterSet, new: VoterSet) -> bool:
    return len(old) == len(new) and all(one.matches(other) for one, other in zip(old.keys, new.keys, strict=True))


def _told(voters: VoterSet) -> str:
    return _keys(voters.keys)


def _keys(keys: tuple[ReplicaKey, ...]) -> str:
    known = (str(key.id) if key.directory_id == Uuid.ZERO else f"{key.id}@{key.directory_id}" for key in keys)
    return f"{{{', '.join(known)}}}"
