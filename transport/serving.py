"""The connections of peers to one transport: how many there are, how much memory they take, and whose turn it is.

Kafka: `SocketServer`, `ConnectionQuotas`, and the memory pool of `queued.max.request.bytes`. Nothing here reads a
socket, so that every `Sockets` has the same rules.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from msgspec import Struct

from transport.limited_log import LimitedLog
from transport.protocol.connection import Gone, Request
from transport.protocol.limits import ADMIN, MAX_FRAME_BYTES, REQUESTS
from transport.shares import Shares

log = logging.getLogger("transport")

INT_MAX: Final = 0x7FFF_FFFF
MAX_CONNECTIONS: Final = 10_000
"""How many connections of peers there may be where nothing else is said."""
RESERVED_CONNECTIONS: Final = 64
"""How many of these only voters and this machine itself may have; a sixteenth where there are fewer in all."""
LARGEST_REQUEST_BYTES: Final = max(ADMIN.size, *[limit.size for limit in REQUESTS.values()])
BUDGET_BYTES: Final = 64 << 20
"""The bound of received bytes, and of unsent bytes, where nothing else is said."""
STALLED_SECONDS: Final = 30.0
"""A peer that leaves answers unread, or does not finish a request, for so long is closed."""
STEADY_BYTES: Final = 64 * 1024
"""What a peer has to move in that time, if there is so much."""
TURN_REQUESTS: Final = 512
"""How many requests are delivered as they come in before the user deals with them."""
QUEUED_REQUESTS: Final = 32
"""How many requests that have waited are delivered before the rest of the node, and what comes in, have their turn."""
TURN_BYTES: Final = 512 * 1024
"""After how many bytes of answers in a turn no further answer is begun: about a millisecond's work."""
QUANTUM: Final = 16
"""How many requests of one connection are delivered before the next connection has its turn."""
MEMBERS_AT_ONCE: Final = 4
"""How many connections deliver before the user deals with what they delivered."""
BULK_BYTES: Final = 512 * 1024
"""After how many expected bytes of large answers no further such request is delivered until those are made."""
VOTERS_BULK_BYTES: Final = 2 << 20
"""The same of voters, all of which fetch from their leader."""
COUNTED_BYTES: Final = 4096
"""A smaller change of what a connection holds is not counted."""
_ONE_READ_BYTES: Final = 64 * 1024
"""What a connection reads at once where memory is short."""
_LOOK_AGAIN_SECONDS: Final = 0.02
_WATCH_SECONDS: Final = 1.0


class ServingLimits(Struct, frozen=True, kw_only=True):
    """How much peers may take of a node. Numbers of connections, bytes, and seconds."""

    max_frame_bytes: int = MAX_FRAME_BYTES
    """Kafka's `socket.request.max.bytes`."""
    max_idle_s: float = 600.0
    """Kafka's `connections.max.idle.ms`."""
    max_connections: int = MAX_CONNECTIONS
    """Kafka's `max.connections`."""
    max_per_ip: int = INT_MAX
    """Kafka's `max.connections.per.ip`; where that is not set, one address has at most half of all connections."""
    received_bytes: int = 0
    """Kafka's `queued.max.request.bytes`; 0 for 64 MiB, or twice the largest request."""
    unsent_bytes: int = BUDGET_BYTES
    stalled_s: float = STALLED_SECONDS


class Member(Protocol):
    """What is asked of a connection."""

    address: str
    is_trusted: bool
    last_active: float
    is_queued: bool
    is_blocked: bool
    received_charged: int
    unsent_charged: int

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""

    def take_turn(self, most: int) -> int:
        """Deliver up to so many requests; returns how many."""

    def settle(self) -> None:
        """Look anew whether to read, and whether there is something to deliver."""

    def read_once(self) -> None:
        """Read what has come, although there is little memory."""

    def has_stalled(self, now: float, stalled_s: float) -> bool:
        """Whether the peer has not moved on for so long."""

    def close(self) -> None:
        """Close now."""


def address_of(peer: str) -> str:
    """The numeric address in a peer's `host:port`, the same for IPv4 whichever listener it came by."""
    host = peer.rpartition(":")[0].strip("[]") or peer
    return host.removeprefix("::ffff:") if "." in host else host


def is_loopback(address: str) -> bool:
    """Whether the peer is on this machine."""
    return address == "::1" or address.startswith("127.")


