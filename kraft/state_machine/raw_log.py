"""A log without a state: what a program that embeds the log alone is a part of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from kraft.agenda import Agenda
from kraft.calls import Call, CancelCall
from kraft.committed import Committed, CommittedBatch
from kraft.replica.interface.actions import Action, ForSubmit, Proposal, RefuseSubmit, Unit
from kraft.replica.interface.events import Submit
from kraft.replica.interface.leading import Leading
from kraft.server import Server
from kraft.state_machine.raw_snapshot import is_raw_snapshot
from metadata_log.errors import CorruptBatch, DirectoryError
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch
from transport.protocol.errors import Error

RAW_LOG: Final = "a raw log"


class RawLog(Leading, Server):
    """A log without a state. Values come in with `Submit`, and committed batches go out as `Committed`.

    If the host reads the log by itself, there is no `Committed`.
    """

    log_kind: str = RAW_LOG
    reads_batches = False

    def __init__(self, *, reads_batches: bool) -> None:
        super().__init__(Agenda(slots=1))
        self.reads_batches = reads_batches
        self._is_leader = False

    def check(self, values: Sequence[bytes], *, in_snapshot: bool = False) -> Sequence[Message]:
        """Accept all values: any bytes are valid in a raw log."""
        return ()

    def check_snapshot(self, values: Iterable[bytes]) -> None:
        """Raise `CorruptBatch` for a snapshot of something else: only the host knows the state of a raw log."""
        if not is_raw_snapshot(values):
            raise CorruptBatch("this is no snapshot of a raw log")

    def on_snapshot(self, values: Iterable[bytes], end: OffsetAndEpoch) -> None:
        """Take a snapshot, which the host reads by itself."""
        if not is_raw_snapshot(values):
            raise DirectoryError(
                f"the snapshot that ends at {end} is none of a raw log",
                hint="This is the directory of a metadata quorum or of a state machine: open it as such.",
            )

    def on_committed(self, batch: CommittedBatch) -> tuple[Committed, ...]:
        """Hand the batch to the host."""
        return (Committed(batch),)

    @property
    def is_applying(self) -> bool:
        """Never: batches are handed on as they are."""
        return False

    def apply_more(self) -> tuple[Committed, ...]:
        """Never called: no batch takes more than one turn."""
        raise AssertionError("a raw log applies nothing")

    def snapshot(self) -> Callable[[], Iterator[bytes]] | None:
        """None: only the host knows the meaning of the values, and gives the state with `MakeSnapshot`."""
        return None

    def on_leader(self, epoch: int, next_offset: int, now_ms: int) -> tuple[Action, ...]:
        """Accept submits from now on."""
        self._is_leader = True
        return ()

    def on_lost_leadership(self) -> None:
        """Refuse submits from now on."""
        self._is_leader = False

    def on_call(self, call: Call | CancelCall | Submit, now_ms: int) -> Action | None:
        """Propose the values as one unit."""
        assert isinstance(call, Submit), call
        if not self._is_leader:
            return RefuseSubmit(call.submit_id, Error.NOT_LEADER_OR_FOLLOWER)
        if not call.values:
            return RefuseSubmit(call.submit_id, Error.INVALID_REQUEST)
        return Proposal((Unit(tuple(call.values)),), ForSubmit(call.submit_id))
