"""A core that tells what it does in the words of `docs/protocol/Quorum.tla`: who took which step of the protocol, and
the state after it. A model checker then says whether a run is a behaviour of that specification.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.quorum.core import RaftCore
from kraft.quorum.effects import (
    AppendBatch,
    AppendControl,
    AppendFetched,
    Effect,
    HighWatermarkMoved,
    InstallSnapshot,
    SendReply,
    SendRequest,
    StateChanged,
    TruncateLog,
)
from kraft.quorum.events import Event, LogFlushed, LogStartRaised, Received, SnapshotTaken
from kraft.quorum.messages import AddVoterReply, Fetch, RemoveVoterReply, Vote, VoteReply
from kraft.quorum.states import LeaderState
from kraft.quorum.values import ReplicaKey
from kraft.quorum.voters import VoterSet
from metadata_log.records.control import VotersRecord
from metadata_log.types import NO_NODE, OffsetAndEpoch, Uuid
from transport.protocol.errors import Error

Key = tuple[int, str]
"""A node id and a directory id."""


class State(Struct, frozen=True, array_like=True):
    """The state of a replica after a step, as far as it is told."""

    leader: int
    vote: Key | None
    end: int
    last_epoch: int
    """The epoch of the last record."""
    high_watermark: int
    start: int
    voters: tuple[Key, ...]


class ProtocolStep(Struct, frozen=True, array_like=True):
    """One step of a replica. The steps of one turn of a core have the state after the turn at the last of them."""

    replica: Key
    what: str
    """The name of the action in the specification."""
    role: str
    epoch: int
    end: int = 0
    """The subject of the step: an end of the log, or that of a candidate or a Fetch."""
    last_epoch: int = 0
    """The epoch of the record before that end, for what was sent."""
    candidate: Key | None = None
    """The candidate that gets a vote."""
    state: State | None = None
    begin: int = 0
    """Where the log begins, at a start."""
    voters: tuple[Key, ...] = ()
    """The voters that a record sets."""
    on_disk: tuple[int, int, int] | None = None
    """Epoch, leader and vote that the disk has after the turn; at a start those that the replica has found."""


Recorder = Callable[[list[ProtocolStep]], None]
"""Receives the steps of one turn of a core, before anything that follows from them can be seen elsewhere."""

_ROLES: Final = {"Voted": "Unattached"}
"""The roles of the specification, where they have another name: a vote is no role of its own there."""


class RecordedCore(RaftCore):
    """A core whose steps of the protocol go to a recorder."""

    def __init__(self, *, recorder: Recorder, **of_core: Any) -> None:
        """`of_core` are the arguments of a core."""
        super().__init__(**of_core)
        self._recorder = recorder
        self._own = key_of(self.local)
        self._last = self._state()
        self._sent = set[tuple[str, int, int, int]]()
        """The messages of this epoch: one that is sent again is no step."""

    def begin(self, now_ms: int) -> list[Effect]:
        """Enter the first state; call once, before any step."""
        found = (self._election.epoch, self._election.leader_id, _id_or_none(self._election.voted))
        effects = super().begin(now_ms)
        first = next(one for one in effects if isinstance(one, StateChanged))
        role = _ROLES.get(first.target, first.target)
        started = ProtocolStep(
            self._own, "Restart", role, first.epoch, end=self._last.end, begin=self._last.start, on_disk=found
        )
        self._record([started, *self._steps(effects[effects.index(first) + 1 :], role, first.epoch)])
        return effects

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle one event; returns the effects to carry out, in order."""
        role, epoch, flushed = self._role(), self.epoch, self.log.flushed_offset
        tells = not self._answers_early()
        effects = super().step(event, now_ms)
        self._tell(event, effects, role, epoch, flushed, tells=tells)
        return effects

    def _answers_early(self) -> bool:
        """Whether who adds a voter wants no answer of its commit (`ack_when_committed` of AddRaftVoter)."""
        state = self._quorum.state
        adding = state.change.adding if isinstance(state, LeaderState) and state.change is not None else None
        return adding is not None and not adding.ack_when_committed

    def _tell(
        self, event: Event, effects: list[Effect], role: str, epoch: int, flushed: int, *, tells: bool = False
    ) -> None:
        """Record the turn of an event, which began in this role and epoch and with this flushed end; `tells` adds the
        answers to changes of the voters.
        """
        steps = []
        if isinstance(event, LogFlushed) and self.log.flushed_offset != flushed:
            steps.append(ProtocolStep(self._own, "Flush", role, epoch, end=event.offset))
        elif isinstance(event, SnapshotTaken):
            steps.append(ProtocolStep(self._own, "Snapshot", role, epoch, end=event.snapshot.offset))
        elif isinstance(event, LogStartRaised):
            steps.append(ProtocolStep(self._own, "Clean", role, epoch, end=event.offset))
        asked = event.message if isinstance(event, Received) and isinstance(event.message, Vote) else None
        self._record([*steps, *self._steps(effects, role, epoch, asked, tells=tells)] if effects else steps)

    def _record(self, steps: list[ProtocolStep]) -> None:
        state = self._state()
        if not steps:
            if state == self._last:
                return
            # A change without a step is none that the specification knows.
            steps = [ProtocolStep(self._own, "Nothing", self._role(), self.epoch)]
        last = steps[-1]
        on_disk = last.on_disk if last.what == "Restart" else self._on_disk()
        steps[-1] = replace(last, role=self._role(), epoch=self.epoch, state=state, on_disk=on_disk)
        self._last = state
        self._recorder(steps)

    def _on_disk(self) -> tuple[int, int, int]:
        election = self._quorum.persisted
        assert election is not None, "the first state is persisted at the start"
        return election.epoch, election.leader_id, _id_or_none(election.voted)

    def _steps(
        self, effects: list[Effect], role: str, epoch: int, asked: Vote | None = None, *, tells: bool = False
    ) -> list[ProtocolStep]:
        """The steps in a turn of the core, which began in this role and epoch."""
        found: list[ProtocolStep] = []

        def add(what: str, end: int = 0, last_epoch: int = 0, candidate: Key | None = None) -> None:
            found.append(ProtocolStep(self._own, what, role, epoch, end, last_epoch, candidate))

        installed: OffsetAndEpoch | None = None
        for at, effect in enumerate(effects):
            match effect:
                case StateChanged() as change:
                    what = _transition(change, role, epoch)
                    role, epoch = _ROLES.get(change.target, change.target), change.epoch
                    if what:
                        add(what, epoch if what in ("LearnEpoch", "LearnLeader") else 0)
                case AppendBatch():
                    add("AppendData", effect.base_offset + len(effect.values))
                case AppendControl():
                    for offset, record in enumerate(effect.records, effect.base_offset + 1):
                        if isinstance(record, VotersRecord):
                            keys = tuple(map(key_of, VoterSet.of_record(record).keys))
                            found.append(ProtocolStep(self._own, "ChangeVoters", role, epoch, end=offset, voters=keys))
                        else:
                            add("AppendData", offset)
                case AppendFetched():
                    add("Take", effect.next_offset)
                case TruncateLog():
                    if not any(isinstance(one, InstallSnapshot) for one in effects[at:]):
                        add("Truncate", effect.offset)
                case InstallSnapshot():
                    installed = effect.snapshot
                    add("Install", effect.snapshot.offset)
                case HighWatermarkMoved():
                    if installed is None or installed.offset != effect.offset:
                        add("Commit" if role == "Leader" else "Hear", effect.offset)
                case SendReply(message=VoteReply(granted=True)) if asked is not None:
                    add("GrantPreVote" if asked.pre_vote else "GrantVote", 0, 0, key_of(asked.candidate))
                case SendReply(message=AddVoterReply(error=Error.NONE) | RemoveVoterReply(error=Error.NONE)) if tells:
                    add("AnswerChange")
                case SendRequest(message=Vote(last=last)):
                    if self._is_new("Ask " + role, epoch, last):
                        add("Ask", last.offset, last.epoch)
                case SendRequest(message=Fetch(offset=offset, last_epoch=last_epoch)):
                    if self._is_new("Fetch", epoch, OffsetAndEpoch(epoch=last_epoch, offset=offset)):
                        add("Fetch", offset, last_epoch)
        return found

    def _is_new(self, what: str, epoch: int, last: OffsetAndEpoch) -> bool:
        fact = (what, epoch, last.offset, last.epoch)
        if fact in self._sent:
            return False
        if self._sent and next(iter(self._sent))[1] != epoch:
            self._sent.clear()
        self._sent.add(fact)
        return True

    def _role(self) -> str:
        name = self.state_name
        return _ROLES.get(name, name)

    def _state(self) -> State:
        quorum, log = self._quorum, self.log
        return State(
            quorum.state.leader_id,
            _key_or_none(quorum.state.voted),
            log.end_offset,
            log.last_epoch,
            log.high_watermark,
            log.start_offset,
            tuple(key_of(one) for one in quorum.voters.keys),
        )


