"""What the simulator sees of one node: events go in, outputs come out, and a crash in between (Kafka: the `RaftNode` of
`RaftEventSimulationTest`).

Messages are opaque to the simulator: `CoreMember` speaks the flat forms of the core, `ReplicaMember` wire messages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from random import Random
from typing import Any, Final, Protocol

from msgspec import Struct

from kraft.invariants.observation import Applied, ObservedMember, View, view_of
from kraft.quorum.core import RaftCore
from kraft.quorum.events import BeginShutdown, FailureCause, Resign, Tick
from kraft.quorum.values import ElectionState, Endpoints, ReplicaKey
from kraft.sim.world.disk_damage import Damage
from metadata_log.serde import Message


class SimulatedRequest(Struct, frozen=True):
    """Send a request to a peer; `fetch_offset` is what it acknowledges, if it is a Fetch."""

    request_id: int
    peer_id: int
    message: object
    timeout_ms: int
    fetch_offset: int | None = None
    kind: str = ""
    """The kind of the request, for the reader of a trace."""
    is_indirect: bool = False
    """Whether it goes to the address of a bootstrap server, and not to that which the peer itself has told."""


class Answer(Struct, frozen=True):
    """Answer the request that came in under this id; `granted` is the epoch and the candidate of a vote it gives."""

    request_id: int
    message: object
    granted: tuple[int, int] | None = None
    pre_granted: int | None = None
    """The epoch of a pre-vote that it gives."""


class Flush(Struct, frozen=True):
    """An fsync that has begun; `Member.on_flushed` ends it."""

    ticket: int


class Outcome(Enum):
    """The outcome of a submission, which is unknown if the leader lost its leadership before the commit."""

    COMMITTED = "committed"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Done(Struct, frozen=True):
    """A submission is over; `base_offset` says where it is committed, if that is told."""

    submit_id: int
    outcome: Outcome
    base_offset: int | None = None
    answer: tuple[Any] | None = None
    """What a state machine has answered, if it has."""
    record: bytes | None = None
    """What must be committed now, if not what was submitted."""


class Changed(Struct, frozen=True):
    """The node went from one state to another, for the trace."""

    what: str


class PeerFaultReported(Struct, frozen=True):
    """The node reports that a peer is not what it seems."""

    peer_id: int
    what: str


class Administered(Struct, frozen=True):
    """The answer to `Member.administer` with this id."""

    request_id: int
    response: object


Output = SimulatedRequest | Answer | Flush | Done | Applied | Changed | Administered | PeerFaultReported


STRANGERS: Final = 1 << 50
"""Requests of senders that are no simulated nodes have ids from here on."""


NOWHERE: Final = -1
"""What stands for a node where an address leads to none."""


class Crashed(Exception):
    """The node dies in the middle of a step; `Member.crash` is to follow."""


class Member(ObservedMember, Protocol):
    """One node, over whatever keeps its data."""

    @property
    def endpoints(self) -> Endpoints:
        """Where it listens."""

    def start(self, rng: Random, now_ms: int) -> list[Output]:
        """Begin a life with what is on disk."""

    def crash(self, rng: Random) -> None:
        """End the life; of what was not fsynced, any part may be lost."""

    def crash_soon(self, operations: int) -> None:
        """Die in the middle of what comes next: that step raises `Crashed` when it has done some of its work."""

    def fail_soon(self, operations: int) -> None:
        """Let the so-many-th operation that changes something on the disk raise `OSError`, in this life."""

    def limit_disk(self, free_bytes: int | None) -> None:
        """Let the disk take so many bytes more and then raise `OSError`; None for any number."""

    def damage(self, what: Damage, rng: Random) -> str:
        """Let the disk lose something; says what, or nothing if that is not possible here."""

    def must_refuse(self) -> str:
        """The damage on the disk that no start may overlook, as it proves that acknowledged records are lost; empty if
        there is none.
        """

    def move(self, port: int) -> None:
        """While it is down: listen at another port from the next start on."""

    def tick(self, now_ms: int) -> list[Output]:
        """Time has passed."""

    def on_request(self, request_id: int, message: object, now_ms: int) -> list[Output]:
        """A peer asks."""

    def on_reply(self, request_id: int, message: object, now_ms: int) -> list[Output]:
        """A peer answers."""

    def on_frame(self, request_id: int, api_key: int, version: int, body: bytes, now_ms: int) -> list[Output]:
        """A sender that is no simulated node asks, by a frame as it stands on the wire."""

    def on_forged_reply(self, request_id: int, api_key: int, version: int, body: bytes, now_ms: int) -> list[Output]:
        """A forged answer to a request of this node arrives, as it stands on the wire."""

    def on_failed(self, request_id: int, cause: FailureCause, now_ms: int) -> list[Output]:
        """A request will not be answered."""

    def on_flushed(self, ticket: int, now_ms: int) -> list[Output]:
        """An fsync is done."""

    def submit(self, submit_id: int, value: bytes, now_ms: int) -> list[Output]:
        """Hand over a record for the log; one `Done` follows while the node lives."""

    def administer(self, request_id: int, message: Message, now_ms: int) -> list[Output]:
        """Let a client ask a controller for something; one `Administered` follows while the node lives."""

    def resign(self, now_ms: int) -> list[Output]:
        """Ask a leader to give up."""

    def shut_down(self, now_ms: int) -> list[Output]:
        """The node is about to stop."""

    def epoch_of_leader(self, message: object) -> int | None:
        """The epoch in an answer of a leader to a fetch; None if the answer is an error."""

    def is_judging(self, request_id: int) -> bool:
        """Whether the answer to a request has come, and not all of its records are judged."""

    def measure(self, *, is_on: bool) -> None:
        """Count the records that each step decides on or applies, or stop counting."""

    def take_work(self) -> int:
        """How many records were decided on or applied since this was last asked."""

    def wire_request(self, message: object) -> tuple[int, int, Message] | None:
        """The API key, the version and the wire form of a request that this node has sent; None if it has none."""

    def deadline_ms(self) -> int:
        """When `tick` is wanted."""


class SteppedMember(ABC):
    """What all members have in common that are over a core: some events, and the state that decides elections."""

    _election: ElectionState | None = None

    @property
    @abstractmethod
    def core(self) -> RaftCore:
        """The core of this life."""

    @abstractmethod
    def step(self, event: Tick | Resign | BeginShutdown, now_ms: int) -> list[Output]:
        """Hand over an event."""

    def tick(self, now_ms: int) -> list[Output]:
        """Time has passed."""
        return self.step(_TICK, now_ms)

    def resign(self, now_ms: int) -> list[Output]:
        """Ask a leader to give up."""
        return self.step(Resign(self.core.epoch), now_ms)

    def shut_down(self, now_ms: int) -> list[Output]:
        """The node is about to stop."""
        return self.step(BeginShutdown(), now_ms)

    def view(self) -> View:
        """The state of the running node."""
        return view_of(self.core)

    def election(self) -> ElectionState | None:
        """What stands in quorum-state on disk."""
        return self._election

    def voters(self) -> tuple[ReplicaKey, ...]:
        """The voter set as the core knows it."""
        return self.core.voters.keys


_TICK: Final = Tick()
