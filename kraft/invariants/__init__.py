"""The safety invariants of consensus and of the metadata, for the simulator, `kraft.testing` and `kraft check`."""

from kraft.invariants.disks import Ledger
from kraft.invariants.partitions import PartitionLedger
from kraft.invariants.quorum import Invariants
from kraft.invariants.violation import InvariantViolated

__all__ = ["InvariantViolated", "Invariants", "Ledger", "PartitionLedger"]