class Serving:
    """What the connections of peers share."""

    def __init__(
        self,
        limits: ServingLimits,
        *,
        later: Callable[[Callable[[], None], float], None],
        now: Callable[[], float],
    ) -> None:
        """`later` runs an action in the transport's own task after so many seconds; `now` is a clock in seconds."""
        self.limits = limits
        self.per_ip: dict[str, int] = {}
        """Kafka's `max.connections.per.ip.overrides`, by numeric address."""
        self.log = LimitedLog(log, now)
        self.deliver: Callable[[Request | Gone], None] | None = None
        self.settled: Callable[[], bool] = lambda: True
        """The user's, who deals with what was delivered."""
        self.written_bytes = 0
        """All answers so far."""
        self.requests_left = TURN_REQUESTS
        """How many requests may be delivered as they come in, until the user has settled."""
        self.is_tight = False
        """Whether half of a bound is used, so that `may_read` and `may_ask_in_bulk` have to be asked."""
        self.bulk_left = [BULK_BYTES, VOTERS_BULK_BYTES]
        """While this is above 0, one of these may be a request whose answer may be large, and takes from it as many
        bytes as are expected: of strangers, and of voters.
        """
        self._later = later
        self._now = now
        self._favoured: frozenset[str] = frozenset()
        self._members: dict[Member, None] = {}
        self._per_address: dict[str, int] = {}
        self._queues: dict[str, deque[Member]] = {}
        """The connections with something to deliver, by address; the first address is the next in turn."""
        self._blocked: dict[Member, None] = {}
        """The connections that wait for memory."""
        self._work: deque[Callable[[], bool]] = deque()
        """The long answers that are being written: each call does one step of one answer."""
        self._will_continue = False
        self._will_unblock = False
        self._is_watching = False
        frame = min(limits.max_frame_bytes, LARGEST_REQUEST_BYTES)
        received = limits.received_bytes or max(BUDGET_BYTES, 2 * frame)
        # Two bounds of each: what strangers hold never keeps the voters' own requests away.
        self._received = {trusted: Shares(received, frame) for trusted in (False, True)}
        self._unsent = {trusted: Shares(limits.unsent_bytes) for trusted in (False, True)}
        self._all = (*self._received.values(), *self._unsent.values())

    # Who may come

    def favour(self, addresses: frozenset[str]) -> None:
        """Peers at these addresses have room of their own: those that this node keeps connections to."""
        self._favoured = addresses
        for member in self._members:
            if member.is_trusted is not self.is_trusted(member.address):
                self.charge(member, 0, 0)
                member.is_trusted = not member.is_trusted
                self._later(member.settle, 0.0)

    def is_trusted(self, address: str) -> bool:
        """Whether this is the address of a voter."""
        return address in self._favoured

    def has_reserve(self, address: str) -> bool:
        """Whether connections and descriptors are kept back for this address: a voter's, or this machine's own."""
        return address in self._favoured or is_loopback(address)

    def refusal(self, address: str) -> str | None:
        """Why a new connection from this address is turned away, as a sentence; None if it is not."""
        limits = self.limits
        most = limits.max_connections
        if not self.has_reserve(address):
            most -= min(RESERVED_CONNECTIONS, most // 16)
        if len(self._members) >= most:
            return f"there are {len(self._members)} connections already"
        held = self._per_address.get(address, 0)
        if held >= self._most_of(address):
            return f"there are {held} connections from that address already"
        return None

    def _most_of(self, address: str) -> int:
        limits = self.limits
        if (override := self.per_ip.get(address)) is not None:
            return override
        if limits.max_per_ip < INT_MAX or self.has_reserve(address):
            return limits.max_per_ip
        return max(1, limits.max_connections // 2)

    def enter(self, member: Member) -> None:
        """A connection was accepted."""
        if not self._is_watching:
            self._is_watching = True
            self._later(self._watch, _WATCH_SECONDS)
        self._members[member] = None
        self._per_address[member.address] = self._per_address.get(member.address, 0) + 1

    def leave(self, member: Member, unanswered: tuple[Request, ...]) -> None:
        """A connection is closed, with these of its requests not answered: the user is told of them later."""
        if member not in self._members:
            return
        del self._members[member]
        left = self._per_address[member.address] - 1
        if left:
            self._per_address[member.address] = left
        else:
            del self._per_address[member.address]
        self._blocked.pop(member, None)
        self.charge(member, 0, 0)
        if unanswered and self.deliver is not None:
            deliver, gone = self.deliver, Gone(unanswered)
            self._later(lambda: deliver(gone), 0.0)

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._members)

    # Memory

    def charge(self, member: Member, received: int, unsent: int) -> None:
        """A connection holds so many bytes of both kinds now."""
        trusted = member.is_trusted
        change = received - member.received_charged
        if change and (abs(change) >= COUNTED_BYTES or not received):
            member.received_charged = received
            self._received[trusted].charge(member.address, change)
            self._changed(self._received[trusted], change)
        change = unsent - member.unsent_charged
        if change:
            member.unsent_charged = unsent
            self._unsent[trusted].charge(member.address, change)
            self._changed(self._unsent[trusted], change)

    def _changed(self, shares: Shares, change: int) -> None:
        self.is_tight = any(2 * shares.used > shares.limit for shares in self._all)
        if change < 0:
            if self._blocked and not self._will_unblock:
                self._will_unblock = True
                self._later(self._unblock, _LOOK_AGAIN_SECONDS)
        elif shares.used >= shares.limit > shares.used - change:
            # Sockets that are ready already must not be read from, either.
            for member in list(self._members):
                member.settle()

    def may_read(self, member: Member) -> bool:
        """Whether there is memory for what this connection may send; else it is looked at again when there is."""
        shares = self._received[member.is_trusted]
        if shares.admits(member.address):
            return True
        self._block(member)
        return False

    def may_ask_in_bulk(self, member: Member) -> bool:
        """Whether a request whose answer may be large is delivered now; else it has its turn later."""
        if self.bulk_left[member.is_trusted] <= 0:
            return False
        if self.is_tight and not self._unsent[member.is_trusted].admits(member.address):
            self._block(member)
            return False
        return True

    def _block(self, member: Member) -> None:
        member.is_blocked = True
        self._blocked[member] = None

    def _unblock(self) -> None:
        self._will_unblock = False
        blocked, self._blocked = self._blocked, {}
        for member in blocked:
            member.is_blocked = False
            member.settle()

    @property
    def held_bytes(self) -> tuple[int, int]:
        """How many received and how many unsent bytes are counted, for tests and metrics."""
        return (
            sum(shares.used for shares in self._received.values()),
            sum(shares.used for shares in self._unsent.values()),
        )

    # Turns

    def queue(self, member: Member) -> None:
        """Give this connection a turn to deliver what it holds."""
        if member.is_queued or member.is_blocked:
            return
        member.is_queued = True
        self._queues.setdefault(member.address, deque()).append(member)
        self._continue_later()

    def settle(self) -> bool:
        """The user deals with what was delivered.

        Returns whether only the network and time can bring more to do now.
        """
        is_idle = self.settled()
        self.requests_left = TURN_REQUESTS
        # Where sockets have a task each, this is called by every one of them.
        self.bulk_left = [0 if self._queues else BULK_BYTES, VOTERS_BULK_BYTES]
        return is_idle and not self._queues

    def _continue(self) -> None:
        """Give turns to those who wait for one, within bounds: every socket is looked at before the next ones."""
        self._will_continue = False
        is_idle = self.settled()
        delivered, written = 0, self.written_bytes
        while self._queues and is_idle and delivered < QUEUED_REQUESTS and self.written_bytes - written < TURN_BYTES:
            self.bulk_left = [BULK_BYTES, BULK_BYTES]
            for member in self._next():
                delivered += member.take_turn(QUANTUM)
                # Those that have not had their turn stay in front.
                if delivered >= QUEUED_REQUESTS or min(self.bulk_left) <= 0:
                    break
            is_idle = self.settled()
        if self._queues:
            self._continue_later()

    def _continue_later(self) -> None:
        if not self._will_continue:
            self._will_continue = True
            self._later(self._continue, 0.0)

    def _next(self) -> Iterator[Member]:
        """The next few connections, one from each address before a second one from any."""
        for _ in range(MEMBERS_AT_ONCE):
            if not self._queues:
                return
            address, members = next(iter(self._queues.items()))
            member = members.popleft()
            del self._queues[address]
            if members:
                self._queues[address] = members
            member.is_queued = False
            yield member

    def work_on(self, step: Callable[[], bool]) -> None:
        """Call `step` in turns of the transport's own, one call in a turn, until the call returns False.

        The steps of several answers are made in turn.
        """
        self._work.append(step)
        if len(self._work) == 1:
            self._later(self._work_on, 0.0)

    def _work_on(self) -> None:
        step = self._work[0]
        if step():
            self._work.rotate(-1)
        else:
            self._work.popleft()
        if self._work:
            self._later(self._work_on, 0.0)

    # Time

    def _watch(self) -> None:
        """Close connections whose peers do not move on."""
        now, stalled_s = self._now(), self.limits.stalled_s
        for member in list(self._members):
            if member.has_stalled(now, stalled_s):
                member.close()
        if self._blocked:
            self._let_some_read()
        self._is_watching = bool(self._members)
        if self._is_watching:
            self._later(self._watch, _WATCH_SECONDS)

    def _let_some_read(self) -> None:
        """As long as any memory is free, a few of those that wait for more read once, one after the other.

        Else many requests of one address could hold all of its share, and none of them would ever be whole. A peer that
        has gone is noticed that way, too.
        """
        for trusted, shares in self._received.items():
            most = max(0, (shares.limit - shares.used) // _ONE_READ_BYTES)
            for member in [one for one in self._blocked if one.is_trusted is trusted][:most]:
                del self._blocked[member]
                member.is_blocked = False
                member.read_once()

    def close_idle(self) -> None:
        """Close what has been idle for too long."""
        active_since = self._now() - self.limits.max_idle_s
        for member in list(self._members):
            if member.last_active < active_since and member.is_idle:
                member.close()
