"""The interface of one simulated node: events go in, outputs come out, and the node may crash in between (Kafka: the
`RaftNode` of `RaftEventSimulationTest`).

Messages are opaque to the simulator: `CoreMember` speaks the flat forms of the core, `ReplicaMember` wire messages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
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
    """Send a request to a peer. A Fetch acknowledges everything below `fetch_offset`."""

    request_id: int
    peer_id: int
    message: object
    timeout_ms: int
    fetch_offset: int | None = None
    kind: str = ""
    """The kind of the request, for the reader of a trace."""
    is_indirect: bool = False
    """Whether the request goes to a bootstrap address, and not to the address that the peer advertises."""
    is_of_quorum: bool = True
    """Whether a core sends the request, and not another part of its process."""


class Answer(Struct, frozen=True):
    """Answer the request with this id; `granted` is the epoch and the candidate of a granted vote."""

    request_id: int
    message: object
    granted: tuple[int, int] | None = None
    pre_granted: int | None = None
    """The epoch of a granted pre-vote."""


class Flush(Struct, frozen=True):
    """An fsync that has begun; `Member.on_flushed` ends it."""

    ticket: int


class WriteOutcome(Enum):
    """The outcome of a submission, which is unknown if the leader lost its leadership before the commit."""

    COMMITTED = "committed"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Done(Struct, frozen=True):
    """A submission has ended; `base_offset` is the offset of its commit, if known."""

    submit_id: int
    outcome: WriteOutcome
    base_offset: int | None = None
    answer: tuple[Any] | None = None
    """The answer of a state machine, if there is one."""
    record: bytes | None = None
    """The record that must be committed now, as `Member.is_record_of` compares it; None for the submitted value."""


class Changed(Struct, frozen=True):
    """The node went from one state to another, for the trace."""

    what: str


class PeerFaultReported(Struct, frozen=True):
    """The node reports a fault of a peer."""

    peer_id: int
    what: str


class ReadAnswered(Struct, frozen=True):
    """A read has ended: its result contains everything that is committed below `offset`."""

    read_id: int
    offset: int


class Administered(Struct, frozen=True):
    """The answer to `Member.administer` with this id."""

    request_id: int
    response: object


Output = SimulatedRequest | Answer | Flush | Done | Applied | Changed | ReadAnswered | Administered | PeerFaultReported


class Corrupted(Struct, frozen=True):
    """A response that was corrupted in transit. No decoder accepts the frame if there is no `message`."""

    message: object | None
    what: str
    """A description for the reader of a trace."""


CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAkrA"
"""The cluster id of every simulated node."""
STRANGERS: Final = 1 << 50
"""Requests of senders that are not simulated nodes have ids from this one on."""
NOWHERE: Final = -1
"""The target id of an address without a node."""


class Crashed(Exception):
    """The node dies in the middle of a step; the caller must call `Member.crash` next."""


class Member(ObservedMember, Protocol):
    """One node and its disk."""

    make_core: Callable[..., RaftCore]
    """Makes the core at each start."""

    @property
    def endpoints(self) -> Endpoints:
        """The endpoints of the node."""

    def start(self, rng: Random, now_ms: int) -> list[Output]:
        """Start the node with the content of its disk."""

    def crash(self, rng: Random) -> None:
        """Crash the node; the crash may lose any part of the data that is not fsynced."""

    def crash_soon(self, operations: int) -> None:
        """Crash within the next step: that step raises `Crashed` after a part of its work."""

    def fail_soon(self, operations: int) -> None:
        """Let a later writing operation on the disk, counted from now, raise `OSError` in this life."""

    def limit_disk(self, free_bytes: int | None) -> None:
        """Let the disk accept this number of further bytes and then raise `OSError`; None removes the limit."""

    def fill_directory(self, path: str) -> None:
        """Let every append to a file below this path raise `OSError`; an empty path ends that."""

    def damage(self, what: Damage, rng: Random) -> str:
        """Damage the disk; returns a description of the loss, or an empty text if such damage is not possible."""

    def must_refuse(self) -> str:
        """The damage on the disk that no start may overlook, as it proves that acknowledged records are lost; empty if
        there is none.
        """

    def would_vote_alone(self) -> bool:
        """Whether a start with the present disk makes this node the only voter, with a majority of its own."""

    def damaged_files(self) -> tuple[str, ...]:
        """The paths of the files on the disk with damage that is still there."""

    def move(self, port: int) -> None:
        """Listen at another port from the next start on; the node is stopped."""

    def tick(self, now_ms: int) -> list[Output]:
        """Time has passed."""

    def on_request(self, request_id: int, message: object, now_ms: int) -> list[Output]:
        """Receive a request of a peer."""

    def on_reply(self, request_id: int, message: object, now_ms: int) -> list[Output]:
        """A peer answers."""

    def on_frame(self, request_id: int, api_key: int, version: int, body: bytes, now_ms: int) -> list[Output]:
        """Receive a request from outside of the quorum, in wire format."""

    def on_forged_reply(self, request_id: int, api_key: int, version: int, body: bytes, now_ms: int) -> list[Output]:
        """Receive a forged response to a request of this node, in wire format."""

    def corrupted(self, message: object, rng: Random) -> Corrupted | None:
        """A response to this node as it arrives after a corruption in transit; None if it cannot be corrupted."""

    def on_failed(self, request_id: int, cause: FailureCause, now_ms: int) -> list[Output]:
        """A request will not be answered."""

    def on_flushed(self, ticket: int, now_ms: int) -> list[Output]:
        """An fsync is done."""

    def submit(self, submit_id: int, value: bytes, now_ms: int) -> list[Output]:
        """Submit a record; one `Done` follows unless the node crashes."""

    def is_record_of(self, record: bytes, submission: bytes) -> bool:
        """Whether a committed record is that of a submission: of a value, or of `Done.record`."""

    def stored_election(self) -> ElectionState | None:
        """The content of quorum-state on disk, also while the node is down."""

    def read_index(self, read_id: int, now_ms: int) -> list[Output]:
        """Read; one `ReadAnswered` follows if a majority confirms that the node leads."""

    def administer(self, request_id: int, message: Message, version: int, now_ms: int) -> list[Output]:
        """Receive a client's request to the controller; one `Administered` follows unless the node crashes."""

    def hang_up(self, peer: str, now_ms: int) -> list[Output]:
        """The connection of a client ends: what it has asked and has no answer yet never has one."""

    def resign(self, now_ms: int) -> list[Output]:
        """Ask a leader to resign."""

    def shut_down(self, now_ms: int) -> list[Output]:
        """Begin a graceful shutdown."""

    def epoch_of_leader(self, message: object) -> int | None:
        """The epoch in an answer of a leader to a fetch; None if the answer is an error."""

    def is_judging(self, request_id: int) -> bool:
        """Whether the node has received the answer to a request and has not judged all of its records yet."""

    def measure(self, *, is_on: bool) -> None:
        """Count the records that each step decides on or applies, or stop counting."""

    def take_work(self) -> int:
        """The number of records decided on or applied since the last call."""

    def wire_request(self, message: object) -> tuple[int, int, Message] | None:
        """The API key, the version and the wire form of a request that this node has sent; None if it has none."""

    def deadline_ms(self) -> int:
        """The time of the next `tick`, by the clock of the node."""


