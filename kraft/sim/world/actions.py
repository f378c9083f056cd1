"""The actions on a simulated quorum, as data: a schedule is a list of actions (Kafka: the events of
`RaftEventSimulationTest`).

An action identifies a message by its sender and the number of that sender's requests, and never contains the message.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.quorum.events import FailureCause
from kraft.sim.world.disk_damage import Damage

WORLD = 0
"""The node id of actions that concern no single node."""


class Happening(Struct, frozen=True, tag_field="do", omit_defaults=True):
    """An action at a node, at a virtual time in ms since the beginning of the run."""

    at_ms: int
    node: int


class Start(Happening, frozen=True, tag="start"):
    """A node starts with a `Random` of this seed and a clock with this error."""

    seed: int
    clock_offset_ms: int = 0


class Crash(Happening, frozen=True, tag="crash"):
    """A node crashes; the seed draws the lost part of its data without fsync."""

    seed: int


class CrashSoon(Happening, frozen=True, tag="crash-soon"):
    """A node will crash before one of its later effects or disk operations, counted from now."""

    operations: int
    seed: int


class Wipe(Happening, frozen=True, tag="wipe"):
    """A stopped node gets an empty disk; the seed draws the id of its directory."""

    seed: int


class Move(Happening, frozen=True, tag="move"):
    """A stopped node listens at another port from its next start on."""

    port: int


class Deliver(Happening, frozen=True, tag="deliver"):
    """A request reaches its target, `node`; each further delivery is a duplicate."""

    sender: int
    number: int
    kind: str = ""
    """The kind of the request, for the reader of a schedule."""


class Return(Happening, frozen=True, tag="return"):
    """The response to the `copy`-th delivery of a request reaches its sender, `node`."""

    peer: int
    number: int
    copy: int = 0
    kind: str = ""


class RoundTrip(Happening, frozen=True, tag="round-trip"):
    """A request of `node` reaches its target, and an immediate answer reaches `node`."""

    peer: int
    number: int
    kind: str = ""


class Fail(Happening, frozen=True, tag="fail"):
    """A request of `node` fails."""

    peer: int
    number: int
    cause: FailureCause
    kind: str = ""


class Flushed(Happening, frozen=True, tag="flushed"):
    """The fsync of a node with this number completes."""

    number: int


class Tick(Happening, frozen=True, tag="tick"):
    """A node reads its clock, and its expired timers take effect."""


class Submit(Happening, frozen=True, tag="submit"):
    """A client submits a record to a node."""

    submit_id: int
    value: str


class Read(Happening, frozen=True, tag="read"):
    """A client reads from a node."""

    read_id: int


class Administer(Happening, frozen=True, tag="administer"):
    """A client sends a request to a controller; the body is in wire format."""

    request_id: int
    api_key: int
    version: int
    body: bytes


class HangUp(Happening, frozen=True, tag="hang-up"):
    """A client ends its connection to a broker: what is not answered there never is."""

    peer: str
    """The address of the client."""


class Intrude(Happening, frozen=True, tag="intrude"):
    """A frame from outside of the quorum reaches `node`; the body of the request is in wire format."""

    api_key: int
    version: int
    body: bytes
    what: str
    """A description of the frame for readers of a schedule."""
    claims: int | None = None
    """The replica id that the sender claims, where that counts as a sign of life."""


class Forge(Happening, frozen=True, tag="forge"):
    """`node` receives a forged answer to its request in place of the answer of `peer`."""

    peer: int
    number: int
    kind: str
    body: bytes
    """The body of the response in wire format, in the version of the request."""
    what: str
    """A description of the response for readers of a schedule."""


class Corrupt(Happening, frozen=True, tag="corrupt"):
    """The response to the `copy`-th delivery of a request of `node` is corrupted on its way. The seed draws what
    changes.
    """

    peer: int
    number: int
    seed: int
    copy: int = 0
    kind: str = ""


class Resign(Happening, frozen=True, tag="resign"):
    """A leader receives the order to resign."""


class SlowDown(Happening, frozen=True, tag="slow-down"):
    """From now on a node needs this time for every record that it decides on or applies, in µs."""

    record_us: int


class Act(Happening, frozen=True, tag="act"):
    """A busy node completes its step and emits the outputs."""


class ShutDown(Happening, frozen=True, tag="shut-down"):
    """A node begins a graceful shutdown; a `Crash` ends the node."""


class SetClock(Happening, frozen=True, tag="set-clock"):
    """From now on the clock of a node has this offset and this drift, in thousandths. The clock of a running node never
    goes back.
    """

    offset_ms: int
    drift: int = 0


class FailDisk(Happening, frozen=True, tag="fail-disk"):
    """A later writing operation on a node's disk fails, counted from now, and so do all operations after it, until the
    node's next start. The seed draws what the crash of the node loses.
    """

    operations: int
    seed: int


class FillDirectory(Happening, frozen=True, tag="fill-directory"):
    """A log directory of a node is on a disk of its own, which is full from now on; without a path, none is."""

    path: str = ""


class LimitDisk(Happening, frozen=True, tag="limit-disk"):
    """The disk of a node accepts this number of further bytes; without a number, there is no limit."""

    seed: int
    free_bytes: int | None = None


class DamageDisk(Happening, frozen=True, tag="damage-disk"):
    """The disk of a node is damaged permanently, if the quorum bears the loss; the seed draws the damage."""

    what: Damage
    seed: int


class Note(Happening, frozen=True, tag="note"):
    """A remark without effect that explains the next actions, such as a cut in the network."""

    text: str


CALM: Final = "calm"
"""The text of the note at the end of all faults."""


class Conclude(Happening, frozen=True, tag="conclude"):
    """The run is over: perform the final checks. With `settled_at`, also check that all nodes follow one leader and
    know everything below that offset as committed.
    """

    settled_at: int = 0


Action = (
    Start
    | Crash
    | CrashSoon
    | Wipe
    | Move
    | Deliver
    | Return
    | RoundTrip
    | Fail
    | Flushed
    | Tick
    | Submit
    | Read
    | Administer
    | HangUp
    | Intrude
    | Forge
    | Corrupt
    | Resign
    | SlowDown
    | Act
    | ShutDown
    | SetClock
    | FailDisk
    | FillDirectory
    | LimitDisk
    | DamageDisk
    | Note
    | Conclude
)
