"""The connections of peers to one transport: their number, their memory and their turns.

Kafka: `SocketServer`, `ConnectionQuotas`, and the memory pool of `queued.max.request.bytes`. This module does not use
sockets, so that every `Sockets` implementation has the same rules.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Final, Protocol

from msgspec import Struct

from transport.limited_log import LimitedLog
from transport.limits import (
    ANSWER_TURN_BYTES,
    ANSWERS_IN_ROOM,
    BUDGET_BYTES,
    BULK_BYTES,
    COUNTED_BYTES,
    MAX_CONNECTIONS,
    MEMBERS_AT_ONCE,
    PLACE_SECONDS,
    QUANTUM,
    QUEUED_REQUESTS,
    READ_BYTES,
    RESERVED_CONNECTIONS,
    SMALL_BYTES,
    STALLED_SECONDS,
    TURN_REQUESTS,
    VOTERS_BULK_BYTES,
)
from transport.protocol.inbound import Gone, Request
from transport.protocol.limits import ADMIN, MAX_FRAME_BYTES, REQUESTS
from transport.shares import Shares
from transport.traffic import Authentications

log = logging.getLogger("transport")

INT_MAX: Final = 0x7FFF_FFFF
LARGEST_REQUEST_BYTES: Final = max(ADMIN.size, *[limit.size for limit in REQUESTS.values()])
_LAST: Final = ""
"""The place of the one connection that reads on while no memory is left. It is closed if it does not end in time."""
_LOOK_AGAIN_SECONDS: Final = 0.02
_WATCH_SECONDS: Final = 1.0


class ServingLimits(Struct, frozen=True, kw_only=True):
    """How much peers may use of a node: numbers of connections, bytes, and seconds."""

    max_frame_bytes: int = MAX_FRAME_BYTES
    """Kafka's `socket.request.max.bytes`."""
    largest_request_bytes: int = LARGEST_REQUEST_BYTES
    """The most bytes that the limit of any API allows."""
    max_idle_s: float = 600.0
    """Kafka's `connections.max.idle.ms`."""
    max_connections: int = MAX_CONNECTIONS
    """Kafka's `max.connections`."""
    max_per_ip: int = INT_MAX
    """Kafka's `max.connections.per.ip`; without that setting one address has at most half of all connections."""
    received_bytes: int = 0
    """Kafka's `queued.max.request.bytes`; 0 for 64 MiB, or twice the largest request."""
    queued_requests: int = TURN_REQUESTS
    """Kafka's `queued.max.requests`."""
    unsent_bytes: int = BUDGET_BYTES
    stalled_s: float = STALLED_SECONDS


class Member(Protocol):
    """The interface of a connection to `Serving`."""

    listener: str
    peer: str
    address: str
    is_trusted: bool
    last_active: float
    is_queued: bool
    is_blocked: bool
    received_charged: int
    unsent_charged: int

    @property
    def is_idle(self) -> bool:
        """Whether no request, frame or answer is pending."""

    @property
    def unfinished_bytes(self) -> int:
        """The bytes of a request that has not arrived completely."""

    def take_turn(self, most: int) -> int:
        """Deliver up to `most` requests; returns how many."""

    def settle(self) -> None:
        """Decide anew whether to read, and whether requests wait for delivery."""

    def read_once(self) -> None:
        """Read once although memory is short."""

    def has_stalled(self, now: float, stalled_s: float) -> bool:
        """Whether the peer has made no progress for `stalled_s` seconds."""

    def close(self) -> None:
        """Close now."""


def address_of(peer: str) -> str:
    """The numeric address in a peer's `host:port`, in IPv4 form for an IPv4 peer of an IPv6 listener."""
    host = peer.rpartition(":")[0].strip("[]") or peer
    return host.removeprefix("::ffff:") if "." in host else host


def is_loopback(address: str) -> bool:
    """Whether the peer is on this machine."""
    return address == "::1" or address.startswith("127.")