class SteppedMember(ABC):
    """The common part of all members with a core: some events, and the election state."""

    make_core: Callable[..., RaftCore] = RaftCore
    """Makes the core at each start."""
    _election: ElectionState | None = None

    @property
    @abstractmethod
    def core(self) -> RaftCore:
        """The core since the last start."""

    @abstractmethod
    def step(self, event: Tick | Resign | BeginShutdown, now_ms: int) -> list[Output]:
        """Hand over an event."""

    def tick(self, now_ms: int) -> list[Output]:
        """Time has passed."""
        return self.step(_TICK, now_ms)

    def hang_up(self, peer: str, now_ms: int) -> list[Output]:
        """Nothing to do: no client of this node has a connection that it knows."""
        return []

    def resign(self, now_ms: int) -> list[Output]:
        """Ask a leader to resign."""
        return self.step(Resign(self.core.epoch), now_ms)

    def shut_down(self, now_ms: int) -> list[Output]:
        """Begin a graceful shutdown."""
        return self.step(BeginShutdown(), now_ms)

    def view(self) -> View:
        """The state of the running node."""
        return view_of(self.core)

    def is_record_of(self, record: bytes, submission: bytes) -> bool:
        """Whether a committed record is that of a submission: in a raw log, the submitted value is the record."""
        return record == submission

    def election(self) -> ElectionState | None:
        """The content of quorum-state on disk, as the checks compare it; None while a replica is down."""
        return self._election

    def stored_election(self) -> ElectionState | None:
        """The content of quorum-state on disk, also while the node is down."""
        return self._election

    def voters(self) -> tuple[ReplicaKey, ...]:
        """The voter set as the core knows it."""
        return self.core.voters.keys


_TICK: Final = Tick()