def _transition(change: StateChanged, role: str, epoch: int) -> str:
    """The action that a change of the state is; empty for one that the specification does not tell apart."""
    target = _ROLES.get(change.target, change.target)
    if change.cause.startswith("vote-for-"):
        return ""  # a part of GrantVote
    match target:
        case "Prospective":
            return "Nominate"
        case "Candidate":
            return "Stand" if change.cause == "pre-vote-won" else "StandAlone"
        case "Leader":
            return "Win"
        case "Resigned":
            return "Resign"
        case "Unattached" if change.epoch == epoch:
            return "GiveUp"
        case "Unattached":
            return "Leave" if role == "Resigned" and change.cause == "election-timeout" else "LearnEpoch"
        case _ if role == "Prospective" and change.epoch == epoch and change.cause in _GIVEN_UP:
            return "GiveUp"
        case _:
            return "" if role == target and change.epoch == epoch else "LearnLeader"


_GIVEN_UP: Final = ("pre-vote-lost", "election-timeout")


def key_of(key: ReplicaKey) -> Key:
    """A replica as the steps name it; an unknown directory is an empty text."""
    return key.id, "" if key.directory_id == Uuid.ZERO else str(key.directory_id)


def _id_or_none(key: ReplicaKey | None) -> int:
    return NO_NODE if key is None else key.id


def _key_or_none(key: ReplicaKey | None) -> Key | None:
    return None if key is None or key.id == NO_NODE else key_of(key)