class Serving:
    """The state that the connections of peers share."""

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
        self.per_listener: Mapping[str, int] = {}
        """The most connections of a listener, where it has a limit of its own."""
        self.log = LimitedLog(log, now)
        self.deliver: Callable[[Request | Gone], None] | None = None
        self.batch_delivered: Callable[[], bool] = lambda: True
        """Called when a batch of deliveries is complete; see `Transport.run`."""
        self.written_bytes = 0
        """Total bytes of answers."""
        self.authentications = Authentications()
        """How peers have authenticated."""
        self.accepted = 0
        """Total connections."""
        self.requests_left = limits.queued_requests
        """How many requests may be delivered on arrival before the user has processed all that were delivered."""
        self.is_tight = False
        """Whether half of a bound is used, so that `may_read` and `may_ask_in_bulk` have to be called."""
        self.bulk_left = [BULK_BYTES, VOTERS_BULK_BYTES]
        """The remaining expected bytes of bulk answers: of unknown peers, and of voters.

        While this is above 0, one of these requests may be a bulk request, which subtracts its expected bytes.
        """
        self._later = later
        self._now = now
        self._reserved: frozenset[str] = frozenset()
        self._members: dict[Member, None] = {}
        self._per_address: dict[str, int] = {}
        self._queues: dict[str, deque[Member]] = {}
        """The connections with something to deliver, by address; the first address is the next in turn."""
        self._blocked: dict[Member, None] = {}
        """The connections that wait for memory."""
        self._places: dict[str, tuple[Member, float]] = {}
        """By address, the connection that reads on while memory is short for the address, and since when."""
        self._work: deque[Callable[[], bool]] = deque()
        """The long answers in progress: each call does one step of one answer."""
        self._will_continue = False
        self._will_unblock = False
        self._is_watching = False
        frame = min(limits.max_frame_bytes, limits.largest_request_bytes)
        self.received_bytes = limits.received_bytes or max(BUDGET_BYTES, 2 * frame)
        """The bound of received bytes."""
        # Separate bounds: the memory of unknown peers never delays the voters' own requests.
        self._received = {trusted: Shares(self.received_bytes, frame) for trusted in (False, True)}
        self._unsent = {trusted: Shares(limits.unsent_bytes) for trusted in (False, True)}
        self._all = (*self._received.values(), *self._unsent.values())

    def later(self, action: Callable[[], None], delay_s: float) -> None:
        """Run an action in the transport's own task, after `delay_s` seconds."""
        self._later(action, delay_s)

    # Admission

    def reserve(self, addresses: frozenset[str]) -> None:
        """Reserve room for peers at these addresses: the peers that this node keeps connections to."""
        self._reserved = addresses
        for member in self._members:
            if member.is_trusted is not self.is_trusted(member.address):
                self.charge(member, 0, 0)
                member.is_trusted = not member.is_trusted
                self._later(member.settle, 0.0)

    def is_trusted(self, address: str) -> bool:
        """Whether this is the address of a voter."""
        return address in self._reserved

    def has_reserve(self, address: str) -> bool:
        """Whether connections and descriptors are reserved for this address: a voter's, or this machine's own."""
        return address in self._reserved or is_loopback(address)

    def refusal(self, address: str, listener: str) -> str | None:
        """Why a new connection from this address is refused, as a text; None if the connection is accepted."""
        limits = self.limits
        most = limits.max_connections
        if not self.has_reserve(address):
            most -= min(RESERVED_CONNECTIONS, most // 16)
        if len(self._members) >= most:
            return f"there are {len(self._members)} connections already"
        if listener in self.per_listener:
            here = sum(one.listener == listener for one in self._members)
            if here >= self.per_listener[listener]:
                return f"there are {here} connections at that listener already"
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
        self.accepted += 1
        self._per_address[member.address] = self._per_address.get(member.address, 0) + 1

    @property
    def open_connections(self) -> int:
        """The connections that are open now."""
        return len(self._members)

    def leave(self, member: Member, unanswered: tuple[Request, ...]) -> None:
        """A connection closed with these requests unanswered; the user learns of it with the next delivery."""
        if member not in self._members:
            return
        del self._members[member]
        left = self._per_address[member.address] - 1
        if left:
            self._per_address[member.address] = left
        else:
            del self._per_address[member.address]
            self._places.pop(member.address, None)
        self._blocked.pop(member, None)
        self.charge(member, 0, 0)
        if self.deliver is not None:
            deliver, gone = self.deliver, Gone(unanswered, member.listener, member.peer)
            self._later(lambda: deliver(gone), 0.0)

    @property
    def connections(self) -> int:
        """The number of connections."""
        return len(self._members)

    # Memory

    def charge(self, member: Member, received: int, unsent: int) -> None:
        """Set the received and the unsent bytes of a connection."""
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
            # Sockets that are ready already must not be read from either.
            for member in list(self._members):
                member.settle()

    def may_read(self, member: Member) -> bool:
        """Whether there is memory for this connection's next bytes; if not, the connection waits for memory."""
        shares = self._received[member.is_trusted]
        if shares.admits(member.address):
            return True
        # Unfinished requests of one address that share its memory would keep each other from their ends, and all small
        # requests of that address from their beginnings. So one of them reads on, and small ones do.
        free = shares.limit - shares.used
        if free > shares.limit // 32 and member.received_charged < SMALL_BYTES:
            return True
        if free > shares.limit // 16:
            if self._has_place(member, member.address, PLACE_SECONDS):
                return True
        elif self._has_place(member, _LAST, inf):
            return True
        self._block(member)
        return False

    def _has_place(self, member: Member, place: str, seconds: float) -> bool:
        """Whether this connection is the one that reads on; it is, if no other one is, or one for so many seconds."""
        now = self._now()
        holder, since = self._places.get(place, (member, now))
        if holder is not member:
            is_free = holder not in self._members or holder.unfinished_bytes < SMALL_BYTES
            if not is_free and now - since < seconds:
                return False
            since = now
        self._places[place] = member, since
        return True

    def may_ask_in_bulk(self, member: Member) -> bool:
        """Whether a bulk request is delivered now; if not, the connection waits for its turn."""
        if self.bulk_left[member.is_trusted] <= 0:
            return False
        if self.is_tight and not self._unsent[member.is_trusted].admits_one(member.address):
            self._block(member)
            return False
        return True

    def room(self, member: Member) -> int:
        """The bytes that the next answer to this connection should not exceed while memory is short."""
        shares = self._unsent[member.is_trusted]
        return max(0, shares.limit - shares.used) // ANSWERS_IN_ROOM

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
        """The counted received and unsent bytes, for tests and metrics."""
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
        """Let the user process the deliveries.

        Returns whether only the network and time can bring more work.
        """
        is_idle = self.batch_delivered()
        if is_idle:
            self.requests_left = self.limits.queued_requests
        # With a task per socket, every such task calls this method.
        self.bulk_left = [0 if self._queues else BULK_BYTES, VOTERS_BULK_BYTES]
        return is_idle and not self._queues

    def _continue(self) -> None:
        """Give turns to the waiting connections, within bounds: every socket is polled before the next turns."""
        self._will_continue = False
        is_idle = self.batch_delivered()
        delivered, written = 0, self.written_bytes
        while (
            self._queues
            and is_idle
            and delivered < QUEUED_REQUESTS
            and self.written_bytes - written < ANSWER_TURN_BYTES
        ):
            self.bulk_left = [BULK_BYTES, BULK_BYTES]
            self.requests_left = self.limits.queued_requests
            for member in self._next():
                delivered += member.take_turn(min(QUANTUM, self.requests_left))
                # Connections that have not had their turn stay in front.
                if delivered >= QUEUED_REQUESTS or min(self.bulk_left) <= 0 or self.requests_left <= 0:
                    break
            is_idle = self.batch_delivered()
        if self._queues:
            self._continue_later()

    def _continue_later(self) -> None:
        if not self._will_continue:
            self._will_continue = True
            self._later(self._continue, 0.0)

    def _next(self) -> Iterator[Member]:
        """The next few connections, one of each address before a second one of any address."""
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
        """Call `step` in the transport's own task, once per turn, until the call returns False.

        The steps of several answers alternate.
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
        """Close connections of stalled peers."""
        now, stalled_s = self._now(), self.limits.stalled_s
        for member in list(self._members):
            if member.has_stalled(now, stalled_s):
                member.close()
        last, since_s = self._places.pop(_LAST, (None, now))
        if last is not None and last in self._members and last.unfinished_bytes >= SMALL_BYTES:
            self._places[_LAST] = last, since_s
            if now - since_s >= stalled_s:
                last.close()
        if self._blocked:
            self._let_some_read()
        self._is_watching = bool(self._members)
        if self._is_watching:
            self._later(self._watch, _WATCH_SECONDS)

    def _let_some_read(self) -> None:
        """While any memory is free, let a few of the connections that wait for memory read once each, in turn.

        Otherwise the incomplete requests of one address could hold all of its share, and none of them would complete.
        Such a read also notices a peer that has closed.
        """
        for trusted, shares in self._received.items():
            most = max(0, (shares.limit - shares.used) // READ_BYTES)
            for member in [one for one in self._blocked if one.is_trusted is trusted][:most]:
                del self._blocked[member]
                member.is_blocked = False
                member.read_once()

    def close_idle(self) -> None:
        """Close the connections that were idle for too long."""
        active_since = self._now() - self.limits.max_idle_s
        for member in list(self._members):
            if member.last_active < active_since and member.is_idle:
                member.close()
