"""Mutants of the logs of brokers with data: what a start recovers, and the offsets of duplicates (KIP-98)."""

from __future__ import annotations

from collections.abc import Generator

from kraft.broker.log import data_segment, loading
from kraft.broker.log.outcomes import Appended, Refused
from kraft.broker.log.partition_log import PartitionLog
from kraft.sim.mutants.registry import Patches, Scope, mutant
from metadata_log.log.segment import scan_file

# Producers


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def duplicates_get_a_new_offset(code: Patches) -> None:
    """A batch that the log holds already is answered with the offset at which it would be appended now."""
    append = PartitionLog.append_as_leader

    def append_as_leader(
        log: PartitionLog, data: bytes, *, epoch: int, now_ms: int, is_client: bool = True
    ) -> Appended | Refused:
        end = log.end_offset
        found = append(log, data, epoch=epoch, now_ms=now_ms, is_client=is_client)
        if isinstance(found, Appended) and found.is_duplicate:
            return Appended(end, found.last_offset, found.append_time_ms, is_duplicate=True)
        return found

    code.replace(PartitionLog, "append_as_leader", append_as_leader)


# Files


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def nothing_is_recovered_after_a_crash(code: Patches) -> None:
    """A start after a crash takes the files as they are."""

    def recover_unflushed(loader: object) -> Generator[None, None, None]:
        yield from ()

    code.replace(loading._Loader, "_recover_unflushed", recover_unflushed)


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def recovery_believes_every_checksum(code: Patches) -> None:
    """The recovery of a segment does not compare checksums, so that a torn batch stays in the log."""
    code.replace(data_segment, "scan_file", lambda file: scan_file(file, verify=False))
