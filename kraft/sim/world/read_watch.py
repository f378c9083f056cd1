"""Checks the reads that a leader answers without writing to the log (Raft dissertation §6.4).

A read sees everything that was committed before the read began, so only a node that may have been the leader then
answers it.
"""

from __future__ import annotations

from msgspec import Struct

from kraft.invariants.observation import View
from kraft.invariants.quorum import Invariants
from kraft.invariants.violation import InvariantViolated


class _Begun(Struct, frozen=True):
    """The progress of the quorum when a read began."""

    values_end: int
    """The offset after the last committed values."""
    epoch: int
    """The latest epoch that a majority of the voters had reached."""


class ReadWatch:
    """The reads of one run."""

    def __init__(self) -> None:
        self.answered_count = 0
        """The number of answered reads so far."""
        self._begun: dict[int, _Begun] = {}

    def begun(self, read_id: int, invariants: Invariants) -> None:
        """A client requests a read."""
        self._begun[read_id] = _Begun(invariants.commits.values_end, invariants.majority_epoch)

    def answered(self, node_id: int, read_id: int, offset: int, view: View) -> None:
        """A node answers a read with its state, which contains everything below `offset`: all values that were
        committed before the read began, if the node was still the leader.
        """
        self.answered_count += 1
        begun = self._begun.pop(read_id, None)
        if begun is None:
            raise InvariantViolated(f"node {node_id} answers read {read_id}, which has no client or an answer already")
        if view.state == "Leader" and view.epoch < begun.epoch:
            raise InvariantViolated(
                f"node {node_id} leads epoch {view.epoch} and answers read {read_id}, though a majority had come to"
                f" epoch {begun.epoch} before it was asked"
            )
        if offset < begun.values_end:
            raise InvariantViolated(
                f"node {node_id} answers read {read_id} as of offset {offset}, though everything below"
                f" {begun.values_end} was committed before it was asked"
            )


class UncheckedReads(ReadWatch):
    """Accepts every answer, for runs with forged messages."""

    def begun(self, read_id: int, invariants: Invariants) -> None:
        """Observe nothing."""

    def answered(self, node_id: int, read_id: int, offset: int, view: View) -> None:
        """Accept any answer."""
