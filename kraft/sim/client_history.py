"""What the clients of a simulated state machine asked and heard, and whether one machine could have told them that.

The history is judged when the run is over. Before that, whoever has applied the same log must have the same state.
"""

from __future__ import annotations

from random import Random
from typing import Final

from msgspec import Struct

from kraft.replica.machine_log import encode
from kraft.sim.invariants import InvariantViolated
from kraft.sim.linearizability import Operation, Verdict, check
from kraft.sim.machine_member import MachineMember
from kraft.sim.member import Done, Member, Output
from kraft.sim.world import World
from metadata_log.serde import Message

KEYS: Final = 3
CLIENTS: Final = 3


def count(state: int, kind: str) -> tuple[int, int]:
    """What the checker takes a key for."""
    return (state + 1, state + 1) if kind == "add" else (state, state)


class Asked(Struct):
    """One operation: from when it was first asked for, whatever became of that, to the first answer."""

    line: str
    invoked_ms: int
    returned_ms: int | None = None
    answer: int | None = None


class ClientHistory:
    """The `Watch` of a world with state machines."""

    def __init__(self) -> None:
        self._asked: dict[object, Asked] = {}
        self._of_submission: dict[int, object] = {}
        self._states: dict[int, bytes] = {}
        """By the offset that was applied, what that came to."""
        self._applied: dict[int, int] = {}

    def submitting(self, submit_id: int, line: str, world: World) -> None:
        """A client is about to ask. One with a number asks for the same thing, however often it does."""
        name = line if len(line.split()) == 4 else submit_id
        self._of_submission[submit_id] = name
        self._asked.setdefault(name, Asked(line, world.now_ms))

    def administering(self, request: Message) -> None:
        """A state machine is not administered."""
        raise AssertionError(f"nobody answers {request}")

    def started(self, member: Member, world: World) -> None:
        """A node has begun a life."""
        self._compare(member)

    def stepped(self, member: Member, outputs: list[Output], world: World) -> None:
        """A node has done something: it may have applied something, or have answers for clients."""
        self._compare(member)
        for output in outputs:
            if isinstance(output, Done):
                asked = self._asked[self._of_submission[output.submit_id]]
                if output.answer is not None:
                    if asked.returned_ms is None:
                        asked.returned_ms, asked.answer = world.now_ms, output.answer
                    elif asked.answer != output.answer:
                        raise InvariantViolated(
                            f"{asked.line!r} is answered with {asked.answer} first and {output.answer} then"
                        )

    def _compare(self, member: Member) -> None:
        """Whoever has come to the same offset has the same state, sessions included (StateMachineConsistency)."""
        assert isinstance(member, MachineMember), member
        host = member.host
        if self._applied.get(member.node_id) == host.applied_offset:
            return
        self._applied[member.node_id] = host.applied_offset
        state = encode((host.sessions.now_ms, host.sessions.states(), host.machine.snapshot()))
        known = self._states.setdefault(host.applied_offset, state)
        if state != known:
            raise InvariantViolated(
                f"node {member.node_id} comes to {state!r} at offset {host.applied_offset}, and another to {known!r}"
            )

    def unsettled(self, world: World) -> str:
        """Nothing is demanded beyond a quorum that works."""
        return ""

    def concluded(self, world: World) -> None:
        """The run is over: there must be an order of all operations that explains all answers (Linearizability)."""
        finding = check(self.operations(), 0, count)
        if finding.verdict is Verdict.VIOLATED:
            raise InvariantViolated(f"what clients heard is not linearizable: {finding.why}")

    def operations(self) -> list[Operation]:
        """The history so far."""
        found = []
        for name, asked in self._asked.items():
            kind, key, *numbered = asked.line.split()
            found.append(
                Operation(
                    client=numbered[0] if numbered else name,
                    invoked=asked.invoked_ms,
                    returned=asked.returned_ms,
                    input=kind,
                    output=asked.answer,
                    key=key,
                )
            )
        return found


class ClientWorkload:
    """Draws what clients ask, and whom: any node. Those with numbers ask again and again, before they go on."""

    def __init__(self, rng: Random, means_ms: tuple[int, ...] = (20, 100, 300)) -> None:
        self._rng = rng
        self._mean_ms = rng.choice(means_ms)
        self._next_id = 1
        self._numbers = dict.fromkeys(range(1, CLIENTS + 1), 1)

    def candidates(self, world: World) -> list[int]:
        """The nodes that a client may ask: any that is up."""
        return world.running_voters()

    def pause_ms(self) -> int:
        """How long until somebody asks for something."""
        return 1 + int(self._rng.expovariate(1 / self._mean_ms))

    def next_submission(self, candidates: list[int]) -> tuple[int, int, str]:
        """The id of a new submission, the node to hand it to, and the line."""
        rng = self._rng
        submit_id = self._next_id
        self._next_id += 1
        key = f"k{rng.randrange(KEYS)}"
        kind = rng.random()
        if kind < 0.45:
            line = f"read {key}"
        elif kind < 0.65:
            line = f"add {key}"
        else:
            client = rng.randint(1, CLIENTS)
            number = self._numbers[client]
            line = f"add k{(client + number) % KEYS} client-{client} {number}"
            if rng.random() < 0.4:
                self._numbers[client] += 1
        return submit_id, rng.choice(candidates), line
