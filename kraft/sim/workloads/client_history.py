"""Records the requests and responses of clients of a simulated state machine, and checks them for linearizability.

What the committed log says of sessions is known by rules of its own, so that a node with other sessions is found out
(RIFL; Raft dissertation §6.3): a session lives until it has not been used for longer than its lifetime, by the clock of
the log, and keeps the result of each command that its client has not acknowledged.

The check of the history runs at the end. During the run, nodes that have applied the same log must have equal states.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from random import Random
from typing import Any, Final

from msgspec import DecodeError, Struct, msgpack

from kraft.invariants.violation import InvariantViolated
from kraft.sim.nodes.client_sessions import ClientSessions
from kraft.sim.nodes.log_batches import timestamp_of
from kraft.sim.nodes.state_machine_member import Line, StateMachineMember
from kraft.sim.nodes.workload_spec import WorkloadSpec
from kraft.sim.workloads.linearizability import Operation, Verdict, check
from kraft.sim.world.member_interface import Done, Member, Output
from kraft.sim.world.simulated_quorum import SimulatedQuorum
from kraft.state_machine import Codec
from kraft.state_machine.log import Command, OpenSession, SessionState, decode_entry, encode
from metadata_log.serde import Message


class _Session(Struct):
    """One session. `numbers` are the applied commands with results that the session keeps."""

    client: str
    lifetime_ms: int
    used_ms: int
    acknowledged: int = 0
    numbers: set[int] = set()


class SessionModel:
    """The sessions after the committed commands below `end_offset`."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.places = 0
        """The number of committed batches that the model has taken."""
        self.expired_count = 0
        """The number of sessions that have expired so far."""
        self.applied: list[bytes] = []
        """The commands that the machine applies, in the order of the log: no repeated ones."""
        self._now_ms = 0
        self._sessions: dict[int, _Session] = {}

    def take(self, base_offset: int, next_offset: int, timestamp_ms: int, values: Iterable[bytes]) -> None:
        """The next committed batch: commands and openings of sessions. `next_offset` is after the last one; the clock
        of the log never goes back.
        """
        self._now_ms = max(self._now_ms, timestamp_ms)
        for offset, value in enumerate(values, base_offset):
            self._expire()
            entry = decode_entry(value)
            if isinstance(entry, OpenSession):
                self._open(entry, offset)
            else:
                self._command(entry)
        self.end_offset = next_offset

    def _expire(self) -> None:
        dead = [at for at, one in self._sessions.items() if self._now_ms > one.used_ms + one.lifetime_ms]
        for at in dead:
            del self._sessions[at]
        self.expired_count += len(dead)

    def _open(self, entry: OpenSession, offset: int) -> None:
        session = next((one for one in self._sessions.values() if one.client == entry.client), None)
        if session is None:
            session = self._sessions[offset] = _Session(entry.client, entry.ttl_ms, self._now_ms)
        session.lifetime_ms, session.used_ms = entry.ttl_ms, self._now_ms

    def _command(self, entry: Command) -> None:
        session = self._sessions.get(entry.session)
        if session is None:
            return
        session.used_ms = self._now_ms
        session.acknowledged = max(session.acknowledged, entry.acknowledged)
        session.numbers = {number for number in session.numbers if number >= session.acknowledged}
        if entry.sequence >= session.acknowledged and entry.sequence not in session.numbers:
            session.numbers.add(entry.sequence)
            self.applied.append(entry.command)

    def problem_of(self, states: Iterable[SessionState]) -> str | None:
        """Check the sessions of a node that has applied the same commands.

        A node may keep a session that has expired until the next one is opened.
        """
        self._expire()
        sessions = {one.id: one for one in states}
        for at, session in self._sessions.items():
            has = sessions.get(at)
            if has is None or self._now_ms > has.touched_ms + has.ttl_ms:
                silent_ms = self._now_ms - session.used_ms
                return f"session {at} of {session.client} has ended, which was used {silent_ms} ms ago"
            if session.numbers != has.kept.keys():
                missing, other = session.numbers - has.kept.keys(), has.kept.keys() - session.numbers
                return (
                    f"session {at} of {session.client} lacks the results {sorted(missing)} and keeps {sorted(other)},"
                    f" and the client has acknowledged those below {session.acknowledged}"
                )
        revived = [
            at
            for at, one in sessions.items()
            if at not in self._sessions and self._now_ms <= one.touched_ms + one.ttl_ms
        ]
        return f"sessions {revived} go on, and should have ended" if revived else None


CLIENTS: Final = 3
"""The number of clients with sequence numbers."""
NUMBERED: Final = 0.65
"""The share of the commands from these clients."""
GOES_ON: Final = 0.4
"""The probability that such a client sends a new request, without a wait for the responses to the former ones."""
OUTSTANDING: Final = 4
"""The number of requests that such a client repeats, the last ones, perhaps from a session that has expired."""
MEANS_MS: Final = (20, 100, 300)
"""The mean times between two requests, in ms, of which a run draws one."""
LEADER_READS: Final = (0.0, 0.3, 0.6)
"""The share of reads from the nodes that regard themselves as leaders; one of these is drawn for each run."""
BURSTS: Final = (0.0, 0.05, 0.2)
"""The probability that several requests go to one node at once; one of these is drawn for each run."""
BURST: Final = 5
"""The largest number of further requests at once."""
READ_DRAWS: Final = 50
"""The number of draws for a read; a machine may have none."""


