"""The language of `tests/transcripts`: `>` begins a command, the lines below are the effects it caused.

    > voters 1 2 3             the voters; before any `start`
    > dynamic 1 2 3            the same, but in the log, where they can change; others may be started, too
    > config name=value …      QuorumConfig of the nodes started after it
    > flush by-hand|at-once    whether an fsync waits for `> flush NODE`
    > start NODE [epoch= leader= voted= log=END@EPOCH,…]     with this on disk
    > crash NODE / restart NODE            what was not fsynced is lost
    > move NODE PORT / wipe NODE           of one that has crashed: it listens elsewhere, or has another disk: NODE'
    > timeout NODE             time passes, for this node alone, until its state changes
    > wait NODE MS             time passes for this node
    > deliver A B [WHAT]       the oldest message on its way from A to B, of this kind
    > lose A B [WHAT]          it never arrives
    > settle                   deliver everything, until nothing is on its way
    > receive NODE WHAT from=… …           a message that no node of this transcript has sent
    > answer NODE PEER WHAT …              an answer to the last request of NODE to PEER
    > fail NODE PEER CAUSE                 that request fails
    > append NODE VALUE… / flush NODE / read NODE ID / resign NODE / shutdown NODE / show NODE

Every node has its own clock, which only `timeout` and `wait` move: what it prints is what passed.
`pytest tests/kraft/quorum/test_transcripts.py --rewrite-transcripts` writes what the cores do now; read the diff.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from kraft.invariants.observation import LogBatch
from kraft.quorum.effects import (
    AppendBatch,
    AppendControl,
    AppendFetched,
    Effect,
    FlushLog,
    HighWatermarkMoved,
    LeaderChanged,
    PeerFault,
    PersistElection,
    ReadConfirmed,
    SendRecords,
    SendReply,
    SendRequest,
    StateChanged,
    TruncateLog,
    VotersChanged,
)
from kraft.quorum.events import FailureCause
from kraft.quorum.messages import (
    HIGH_WATERMARK_ABSENT,
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Fetch,
    FetchReply,
    ProbeVersions,
    Vote,
    VoteReply,
)
from kraft.quorum.values import ElectionState, Endpoints, ListenerAddress, QuorumConfig, ReplicaKey
from kraft.quorum.voters import VoterSet
from kraft.sim.nodes.core_log import pack_batches
from kraft.sim.nodes.core_member import CoreMember
from kraft.sim.world.member_interface import Answer, Flush, Output, SimulatedRequest
from metadata_log.types import OffsetAndEpoch
from support.transcripts.driver import fields
from support.transcripts.voters import (
    DynamicMember,
    VoterMessage,
    VoterMessageReply,
    control_text,
    key_of,
    message_text,
    name_of,
    voter_message,
    voter_of,
    voter_reply,
    voters_text,
)
from transport.protocol.errors import Error

START_MS = 1_000_000
STRANGER = 0
"""The request ids of messages from outside begin here and go down."""


class InFlight(Struct, frozen=True):
    """A message between two nodes; a reply carries the id of the request at its sender."""

    source: int
    target: int
    request_id: int
    message: object
    is_reply: bool


class QuorumPlayer:
    """Runs the commands of one file and keeps what they print."""

    settings: Mapping[str, str] = {}

    def __init__(self) -> None:
        self._voters = VoterSet.parse("1@n1:9000,2@n2:9000,3@n3:9000")
        self._config = QuorumConfig(append_linger_ms=0)
        self._is_dynamic = False
        self._members: dict[int, CoreMember] = {}
        self._clocks: dict[int, int] = {}
        self._flights: list[InFlight] = []
        self._flushes: dict[int, list[int]] = {}
        self._flush_at_once = True
        self._callers: dict[int, tuple[int, int] | None] = {}
        self._last_asked: dict[tuple[int, int], int] = {}
        self._next_request_id = 1
        self._lines: list[str] = []

    def act(self, name: str, words: tuple[str, ...]) -> list[str]:
        """Carry out one command; the lines it prints."""
        self._lines = []
        getattr(self, f"_on_{name.replace('-', '_')}")(*words)
        return self._lines

    def member(self, node_id: int) -> CoreMember:
        """A node, for a look at its core."""
        return self._members[node_id]

    # Commands: the cluster

    def _on_voters(self, *ids: str) -> None:
        assert not self._members, "voters come before start"
        self._voters = VoterSet.parse(",".join(f"{one}@n{one}:9000" for one in ids))

    def _on_dynamic(self, *ids: str) -> None:
        assert not self._members, "voters come before start"
        self._voters = VoterSet.of(voter_of(key_of(one)) for one in ids)
        self._is_dynamic = True

    def _on_config(self, *settings: str) -> None:
        for name, value in fields(settings).items():
            self._config = replace(self._config, **{name: int(value)})

    def _on_flush(self, what: str) -> None:
        if what in ("by-hand", "at-once"):
            self._flush_at_once = what == "at-once"
            return
        node_id = int(what)
        tickets, self._flushes[node_id] = self._flushes[node_id], []
        assert tickets, f"nothing to flush at {node_id}"
        for ticket in tickets:
            self._stepped(node_id, self._members[node_id].on_flushed(ticket, self._clocks[node_id]))

    def _on_start(self, node: str, *settings: str) -> None:
        if self._is_dynamic:
            assert not settings, "members of dynamic quorums begin with nothing"
            self._begin_with(DynamicMember(key_of(node), voters=self._voters, config=self._config))
            return
        given = fields(settings)
        election = None
        if "epoch" in given:
            election = ElectionState(
                epoch=int(given["epoch"]),
                leader_id=int(given.get("leader", -1)),
                voted=ReplicaKey(int(given["voted"])) if "voted" in given else None,
                voters=self._voters.ids,
            )
        log = _log(given.get("log", ""))
        self._begin_with(CoreMember(int(node), voters=self._voters, config=self._config, log=log, election=election))

    def _begin_with(self, member: CoreMember) -> None:
        self._members[member.node_id] = member
        self._clocks[member.node_id] = START_MS
        self._forget(member.node_id)
        self._begin(member.node_id)

    def _forget(self, node_id: int) -> None:
        """The node begins or ends a life: nothing that was on its way to or from it matters any more."""
        self._flights = [one for one in self._flights if node_id not in (one.source, one.target)]
        self._callers = {key: caller for key, caller in self._callers.items() if caller and caller[0] != node_id}
        self._last_asked = {pair: asked for pair, asked in self._last_asked.items() if pair[0] != node_id}

    def _begin(self, node_id: int) -> None:
        self._flushes[node_id] = []
        self._stepped(node_id, self._members[node_id].start(Random(node_id), self._clocks[node_id]))

    def _on_crash(self, node: str) -> None:
        node_id = int(node)
        self._members[node_id].crash(_LoseAll())
        self._forget(node_id)

    def _on_restart(self, node: str) -> None:
        self._begin(int(node))

    def _on_move(self, node: str, port: str) -> None:
        member = self._members[int(node)]
        assert isinstance(member, DynamicMember), member
        member.port = int(port)

    def _on_wipe(self, node: str) -> None:
        member = self._members[int(node)]
        assert not member.is_running, node
        new_key = key_of(name_of(member.key) + "'")
        self._members[int(node)] = DynamicMember(new_key, voters=self._voters, config=self._config)

    # Commands: time

    def _on_timeout(self, node: str) -> None:
        node_id, member = int(node), self._members[int(node)]
        began_ms = self._clocks[node_id]
        for _ in range(50):
            self._tick(node_id, max(member.deadline_ms(), self._clocks[node_id]))
            if any(isinstance(effect, StateChanged) for effect in member.effects):
                break
        else:
            raise AssertionError(f"{node_id} stays {member.view()}")
        self._lines.append(f"{node_id} ({self._clocks[node_id] - began_ms} ms)")

    def _on_wait(self, node: str, milliseconds: str) -> None:
        node_id, member = int(node), self._members[int(node)]
        until_ms = self._clocks[node_id] + int(milliseconds)
        while member.deadline_ms() <= until_ms:
            self._tick(node_id, max(member.deadline_ms(), self._clocks[node_id]))
        self._tick(node_id, until_ms)

    def _tick(self, node_id: int, now_ms: int) -> None:
        self._clocks[node_id] = now_ms
        self._stepped(node_id, self._members[node_id].tick(now_ms))

    # Commands: messages

    def _on_deliver(self, source: str, target: str, what: str = "") -> None:
        self._arrive(self._take(int(source), int(target), what))

    def _on_lose(self, source: str, target: str, what: str = "") -> None:
        self._take(int(source), int(target), what)

    def _on_settle(self) -> None:
        for _ in range(200):
            arriving = [one for one in self._flights if self._is_running(one.target)]
            if not arriving:
                return
            self._flights.remove(arriving[0])
            self._arrive(arriving[0])
        raise AssertionError("it never settles")

    def _is_running(self, node_id: int) -> bool:
        return node_id in self._members and self._members[node_id].is_running

    def _take(self, source: int, target: int, what: str) -> InFlight:
        for one in self._flights:
            if (one.source, one.target) == (source, target) and what in ("", type(one.message).__name__):
                self._flights.remove(one)
                return one
        raise AssertionError(f"no {what or 'message'} from {source} to {target} among {self._flights}")

    def _arrive(self, flight: InFlight) -> None:
        node_id, member = flight.target, self._members[flight.target]
        now_ms = self._clocks[node_id]
        if flight.is_reply:
            outputs = member.on_reply(flight.request_id, flight.message, now_ms)
        else:
            request_id = self._accept((flight.source, flight.request_id))
            outputs = member.on_request(request_id, flight.message, now_ms)
        self._stepped(node_id, outputs)

    def _accept(self, caller: tuple[int, int] | None) -> int:
        request_id = self._next_request_id
        self._next_request_id += 1
        self._callers[request_id] = caller
        return request_id

    def _on_receive(self, node: str, what: str, *settings: str) -> None:
        node_id = int(node)
        message = _message(what, node_id, settings)
        self._stepped(node_id, self._members[node_id].on_request(self._accept(None), message, self._clocks[node_id]))

    def _on_answer(self, node: str, peer: str, what: str, *settings: str) -> None:
        node_id, request_id = int(node), self._forget_asked(node, peer)
        message = _reply(what, settings)
        self._stepped(node_id, self._members[node_id].on_reply(request_id, message, self._clocks[node_id]))

    def _on_fail(self, node: str, peer: str, cause: str) -> None:
        node_id, request_id = int(node), self._forget_asked(node, peer)
        failed = self._members[node_id].on_failed(request_id, FailureCause(cause), self._clocks[node_id])
        self._stepped(node_id, failed)

    def _forget_asked(self, node: str, peer: str) -> int:
        request_id = self._last_asked[int(node), int(peer)]
        self._flights = [
            one for one in self._flights if (one.source, one.request_id, one.is_reply) != (int(node), request_id, False)
        ]
        return request_id

    # Commands: the application

    def _on_append(self, node: str, *values: str) -> None:
        core = self._members[int(node)].core
        for value in values:
            offset = core.next_append_offset
            if self._members[int(node)].submit(0, value.encode(), self._clocks[int(node)]):
                known = f"leader={_id(core.leader.leader_id)} epoch={core.epoch}"
                self._lines.append(f"{node} refuses the append NOT_LEADER_OR_FOLLOWER {known}")
            else:
                self._lines.append(f"{node} takes {offset}-{offset + 1}@{core.epoch}")
        if self._members[int(node)].deadline_ms() <= self._clocks[int(node)]:
            self._tick(int(node), self._clocks[int(node)])

    def _on_read(self, node: str, read_id: str) -> None:
        member = self._members[int(node)]
        self._stepped(int(node), member.read_index(int(read_id), self._clocks[int(node)]))

    def _on_resign(self, node: str) -> None:
        self._stepped(int(node), self._members[int(node)].resign(self._clocks[int(node)]))

    def _on_shutdown(self, node: str) -> None:
        self._stepped(int(node), self._members[int(node)].shut_down(self._clocks[int(node)]))

    def _on_show(self, node: str) -> None:
        member = self._members[int(node)]
        view = member.view()
        log = ",".join(f"{batch.next_offset}@{batch.epoch}" for batch in member.log.batches)
        self._lines.append(
            f"{node} is {view.state} epoch={view.epoch} leader={_id(view.leader.leader_id)}"
            f" hw={_offset(view.high_watermark)} end={view.log_end_offset} flushed={view.flushed_offset}"
            f" log={log or '-'}"
        )

    # Effects

    def _stepped(self, node_id: int, outputs: list[Output]) -> None:
        member = self._members[node_id]
        for effect in member.effects:
            self._lines.append(self._render(node_id, effect))
        for output in outputs:
            match output:
                case SimulatedRequest():
                    self._last_asked[node_id, output.peer_id] = output.request_id
                    if isinstance(output.message, ProbeVersions):
                        continue  # no core answers that: its node does, by `> answer`
                    self._flights.append(InFlight(node_id, output.peer_id, output.request_id, output.message, False))
                case Answer():
                    caller = self._callers.pop(output.request_id, None)
                    if caller is not None:
                        self._flights.append(InFlight(node_id, caller[0], caller[1], output.message, True))
                case Flush(ticket=ticket):
                    self._flushes[node_id].append(ticket)
        if self._flush_at_once and self._flushes[node_id]:
            self._on_flush(str(node_id))

    def _render(self, node_id: int, effect: Effect) -> str:
        match effect:
            case PersistElection(state=state):
                voted = "-" if state.voted is None else state.voted.id
                return f"{node_id} saves epoch={state.epoch} leader={_id(state.leader_id)} voted={voted}"
            case AppendBatch(base_offset, epoch, _, values):
                text = " ".join(value.decode() for value in values)
                return f"{node_id} appends {base_offset}-{base_offset + len(values)}@{epoch} {text}"
            case AppendControl(base_offset, epoch, _, records):
                what = "; ".join(map(control_text, records))
                return f"{node_id} appends {base_offset}-{base_offset + len(records)}@{epoch} {what}"
            case AppendFetched(base_offset, next_offset, epoch, _):
                return f"{node_id} copies {base_offset}-{next_offset}@{epoch}"
            case TruncateLog(offset):
                return f"{node_id} truncates to {offset}"
            case FlushLog(offset, epoch):
                return f"{node_id} flushes to {offset}@{epoch}"
            case SendRequest(_, peer_id, _, message, _):
                return f"{node_id} -> {peer_id} {_describe(message)}"
            case SendReply(request_id, message):
                return f"{node_id} => {self._caller(request_id)} {_describe(message)}"
            case SendRecords(request_id, reply, offset, max_bytes):
                batches, _ = pack_batches(self._members[node_id].log.read(offset), max_bytes)
                sent = f" records={batches[0].base_offset}-{batches[-1].next_offset}"
                return f"{node_id} => {self._caller(request_id)} {_describe(reply)}{sent}"
            case StateChanged(source, target, epoch, cause):
                return f"{node_id}: {source} -> {target} epoch={epoch} cause={cause}"
            case LeaderChanged(leader):
                return f"{node_id} knows leader={_id(leader.leader_id)} epoch={leader.epoch}"
            case ReadConfirmed(read_ids, offset):
                return f"{node_id} confirms reads={','.join(map(str, read_ids))} below {offset}"
            case HighWatermarkMoved(offset):
                return f"{node_id} high watermark {offset}"
            case VotersChanged(voters=voters):
                return f"{node_id} counts voters {voters_text(voters)}"
            case PeerFault(peer_id, what):
                return f"{node_id} suspects {peer_id}: {what}"
        raise AssertionError(effect)

    def _caller(self, request_id: int) -> str:
        caller = self._callers.get(request_id)
        return "stranger" if caller is None else str(caller[0])


class _LoseAll(Random):
    """A crash that keeps nothing that was not fsynced."""

    def randint(self, a: int, b: int) -> int:
        return a


def _log(text: str) -> tuple[LogBatch, ...]:
    batches: list[LogBatch] = []
    for end, epoch in _positions(text):
        base = batches[-1].next_offset if batches else 0
        batches.append(LogBatch(base, end, epoch, f"d\n0\n{base}@{epoch}".encode()))
    return tuple(batches)


def _positions(text: str) -> Iterator[tuple[int, int]]:
    for part in filter(None, text.split(",")):
        end, _, epoch = part.partition("@")
        yield int(end), int(epoch)


def _position(text: str) -> OffsetAndEpoch:
    ((offset, epoch),) = _positions(text)
    return OffsetAndEpoch(epoch=epoch, offset=offset)


def _endpoints(node_id: int, count: int = 1) -> Endpoints:
    names = ("CONTROLLER", "CONTROLLER_TLS")[:count]
    return Endpoints(tuple(ListenerAddress(name, f"n{node_id}", 9000 + at) for at, name in enumerate(names)))


def _message(
    what: str, node_id: int, settings: tuple[str, ...]
) -> Vote | BeginQuorumEpoch | EndQuorumEpoch | Fetch | VoterMessage:
    given = fields(settings)
    about_voter = voter_message(what, given)
    if about_voter is not None:
        return about_voter
    epoch, source = int(given["epoch"]), int(given["from"])
    voter = ReplicaKey(int(given.get("voter", node_id)))
    known = _endpoints(source, int(given["endpoints"] or 1)) if "endpoints" in given else Endpoints()
    match what:
        case "Vote":
            return Vote(
                epoch=epoch,
                candidate=ReplicaKey(source),
                voter=voter,
                last=_position(given["last"]),
                pre_vote="pre" in given,
            )
        case "BeginQuorumEpoch":
            return BeginQuorumEpoch(epoch=epoch, leader_id=source, voter=voter, endpoints=known)
        case "EndQuorumEpoch":
            successors = tuple(ReplicaKey(int(one)) for one in filter(None, given.get("successors", "").split(",")))
            return EndQuorumEpoch(epoch=epoch, leader_id=source, successors=successors, endpoints=known)
        case "Fetch":
            last = _position(given["at"])
            return Fetch(
                epoch=epoch,
                replica=ReplicaKey(source),
                offset=last.offset,
                last_epoch=last.epoch,
                max_wait_ms=int(given.get("wait", 500)),
                high_watermark=int(given.get("hw", HIGH_WATERMARK_ABSENT)),
            )
    raise AssertionError(what)


def _reply(
    what: str, settings: tuple[str, ...]
) -> VoteReply | BeginQuorumEpochReply | EndQuorumEpochReply | FetchReply | VoterMessageReply:
    given = fields(settings)
    about_voter = voter_reply(what, given)
    if about_voter is not None:
        return about_voter
    epoch, leader_id = int(given["epoch"]), int(given.get("leader", -1))
    endpoints = _endpoints(leader_id) if "endpoints" in given else Endpoints()
    error, top_error = Error[given.get("error", "NONE")], Error[given.get("top_error", "NONE")]
    match what:
        case "VoteReply":
            return VoteReply(
                epoch=epoch,
                leader_id=leader_id,
                endpoints=endpoints,
                error=error,
                top_error=top_error,
                granted="granted" in given,
            )
        case "BeginQuorumEpochReply":
            return BeginQuorumEpochReply(epoch=epoch, leader_id=leader_id, endpoints=endpoints, error=error)
        case "EndQuorumEpochReply":
            return EndQuorumEpochReply(epoch=epoch, leader_id=leader_id, endpoints=endpoints, error=error)
        case "FetchReply":
            records = list(_log(given.get("log", "")))
            batches, data = pack_batches(
                [one for one in records if one.base_offset >= int(given.get("after", 0))], 2**31
            )
            return FetchReply(
                epoch=epoch,
                leader_id=leader_id,
                endpoints=endpoints,
                error=error,
                top_error=top_error,
                high_watermark=int(given.get("hw", -1)),
                diverging=_position(given["diverging"]) if "diverging" in given else None,
                batches=batches,
                data=data,
            )
    raise AssertionError(what)


def _id(node_id: int) -> str:
    return "-" if node_id < 0 else str(node_id)


def _offset(offset: int) -> str:
    return "-" if offset < 0 else str(offset)


def _describe(message: object) -> str:
    words = [type(message).__name__, *message_text(message)]
    match message:
        case Vote():
            words += [f"epoch={message.epoch}", *(["pre"] if message.pre_vote else []), f"last={message.last}"]
        case BeginQuorumEpoch():
            words += [f"epoch={message.epoch}", f"leader={message.leader_id}"]
        case EndQuorumEpoch():
            ranked = ",".join(str(key.id) for key in message.successors) or "-"
            words += [f"epoch={message.epoch}", f"leader={message.leader_id}", f"successors={ranked}"]
        case Fetch():
            at = f"{message.offset}@{message.last_epoch}"
            words += [f"epoch={message.epoch}", f"at={at}", f"hw={_offset(message.high_watermark)}"]
        case VoteReply():
            words += [*_header(message), "granted" if message.granted else "refused"]
        case BeginQuorumEpochReply() | EndQuorumEpochReply():
            words += _header(message)
        case FetchReply():
            words += [*_header(message), f"hw={_offset(message.high_watermark)}"]
            if message.diverging is not None:
                words.append(f"diverging={message.diverging}")
    return " ".join(words)


def _header(reply: VoteReply | BeginQuorumEpochReply | EndQuorumEpochReply | FetchReply) -> list[str]:
    words = [f"epoch={reply.epoch}", f"leader={_id(reply.leader_id)}"]
    words += [one.name for one in (reply.top_error, reply.error) if one != Error.NONE]
    return words
