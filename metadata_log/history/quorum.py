"""Active controllers, and gaps without one (Kafka: `LeaderChangeMessage`, `NoOpRecord`, `VoterSet`; KIP-835).

The active controller writes a NoOpRecord every 500 ms. So a longer gap between records means that the cluster had no
active controller, or that the active controller stalled.
"""

from __future__ import annotations

from typing import Final

from metadata_log.history.causes import CauseRow
from metadata_log.history.open_rows import OpenRows, Row, Sink, When, cause_of_snapshot
from metadata_log.history.values import voter_values
from metadata_log.records.control import LeaderChangeMessage, VotersRecord, VotersRecordVoter
from metadata_log.types import NO_NODE

ELECTED: Final = "controller-elected"
SILENT: Final = "controller-silent"
ACTIVE_AGAIN: Final = "controller-active"
GAP_TOLERANCE_MS: Final = 1_500
"""Three times the interval of NoOpRecords: the delay of a busy disk or of garbage collection is no gap."""

_VoterKey = tuple[int, bytes]


class Quorum:
    """The open rows of `quorum_epochs` and `voter_history`; gaps and elections are written at once."""

    def __init__(self, sink: Sink, *, gap_tolerance_ms: int) -> None:
        self._sink = sink
        self._tolerance_ms = gap_tolerance_ms
        self._epochs = OpenRows("quorum_epochs", sink)
        self._voters = OpenRows("voter_history", sink)
        self._known_voters: dict[_VoterKey, VotersRecordVoter] = {}
        self._last: When | None = None
        self._leader = NO_NODE
        self._has_clock = False

    def on_records(self, first: When, last: When, *, has_noop: bool) -> None:
        """The active controller wrote records, from `first` to `last`."""
        before = self._last
        if before is not None and before.epoch == first.epoch and self._has_clock:
            silence = first.timestamp - before.timestamp
            if silence > self._tolerance_ms:
                text = (
                    f"controller {self._leader} wrote nothing for {silence / 1000:.1f} s"
                    if (self._leader != NO_NODE)
                    else f"no record was written for {silence / 1000:.1f} s"
                )
                cause = (SILENT, None, first.offset, None, text)
                self._write_gap("silence", before, first, self._leader, self._leader, cause)
        self._last = last
        self._has_clock |= has_noop

    def on_leader_change(self, record: LeaderChangeMessage, when: When) -> None:
        """A new leader of the quorum, which is the active controller from now on."""
        before, old_leader = self._last, self._leader
        self._leader = record.leader_id
        silence = None if before is None else (when.timestamp - before.timestamp) / 1000
        skipped = None if before is None else max(when.epoch - before.epoch - 1, 0)
        values = (
            when.epoch,
            record.leader_id,
            None if old_leader == NO_NODE else old_leader,
            tuple(voter.voter_id for voter in record.voters),
            tuple(voter.voter_id for voter in record.granting_voters),
            skipped,
            silence,
        )
        cause = (ELECTED, "LeaderChangeMessage", when.offset, None, _election_text(record, when, silence, skipped))
        self._epochs.begin("", values, when, cause)
        self._sink.emit("controller_elections", (*values, when.offset, when.timestamp, when.epoch, *cause))
        if before is not None:
            self._write_gap("election", before, when, old_leader, record.leader_id, cause)
            self._last = when

    def on_voters(self, record: VotersRecord, when: When, *, in_snapshot: bool) -> None:
        """The complete voter set of a dynamic quorum."""
        voters = {(voter.voter_id, bytes(voter.voter_directory_id)): voter for voter in record.voters}
        first = not self._known_voters
        for key in [key for key in self._known_voters if key not in voters]:
            self._voters.end(key, when, "voter-removed")
        for key, voter in voters.items():
            known = self._known_voters.get(key)
            if known == voter:
                continue
            if in_snapshot:
                cause = cause_of_snapshot()
            else:
                code = "voters-begin" if first else "voter-added" if known is None else "voter-updated"
                cause = (code, "VotersRecord", when.offset, None, _VOTER_TEXTS[code].format(id=voter.voter_id))
            self._voters.begin(key, voter_values(voter), when, cause)
        self._known_voters = voters

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""
        self._epochs.lose_sight(when)
        self._voters.lose_sight(when)
        self._known_voters = {}
        self._last = None
        self._leader = NO_NODE

    def voters_state(self) -> list[Row]:
        """The rows of `voters_state` without the cluster and the time columns."""
        return [voter_values(self._known_voters[key]) for key in sorted(self._known_voters)]

    def finish(self, now: When) -> None:
        """Write the open rows."""
        self._epochs.finish(now)
        self._voters.finish(now)

    def _write_gap(self, kind: str, before: When, after: When, old: int, new: int, cause: CauseRow) -> None:
        seconds = (after.timestamp - before.timestamp) / 1000
        validity = (before.offset, before.timestamp, after.offset, after.timestamp, ACTIVE_AGAIN, after.epoch)
        self._sink.emit("controller_gaps", (kind, seconds, old, new, before.epoch, *validity, *cause))


_VOTER_TEXTS: Final = {
    "voters-begin": "voter {id} is of the first dynamic quorum",
    "voter-added": "voter {id} was added",
    "voter-updated": "voter {id} reported other endpoints or versions",
}


def _election_text(record: LeaderChangeMessage, when: When, silence: float | None, skipped: int | None) -> str:
    granting = ", ".join(str(voter.voter_id) for voter in record.granting_voters) or "no voter"
    text = f"controller {record.leader_id} was elected for epoch {when.epoch} with the votes of {granting}"
    if silence is not None:
        text += f", {silence:.1f} s after the last record of the epoch before"
    if skipped:
        text += f"; {skipped} in between had no winner, or one that wrote nothing"
    return text