class HistoryUndecided(AssertionError):
    """The budget was not enough to decide whether the responses to clients are linearizable."""


class Asked(Struct):
    """One operation: from its first request to its first response, including all repetitions."""

    line: Line
    invoked_ms: int
    committed_end: int
    """The offset after the last command committed before the operation."""
    epoch: int
    """The epoch that a majority of the voters had reached before the operation."""
    returned_ms: int | None = None
    answer: Any = None

    def hear(self, answer: Any, now_ms: int) -> None:
        """Record a response; a repeated request must receive the same response."""
        if self.returned_ms is None:
            self.returned_ms, self.answer = now_ms, answer
        elif self.answer != answer:
            raise InvariantViolated(f"'{self.line}' is answered with {self.answer!r} first and {answer!r} then")


class ClientHistory:
    """The `Watch` of a world with state machines."""

    def __init__(self, workload_spec: WorkloadSpec) -> None:
        self._workload_spec = workload_spec
        self._asked: dict[object, Asked] = {}
        self._of_submission: dict[int, object] = {}
        self.clients = ClientSessions()
        """The sessions of the clients with sequence numbers."""
        self.model = SessionModel()
        self._states: dict[int, tuple[bytes, bytes]] = {}
        """The sessions and the state of the machine, by applied offset."""
        self._applied: dict[int, int] = {}
        self.allows_undecided = False
        """Whether a history that the budget does not decide passes. Otherwise such a history fails the run."""
        self.undecided = 0
        """The number of histories that the budget did not decide: 0 or 1."""

    def submitting(self, submit_id: int, line: str, world: SimulatedQuorum) -> None:
        """A client is about to send a request. All requests with one sequence number must be equal."""
        parsed, ledger = Line.parse(line), world.invariants
        name = submit_id if parsed.client is None else line
        self._of_submission[submit_id] = name
        self._asked.setdefault(name, Asked(parsed, world.now_ms, ledger.commits.values_end, ledger.majority_epoch))

    def administering(self, request: Message) -> None:
        """A state machine is not administered."""
        raise AssertionError(f"no controller answers {request}")

    def started(self, member: Member, world: SimulatedQuorum) -> None:
        """A node has started."""
        self._compare(member, world)

    def stepped(self, member: Member, outputs: list[Output], world: SimulatedQuorum) -> None:
        """A node has completed a step: it may have applied batches or answered clients."""
        self._compare(member, world)
        for output in outputs:
            if isinstance(output, Done):
                asked = self._asked[self._of_submission[output.submit_id]]
                if output.answer is not None:
                    self._check_read(member, asked)
                    asked.hear(output.answer[0], world.now_ms)

    def _check_read(self, member: Member, asked: Asked) -> None:
        """A node answers a read only if the node may have been the leader when the read began. By then the node has
        applied everything that any node had committed at that time, even if the response does not depend on it.
        """
        assert isinstance(member, StateMachineMember), member
        if not asked.line.is_read:
            return
        view, applied_offset = member.view(), member.host.applied_offset
        if view.state == "Leader" and view.epoch < asked.epoch:
            raise InvariantViolated(
                f"node {member.node_id} leads epoch {view.epoch} and answers '{asked.line}', though a majority had come"
                f" to epoch {asked.epoch} before it was asked"
            )
        if applied_offset < asked.committed_end:
            raise InvariantViolated(
                f"node {member.node_id} answers '{asked.line}' as of offset {applied_offset}, though everything below"
                f" {asked.committed_end} was committed before it was asked"
            )

    def _compare(self, member: Member, world: SimulatedQuorum) -> None:
        """Nodes at the same applied offset have equal states, including sessions (StateMachineConsistency), and the
        sessions are those of the log.
        """
        assert isinstance(member, StateMachineMember), member
        host = member.host
        if self._applied.get(member.node_id) == host.applied_offset:
            return
        self._applied[member.node_id] = host.applied_offset
        self._check_sessions(member, world)
        sessions, machine = encode((host.sessions.now_ms, host.sessions.states())), host.machine.snapshot()
        known = self._states.setdefault(host.applied_offset, (sessions, machine))
        for what, one, other in (("machine", machine, known[1]), ("sessions", sessions, known[0])):
            if one != other:
                raise InvariantViolated(
                    f"at offset {host.applied_offset} the {what} of node {member.node_id} is {_shown(one)},"
                    f" and that of another node was {_shown(other)}"
                )

    def _check_sessions(self, member: StateMachineMember, world: SimulatedQuorum) -> None:
        host, model, commits = member.host, self.model, world.invariants.commits
        while model.places < len(commits.batches):
            batch = commits.batches[model.places]
            if batch.next_offset > host.applied_offset:
                break
            if commits.values[model.places]:
                model.take(batch.base_offset, batch.next_offset, timestamp_of(batch), commits.values[model.places])
            model.places += 1
        if model.end_offset <= host.applied_offset:
            problem = model.problem_of(host.sessions.states())
            if problem is not None:
                raise InvariantViolated(f"node {member.node_id} at offset {host.applied_offset}: {problem}")

    def unsettled(self, world: SimulatedQuorum) -> str:
        """There is no requirement beyond those for every quorum."""
        return ""

    def concluded(self, world: SimulatedQuorum) -> None:
        """The run is over: there must be an order of all operations that explains all answers (Linearizability)."""
        spec = self._workload_spec
        finding = check(self.operations(), spec.initial, spec.step, witness=self.applied_lines())
        if finding.verdict is Verdict.VIOLATED:
            raise InvariantViolated(f"what clients heard is not linearizable: {finding.why}")
        if finding.verdict is Verdict.UNDECIDED:
            self.undecided = 1
            if not self.allows_undecided:
                raise HistoryUndecided(
                    f"{finding.steps:,} steps did not decide whether {len(self._asked)} operations of clients are"
                    " linearizable"
                )

    def applied_lines(self) -> list[tuple[Hashable, str]]:
        """The applied commands as the lines of the clients, with their keys, in the order of the log."""
        spec = self._workload_spec
        encode_command = Codec(spec.make()).encode
        asked = {one.line.ask for one in self._asked.values() if not one.line.is_read}
        lines = {encode_command(spec.command(line)): line for line in asked}
        applied = [lines[command] for command in self.model.applied if command in lines]
        return [(spec.key(line), line) for line in applied]

    def operations(self) -> list[Operation]:
        """The history so far."""
        return [
            Operation(
                client=asked.line.client or name,
                invoked=asked.invoked_ms,
                returned=asked.returned_ms,
                input=asked.line.ask,
                output=asked.answer,
                key=self._workload_spec.key(asked.line.ask),
            )
            for name, asked in self._asked.items()
        ]


