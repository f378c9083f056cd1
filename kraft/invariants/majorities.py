"""The majority arithmetic and the identity of voters, written for the invariants alone.

The core computes both in `kraft.quorum`. An error there must not make the same error in the check that looks for it.
The invariants still share the following with the product:

- `ReplicaKey`, `ElectionState`, `VoterSet` and `OffsetAndEpoch` as data. No decision of the core is in these types.
- `VoterSet.of_record`, which decodes the voter records. Kafka's own records test the decoder.
- The decoders of batches and records (`RecordBatch`, `records`). Kafka's own directories test the decoders, and the
  invariants compare logs as bytes.
- `View`, with the flushed offset, the high watermark and the state that the node claims. The invariants judge the
  claims; each crash compares the flushed offset with the disk (`_check_promise`).
- `decode_record` and the replay of metadata records, in the ledger of partitions. Kafka's own logs and snapshots test
  the replay.
- `StateMachine.apply` of the machine under test, as the specification of `workload_spec_of`. A specification of its
  own replaces it (`WorkloadSpec.step`).
"""

from __future__ import annotations

from collections.abc import Iterable

from kraft.quorum.values import ReplicaKey
from kraft.quorum.voters import VoterSet
from metadata_log.types import Uuid


def is_majority(count: int, total: int) -> bool:
    """Whether so many of `total` voters are more than a half."""
    return 2 * count > total


def reached_by_majority(numbers: Iterable[int]) -> int:
    """The largest number that more than a half of these numbers have reached."""
    numbers = list(numbers)
    return max(one for one in numbers if is_majority(sum(other >= one for other in numbers), len(numbers)))


def is_voter(key: ReplicaKey, disk: ReplicaKey) -> bool:
    """Whether the key of a voter means the replica on this disk. A key without a directory id means any disk."""
    return key.id == disk.id and key.directory_id in (Uuid.ZERO, disk.directory_id)


def has_voter(voters: VoterSet, disk: ReplicaKey) -> bool:
    """Whether the replica on this disk is one of the voters."""
    return any(is_voter(voter.key, disk) for voter in voters.voters)
