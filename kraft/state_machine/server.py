"""A user's state machine as a part of a process (Kafka: `RaftClient.Listener`).

Any node takes commands and reads. The leader appends each command to the log; a read waits until the node has applied
the log up to the offset that the leader reports. Between nodes both travel in Kafka's envelopes for forwarding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, Final

from msgspec import DecodeError, Struct

from kraft.agenda import Agenda
from kraft.calls import Call, CancelCall, Returned
from kraft.committed import Committed, CommittedBatch, Noted
from kraft.limits import COMMANDS_PER_TURN, FORWARDED_ENTRIES
from kraft.quorum.accumulator import BATCH_OVERHEAD, RECORD_OVERHEAD
from kraft.quorum.values import QuorumConfig
from kraft.replica.interface.actions import Action, Confirm, Proposal, Unit
from kraft.replica.interface.events import Submit
from kraft.replica.interface.leading import Leading
from kraft.server import Server
from kraft.state_machine import Change, Codec, CommandRefused, Position, StateMachine
from kraft.state_machine.calls import Key, OpenCall, StateMachineCalls, SubmitCall, key_of
from kraft.state_machine.log import (
    AskIndex,
    Command,
    Entry,
    Forward,
    Index,
    OpenSession,
    Outcome,
    Refusal,
    Result,
    StateMachineSnapshot,
    decode_entry,
    decode_index,
    decode_question,
    encode,
    read_snapshot,
    snapshot_values,
)
from kraft.state_machine.reads import Reader, StateMachineReads
from kraft.state_machine.sessions import Sessions
from kraft.wire import Answer, Part, ReplyTo, Send, WireRequest
from metadata_log.errors import CorruptBatch
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, OffsetAndEpoch
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse

_ASK_INDEX: Final = encode(AskIndex())
_NEXT: Final = 0
"""The one slot of the agenda: what is due follows from one state."""
_AT_ONCE_MS: Final = 0


class Kind(Enum):
    """The kinds of requests of this node to the leader; of each at most one is open."""

    FORWARD = "forward"
    INDEX = "index"


class Question(Struct, frozen=True, gc=False):
    """The key of a request to a leader, by which its reply is recognised. A reply of an earlier round is ignored."""

    round: int
    kind: Kind


class ReadCall(Struct, frozen=True):
    """Return when the host may read the state machine: every acknowledged command is applied then."""


class ReadReady(Struct, frozen=True):
    """The answer to a `ReadCall`: the host may read, now and later on."""


class Changes(Struct, frozen=True):
    """The commands of one batch that were applied, in order; those that were refused or came twice are not there."""

    changes: tuple[Change[Any, Any], ...]


class Skipped(Struct, frozen=True):
    """A snapshot that ends at this offset took the place of the state: what led to it is not told."""

    end_offset: int


class StateMachineServer(Leading, Server):
    """Hosts one `StateMachine`."""

    apis = frozenset((ApiKey.ENVELOPE,))
    reads_batches = True

    def __init__(
        self,
        make: Callable[[], StateMachine[Any, Any]],
        *,
        client: str,
        max_batch_bytes: int,
        retry_backoff_ms: int,
        request_timeout_ms: int = QuorumConfig().request_timeout_ms,
        session_ttl_ms: int,
    ) -> None:
        super().__init__(Agenda(slots=1))
        self.machine = make()
        self.watch(lambda _, function: function)
        self.codec = Codec(self.machine)
        self.sessions = Sessions()
        self.applied_offset = 0
        """The state is that of the log below, and of the commands above that a batch under way has brought."""
        self._batch: CommittedBatch | None = None
        """The batch of the commands that are being applied."""
        self._position = 0
        """How many of them were."""
        self._changes: list[Change[Any, Any]] = []
        self._make = make
        self._max_entry_bytes = max_batch_bytes - BATCH_OVERHEAD - RECORD_OVERHEAD
        self._calls = StateMachineCalls(client, self._max_entry_bytes, session_ttl_ms)
        self._reads = StateMachineReads()
        self._retry_backoff_ms = retry_backoff_ms
        self._request_timeout_ms = request_timeout_ms
        self._is_leader = False
        self._proposed: dict[Key, tuple[int, ...]] = {}
        """By what is on its way into the log of this leader, the requests that wait for it."""
        self._forwarded: dict[int, int] = {}
        """By such a request, how many of its entries are not applied."""
        self._round = 0
        """Answers to what was asked before the last change of roles are of no interest."""
        self._asked: dict[Kind, tuple[int, ...]] = {}
        """By the kind of a question to the leader, for which calls it was asked; one of each kind at a time."""
        self._ask_again_ms = 0
        self._tick_at_ms = NEVER_MS
        """When this leader lets the state machine submit a command of its own."""
        self._actions: list[Action] = []

    def watch(self, watched: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> None:
        """Call the functions of the state machine by way of `watched`, which gets the name and the function of each.

        They are the user's, and no turn can be cut while one runs: the turn watch can only measure them.
        """
        machine = self.machine
        self._apply_to_machine = watched("apply", machine.apply)
        self._restore_machine = watched("restore", machine.restore)
        self._snapshot_machine = watched("snapshot", machine.snapshot)

    # The log

    def check(self, values: Sequence[bytes], *, in_snapshot: bool = False) -> Sequence[Message]:
        """Decode the entries; what a command means is up to the state machine. A snapshot is one message in pieces."""
        if not in_snapshot:
            for value in values:
                decode_entry(value)
        return ()

    def check_snapshot(self, values: Iterable[bytes]) -> None:
        """Decode the sessions; what the state means is up to the state machine."""
        read_snapshot(values)

    def on_snapshot(self, values: Iterable[bytes], end: OffsetAndEpoch) -> None:
        """Take the state and the sessions that a snapshot holds."""
        snapshot = read_snapshot(values, f"snapshot {end}")
        self.sessions = Sessions(snapshot.now_ms, snapshot.sessions)
        self._restore_machine(snapshot.state)
        self.applied_offset = end.offset
        self._batch = None
        self._actions.append(Noted(Skipped(end.offset)))
        self._actions += self._calls.restored(self.sessions)
        self._release_reads()
        self._plan()

    def on_committed(self, batch: CommittedBatch) -> tuple[Committed, ...]:
        """Apply the commands of a batch."""
        self.sessions.pass_time(batch.timestamp_ms)
        self._batch, self._changes = batch, []
        self._position = 0
        return self.apply_more()

    @property
    def log_kind(self) -> str:
        """The kind of the log, which the directory of the node keeps."""
        return self.machine.log_kind

    @property
    def is_applying(self) -> bool:
        """Whether commands of the last batch are left for another turn."""
        return self._batch is not None

    def apply_more(self) -> tuple[Committed, ...]:
        """Apply as many commands of the batch as one turn has room for."""
        batch, changes = self._batch, self._changes
        assert batch is not None, "no batch is being applied"
        start = self._position
        portion = batch.values[start : start + COMMANDS_PER_TURN]
        for offset, value in enumerate(portion, batch.base_offset + start):
            entry = decode_entry(value, f"offset {offset}")
            outcome = self._apply(entry, Position(offset, batch.epoch, batch.timestamp_ms), changes)
            self._actions += self._calls.applied(entry, outcome)
            if self._is_leader:
                self._answer_forwards(key_of(entry))
        self._position += len(portion)
        if self._position == len(batch.values):
            self._batch = None
            self.applied_offset = batch.next_offset
            if changes:
                self._actions.append(Noted(Changes(tuple(changes))))
            self._release_reads()
        self._plan()
        return ()

    def _apply(self, entry: Entry, at: Position, changes: list[Change[Any, Any]]) -> Outcome:
        if isinstance(entry, OpenSession):
            return self.sessions.open(entry, at.offset)
        known = self.sessions.admit(entry)
        if known is not None:
            return known
        kept = self._apply_command(entry, at, changes)
        self.sessions.keep(entry, kept)
        return kept

    def _apply_command(self, entry: Command, at: Position, changes: list[Change[Any, Any]]) -> Result | Refusal:
        try:
            command = self.codec.command(entry.command)
        except DecodeError:
            # No more than that: it is kept, and every node has to keep the same.
            return Refusal("the command cannot be read")
        try:
            result = self._apply_to_machine(command, at)
        except CommandRefused as refused:
            return Refusal(str(refused))
        except Exception as bug:
            bug.add_note(f"while applying the command at offset {at.offset}: {command!r}")
            raise
        changes.append(Change(at, command, result))
        return Result(self.codec.encode(result))

    def snapshot(self) -> Callable[[], Iterator[bytes]] | None:
        """The state and the sessions as they are now."""
        state = self._snapshot_machine()
        values = snapshot_values(StateMachineSnapshot(self.sessions.now_ms, self.sessions.states(), state))
        return lambda: iter(values)

    # Leading

    def on_leader(self, epoch: int, next_offset: int, now_ms: int) -> tuple[Action, ...]:
        """Propose by itself from now on, also what another leader was asked for and may not have done."""
        self._is_leader = True
        self._tick_later(now_ms)
        self._change_roles()
        return ()

    def on_lost_leadership(self) -> None:
        """Refuse the open entries of other nodes: uncommitted ones may vanish. Own calls are repeated elsewhere."""
        self._is_leader = False
        self._tick_at_ms = NEVER_MS
        for request_id in self._forwarded:
            self._respond(request_id, Error.NOT_LEADER_OR_FOLLOWER)
        self._forwarded.clear()
        self._proposed.clear()
        self._change_roles()

    def _tick_later(self, now_ms: int) -> None:
        if self.machine.tick_ms:
            self._tick_at_ms = now_ms + self.machine.tick_ms

    def _tick(self, now_ms: int) -> None:
        """Submit what the state machine wants by itself."""
        self._tick_later(now_ms)
        command = self.machine.tick()
        if command is not None:
            self._calls.tick(self.codec.encode(command))

    def _change_roles(self) -> None:
        self._round += 1
        self._reads.wait_again(self._asked.get(Kind.INDEX, ()))
        self._asked.clear()
        self._calls.send_all_again()
        self._ask_again_ms = 0
        self._plan()

    def on_request(self, request: WireRequest, now_ms: int) -> Action:
        """Handle a request of another node, which has commands or wants to read."""
        message = request.message
        assert isinstance(message, EnvelopeRequest), message
        if not self._is_leader:
            return _answer(request.request_id, Error.NOT_LEADER_OR_FOLLOWER)
        if self.quorum.is_full and message.request_data != _ASK_INDEX:
            # The sender repeats it later.
            return _answer(request.request_id, Error.REQUEST_TIMED_OUT)
        try:
            question = decode_question(message.request_data)
            if isinstance(question, AskIndex):
                return Confirm(self._reads.ask_for(Reader(request.request_id, is_remote=True)))
            return self._take_over(request.request_id, question)
        except CorruptBatch:
            return _answer(request.request_id, Error.INVALID_REQUEST)

    def _take_over(self, request_id: int, forward: Forward) -> Action:
        """Propose another node's entries, and answer once they are applied."""
        entries = [(decode_entry(data, "envelope"), data) for data in forward.entries]
        if any(len(data) > self._max_entry_bytes for _, data in entries):
            return _answer(request_id, Error.MESSAGE_TOO_LARGE)
        if len(self._proposed) + len(entries) > FORWARDED_ENTRIES:
            return _answer(request_id, Error.REQUEST_TIMED_OUT)
        keys = {key_of(entry): data for entry, data in entries if not self._is_done(entry)}
        if not keys:
            return _answer(request_id, Error.NONE)
        units = tuple(Unit((data,)) for key, data in keys.items() if key not in self._proposed)
        for key in keys:
            self._proposed[key] = (*self._proposed.get(key, ()), request_id)
        self._forwarded[request_id] = len(keys)
        return Proposal(units)

    def _is_done(self, entry: Entry) -> bool:
        """Whether an earlier copy of a command has been applied, so that there need not be another."""
        return isinstance(entry, Command) and isinstance(
            self.sessions.known(entry.session, entry.sequence), Result | Refusal
        )

    def _answer_forwards(self, key: Key) -> None:
        for request_id in self._proposed.pop(key, ()):
            left = self._forwarded[request_id] = self._forwarded[request_id] - 1
            if not left:
                del self._forwarded[request_id]
                self._respond(request_id, Error.NONE)

    def _respond(self, request_id: int, error: Error, data: bytes = b"") -> None:
        self._actions.append(_answer(request_id, error, data))

    def on_confirmed(self, token: int, *, is_leader: bool) -> None:
        """Let the confirmed reads proceed, or send them to another leader."""
        for reader in self._reads.take_asked(token):
            if not reader.is_remote:
                if is_leader:
                    self._actions.append(Returned(reader.id, ReadReady()))
                else:
                    self._reads.wait_again((reader.id,))
            elif is_leader:
                self._respond(reader.id, Error.NONE, encode(Index(self.applied_offset)))
            else:
                self._respond(reader.id, Error.NOT_LEADER_OR_FOLLOWER)
        self._plan()

    # The host's calls

    def on_call(self, call: Call | CancelCall | Submit, now_ms: int) -> Action | None:
        """Take a call of the host (apply a command, open a session, read), or cancel an earlier one."""
        match call:
            case Submit():
                return super().on_call(call, now_ms)
            case CancelCall(call_id=call_id):
                self._calls.cancel(call_id)
                self._reads.cancel(call_id)
            case Call(call_id=call_id, ask=SubmitCall() | OpenCall() as ask):
                returned = self._calls.begin(call_id, ask, self.sessions)
                if returned is not None:
                    self._actions.append(returned)
            case Call(call_id=call_id, ask=ReadCall()):
                self._reads.wait(call_id)
            case _:
                raise AssertionError(f"a state machine is not asked for {call}")
        if self.agenda.deadline_ms > _AT_ONCE_MS or isinstance(call, CancelCall):
            self._plan()
        return None

    def _release_reads(self) -> None:
        self._actions += [Returned(call_id, ReadReady()) for call_id in self._reads.release(self.applied_offset)]

    def on_reply(self, reply_to: ReplyTo, response: Message | None, now_ms: int) -> None:
        """Take the leader's answer; without an answer this node asks the current leader again after a backoff."""
        question = reply_to.key
        assert isinstance(question, Question), reply_to
        if question.round != self._round:
            return
        kind = question.kind
        call_ids = self._asked.pop(kind)
        index = _index_in(response) if kind == Kind.INDEX else None
        if kind == Kind.INDEX and index is not None:
            self._reads.learn(index, call_ids)
            self._release_reads()
        elif kind == Kind.INDEX:
            self._ask_again_ms = now_ms + self._retry_backoff_ms
            self._reads.wait_again(call_ids)
        elif not isinstance(response, EnvelopeResponse) or response.error_code != Error.NONE:
            self._ask_again_ms = now_ms + self._retry_backoff_ms
            self._calls.send_again(call_ids)
        # Else they are in the log, and this node will come to them.
        self._plan()

    def _plan(self) -> None:
        """Say when the next `on_tick` is due: at once, if there is something to say, to propose or to ask."""
        if self._actions:
            self.agenda.now(_NEXT)
            return
        wants_forward = self._calls.is_any_unsent and Kind.FORWARD not in self._asked
        wants_index = self._reads.is_any_waiting and Kind.INDEX not in self._asked
        due_ms = self._tick_at_ms
        if wants_forward or wants_index:
            due_ms = _AT_ONCE_MS if self._is_leader else self._ask_again_ms
        self.agenda.at(_NEXT, due_ms)

    def on_tick(self, now_ms: int) -> tuple[Action, ...]:
        """Hand out what is to be said, proposed or asked."""
        actions, self._actions = self._actions, []
        if now_ms >= self._tick_at_ms:
            self._tick(now_ms)
        if self._is_leader:
            actions += self._propose()
            if self._reads.is_any_waiting:
                actions.append(Confirm(self._reads.ask_for_all()))
        elif now_ms >= self._ask_again_ms:
            actions += self._questions()
        self._plan()
        return tuple(actions)

    def _propose(self) -> Iterator[Action]:
        """Own entries, but for those that are on their way into the log already."""
        while taken := self._calls.take():
            entries = {sent.key: sent.entry for sent in taken if sent.key not in self._proposed}
            self._proposed |= dict.fromkeys(entries, ())
            yield Proposal(tuple(Unit((entry,)) for entry in entries.values()))

    def _questions(self) -> Iterator[Action]:
        if self._calls.is_any_unsent and Kind.FORWARD not in self._asked:
            taken = self._calls.take()
            if taken:
                call_ids = tuple(sent.call_id for sent in taken)
                yield self._ask(Kind.FORWARD, call_ids, Forward(tuple(sent.entry for sent in taken)))
        if self._reads.is_any_waiting and Kind.INDEX not in self._asked:
            yield self._ask(Kind.INDEX, self._reads.take_waiting(), AskIndex())

    def _ask(self, kind: Kind, call_ids: tuple[int, ...], question: Forward | AskIndex) -> Send:
        self._asked[kind] = call_ids
        reply_to = ReplyTo(Part.STATE_MACHINE, Question(self._round, kind))
        return Send(EnvelopeRequest(request_data=encode(question)), reply_to, self._request_timeout_ms)


def _answer(request_id: int, error: Error, data: bytes = b"") -> Answer:
    return Answer(request_id, EnvelopeResponse(response_data=data, error_code=error))


def _index_in(response: Message | None) -> int | None:
    """The answer of a leader that was asked for its index; None if there is none."""
    if not isinstance(response, EnvelopeResponse) or response.error_code != Error.NONE:
        return None
    try:
        return decode_index(response.response_data or b"").offset
    except CorruptBatch:
        return None