def _shown(state: bytes) -> str:
    """A state for people, if it is MessagePack."""
    try:
        return repr(msgpack.decode(state))
    except DecodeError:
        return repr(state)


class ClientWorkload:
    """Draws the requests of clients and their target, any node. A client with sequence numbers has several requests
    outstanding, and repeats each of them. Once its session has expired, the client begins another one.
    """

    def __init__(self, rng: Random, workload_spec: WorkloadSpec) -> None:
        self._rng = rng
        self._workload_spec = workload_spec
        self._mean_ms = rng.choice(MEANS_MS)
        self.next_id = 1
        self._recent: dict[str, deque[Line]] = {}
        """The last requests of each client with sequence numbers."""
        self._leader_reads = rng.choice(LEADER_READS)
        self._bursts = rng.choice(BURSTS)
        self._burst = 0
        """The number of further requests of the present burst."""
        self._burst_node = 0
        self._leaders: list[int] = []
        self._clients = ClientSessions()

    def candidates(self, world: SimulatedQuorum) -> list[int]:
        """The possible targets of a client: all running nodes."""
        assert isinstance(world.watch, ClientHistory), world.watch
        self._clients, self._leaders = world.watch.clients, world.leaders()
        running = world.running_voters()
        if not running:
            self._burst = 0
        return running

    def pause_ms(self) -> int:
        """The time until the next request, in ms."""
        return 0 if self._burst else 1 + int(self._rng.expovariate(1 / self._mean_ms))

    def next_submission(self, candidates: list[int]) -> tuple[int, int, str]:
        """The id of a new submission, its target node, and its line."""
        rng = self._rng
        submit_id = self.next_id
        self.next_id += 1
        if self._burst:
            self._burst -= 1
            node_id = self._burst_node if self._burst_node in candidates else rng.choice(candidates)
            return submit_id, node_id, self._workload_spec.draw(rng)
        if self._leaders and rng.random() < self._leader_reads:
            return submit_id, rng.choice(self._leaders), self._read()
        line = Line(self._workload_spec.draw(rng))
        if not line.is_read and rng.random() < NUMBERED:
            line = self._numbered(line.ask, f"client-{rng.randint(1, CLIENTS)}")
        node_id = rng.choice(candidates)
        if rng.random() < self._bursts:
            self._burst, self._burst_node = rng.randint(1, BURST), node_id
        return submit_id, node_id, str(line)

    def _read(self) -> str:
        """A read, or any request of a machine without reads."""
        drawn = (self._workload_spec.draw(self._rng) for _ in range(READ_DRAWS))
        return next((line for line in drawn if Line(line).is_read), self._workload_spec.draw(self._rng))

    def _numbered(self, ask: str, client: str) -> Line:
        """A repeated request of a client, or a new one if the client continues."""
        recent = self._recent.setdefault(client, deque(maxlen=OUTSTANDING))
        last = recent[-1] if recent else None
        if last is not None and self._rng.random() >= GOES_ON:
            return self._rng.choice(recent)
        if last is None or self._clients.has_expired(last.client or ""):
            # Another session has another name, and its commands are numbered from one.
            last = Line("", f"{client}.{self.next_id}")
        recent.append(Line(ask, last.client, last.number + 1))
        return recent[-1]
