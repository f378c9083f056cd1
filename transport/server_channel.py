"""`ServerChannel`: a peer's connection to this node, with its socket (Kafka: `KafkaChannel`, `SocketServer`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Final

from metadata_log.errors import EncodeError
from metadata_log.serde import Message
from transport.channels import ENDED, Socket
from transport.handshakes import Handshakes
from transport.interface import Cause, Request
from transport.limits import (
    COUNTED_BYTES,
    QUANTUM,
    STEADY_BYTES,
    TURN_REQUESTS,
    UNANSWERED_PER_CONNECTION,
    UNSENT_PER_CONNECTION,
)
from transport.protocol.apis import Api, ApiKey
from transport.protocol.frames import with_length
from transport.protocol.headers import has_large_records
from transport.protocol.limits import PIPELINED, Limit, request_limit
from transport.protocol.login import PeerRefused, ServerLogin
from transport.protocol.server_connection import ServerConnection
from transport.serving import Serving, address_of
from transport.traffic import NO_MECHANISM, SUCCESS, TIMEOUT

log = logging.getLogger("transport")


_FETCH: Final = int(ApiKey.FETCH)


class ServerChannel:
    """A peer's connection to one listener of this node."""

    __slots__ = (
        "_deliver",
        "_is_muted",
        "_is_refusing",
        "_logins",
        "_mark",
        "_marked_at",
        "_muted_until",
        "_paused",
        "_received",
        "_serving",
        "_socket",
        "_written",
        "address",
        "closed",
        "connection",
        "is_blocked",
        "is_queued",
        "is_trusted",
        "last_active",
        "listener",
        "now",
        "peer",
        "received_charged",
        "unsent_charged",
    )

    def __init__(
        self,
        serving: Serving,
        socket: Socket,
        *,
        now: Callable[[], float],
        listener: str,
        peer: str,
        served: Mapping[int, Api],
        limits: Callable[[int], Limit] = request_limit,
        sasl: ServerLogin | None = None,
    ) -> None:
        assert serving.deliver is not None, "peers are accepted only by a running transport"
        self.connection = ServerConnection(
            handle=self,
            listener=listener,
            peer=peer,
            served=served,
            limits=limits,
            max_frame_bytes=serving.limits.max_frame_bytes,
            sasl=sasl,
        )
        self.listener = listener
        self.peer = peer
        self.address = address_of(peer)
        self.is_trusted = serving.is_trusted(self.address)
        self.closed = False
        self.now = now
        self.last_active = now()
        self.is_queued = False
        """Whether this connection waits for its turn to deliver."""
        self.is_blocked = False
        """Whether this connection waits for memory of the node."""
        self.received_charged = 0
        self.unsent_charged = 0
        self._serving = serving
        self._socket = socket
        self._deliver = serving.deliver
        self._paused = False
        self._received = 0
        self._written = 0
        self._mark = (0, 0)
        """Total bytes received and sent when the peer last made progress."""
        self._marked_at = self.last_active
        self._logins: Handshakes | None = None
        """Counts this connection until the peer has logged in."""
        self._is_refusing = False
        """Whether the refusal of a login waits for its delay."""
        self._is_muted = False
        """Whether nothing is read from the connection because the client is above a quota."""
        self._muted_until = 0.0

    def on_connected(self) -> None:
        """Nothing to do: an accepted connection is connected from the start; one with TLS now has its principal."""

    def on_data(self, data: bytes) -> int:
        """Deliver the requests that these bytes complete, or queue them for this connection's turn."""
        self.last_active = self.now()
        self._received += len(data)
        connection, serving = self.connection, self._serving
        if serving.requests_left > 0 and not self.is_queued:
            if not self._paused:
                is_bulk = data[4:6] not in PIPELINED
                may_be_alone = not is_bulk or (serving.bulk_left[self.is_trusted] > 0 and not serving.is_tight)
                request = connection.receive_alone(data, is_bulk=is_bulk) if may_be_alone else None
                if request is not None:
                    serving.requests_left -= 1
                    if is_bulk:
                        serving.bulk_left[self.is_trusted] -= connection.expected_of(request)
                    self._deliver(request)
                    if connection.weight >= COUNTED_BYTES:
                        self.settle()
                    return 0
            connection.receive(data)
            self._serve(min(QUANTUM, serving.requests_left))
        else:
            connection.receive(data)
        self.settle()
        return 0 if serving.is_tight else connection.frames.missing

    def take_turn(self, most: int) -> int:
        """Deliver up to `most` requests; returns how many."""
        served = self._serve(most)
        self.settle()
        return served

    def _serve(self, most: int) -> int:
        connection, serving = self.connection, self._serving
        served = 0
        while served < most and not self.closed:  # the user may drop the connection over any request
            if not connection.may_take or self._is_full:
                break
            is_new = not connection.is_reading
            if is_new and connection.is_next_in_bulk and not serving.may_ask_in_bulk(self):
                break
            taken = connection.take()
            if taken is None:
                if connection.is_reading:
                    served = TURN_REQUESTS  # a step of a long frame is a turn's work
                break
            served += 1
            serving.requests_left -= 1
            if isinstance(taken, bytes):
                self._write(taken)
                if self._logins is not None and connection.sasl is not None and connection.sasl.principal is not None:
                    self._logins.leave(self)
                    self._logins = None
                    self._note(SUCCESS)
            else:
                if connection.bulk == taken.sequence:
                    serving.bulk_left[self.is_trusted] -= connection.expected_of(taken)
                if serving.is_tight:
                    taken.room = serving.room(self)
                self._deliver(taken)
        return served

    @property
    def _is_full(self) -> bool:
        """Whether serving waits: for the peer to read, for this node to answer, or for the end of a mute."""
        return (
            self._is_muted
            or self.connection.unanswered >= UNANSWERED_PER_CONNECTION
            or self._socket.unsent >= UNSENT_PER_CONNECTION
        )

    def _write(self, data: bytes) -> None:
        self._written += len(data)
        self._serving.written_bytes += len(data)
        self._socket.write(data)

    def answer(self, request: Request, message: Message) -> None:
        """Send an answer, or keep the answer until those before it are sent.

        An answer with a throttle time mutes the connection for that time, from now on (KIP-219).
        """
        if self.closed:
            return
        mute_ms: int = getattr(message, "throttle_time_ms", 0)
        if mute_ms > 0:
            self._mute(mute_ms)
        connection = self.connection
        if connection.may_be_long(request):
            steps = connection.answer_in_steps(request, message)
            if self._write_on(steps):
                self._serving.work_on(partial(self._write_on, steps))
            return
        try:
            if request.api_key == _FETCH and has_large_records(message):
                self._send_pieces(connection.answer_in_pieces(request, message))
            else:
                self._send(connection.answer(request, message))
        except EncodeError as bad:
            self._close_unwritten(bad)

    def _write_on(self, steps: Generator[None, None, bytes]) -> bool:
        """Do the next step of a long answer; returns whether more steps follow."""
        if self.closed:
            return False
        try:
            next(steps)
        except StopIteration as done:
            self._send(done.value)
        except EncodeError as bad:
            self._close_unwritten(bad)
        else:
            return True
        return False

    def _close_unwritten(self, bad: EncodeError) -> None:
        text = "closing the connection of %s: its answer cannot be written: %s"
        self._serving.log.write(logging.ERROR, "answer", text, self.peer, bad)
        self.close()

    def _send(self, released: bytes) -> None:
        """Send the answers that may leave now, if any."""
        socket = self._socket
        if released:
            size = len(released)
            self._written += size
            self._serving.written_bytes += size
            socket.write(released)
        if self._paused or socket.unsent or self.received_charged:
            self.settle()

    def _send_pieces(self, pieces: list[bytes]) -> None:
        size = sum(map(len, pieces))
        self._written += size
        self._serving.written_bytes += size
        self._socket.write_pieces(pieces)
        if self._paused or self._socket.unsent or self.received_charged:
            self.settle()

    def leave_unanswered(self, request: Request, mute_ms: int = 0) -> None:
        """Finish a request that has no answer; nothing more is read for `mute_ms` milliseconds."""
        if not self.closed:
            self._mute(mute_ms)
            self._send(self.connection.leave_unanswered(request))
            self.settle()

    def _mute(self, mute_ms: int) -> None:
        """Read nothing and deliver nothing for a time (Kafka: `RequestChannel.startThrottling`)."""
        if mute_ms <= 0:
            return
        self._muted_until = max(self._muted_until, self.now() + mute_ms / 1000)
        if not self._is_muted:
            self._is_muted = True
            self._serving.later(self._unmute, mute_ms / 1000)
        self.settle()

    def _unmute(self) -> None:
        if self.closed:
            return
        left = self._muted_until - self.now()
        if left > 0:
            self._serving.later(self._unmute, left)
        else:
            self._is_muted = False
            self.settle()

    def drop(self, request: Request) -> None:
        """Close the connection instead of answering."""
        self.connection.forget(request)
        self.close()

    def on_drained(self) -> None:
        """The peer has read the pending bytes."""
        self.settle()

    def settle(self) -> None:
        """Count the memory of this connection; then close, pause or resume the connection accordingly."""
        if self.closed:
            return
        connection, unsent = self.connection, self._socket.unsent
        held, unread = connection.held_bytes, unsent + connection.early_bytes
        if held >= COUNTED_BYTES or self.received_charged or unread or self.unsent_charged:
            self._serving.charge(self, held, unread)
        if connection.broken is not None:
            if connection.unanswered or unsent:
                self._pause()
            elif connection.refused is not None:
                self._pause()
                self._refuse_later(connection.refused)
            else:
                if not self._is_refusing:
                    self._log_end(connection.broken)
                self.close()
        elif connection.waiting:
            self._pause()
            if connection.may_take and not self._is_full:
                self._serving.queue(self)
        elif self._is_full or (self._serving.is_tight and not self._serving.may_read(self)):
            self._pause()
        elif self._paused and connection.unanswered <= UNANSWERED_PER_CONNECTION // 2 and not unsent:
            self._paused = False
            self._socket.resume()

    def _refuse_later(self, refused: PeerRefused) -> None:
        """Let a peer with wrong credentials wait; then refuse it."""
        if self._is_refusing:
            return
        self._is_refusing = True
        self._note(refused.kind)
        self._log_end(refused.why)
        if refused.is_delayed and self.connection.sasl is not None:
            delay_s = self.connection.sasl.failed_delay_ms / 1000
            self._serving.later(partial(self._refuse, refused), delay_s)
        else:
            self._refuse(refused)

    def _note(self, result: str) -> None:
        """Count the outcome of a login."""
        sasl = self.connection.sasl
        mechanism = "" if sasl is None else sasl.mechanism
        self._serving.authentications.note(self.listener, mechanism or NO_MECHANISM, result)

    def _log_end(self, why: str) -> None:
        self._serving.log.write(logging.INFO, "broken", "closing the connection of %s: %s", self.peer, why)

    def _refuse(self, refused: PeerRefused) -> None:
        if not self.closed:
            self.connection.refused = None
            if refused.answer is not None:
                self._write(with_length(refused.answer))
            self.settle()

    def log_in(self, logins: Handshakes) -> None:
        """The peer has to log in; `logins` counts the connection until then."""
        self._logins = logins
        logins.enter(self, self.address)

    @property
    def unfinished_bytes(self) -> int:
        """The bytes of a request that has not arrived completely."""
        return self.connection.frames.held

    @property
    def is_silent(self) -> bool:
        """Whether the peer has sent nothing yet."""
        return not self._received

    def step(self) -> None:
        """Nothing to do: frames of a login have their turn as requests have."""

    def expire(self) -> None:
        """Close the connection of a peer that takes too long to log in."""
        text = "closing the connection of %s: the peer has not logged in in time"
        self._serving.log.write(logging.INFO, "slow login", text, self.peer)
        self._note(TIMEOUT)
        self.close()

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._socket.pause()

    def read_once(self) -> None:
        """Read once although the node is short of memory; `settle` follows and pauses the connection again."""
        if self._paused and not self.connection.waiting and not self._is_full and self.connection.broken is None:
            self._paused = False
            self._socket.resume()
        else:
            # What waits for room for its answers would wait for ever: nobody else remembers the connection now.
            self.settle()

    def has_stalled(self, now: float, stalled_s: float) -> bool:
        """Whether the peer has left answers unread, or a request unfinished, for `stalled_s` seconds.

        A few bytes now and then are no progress. A peer that waits for an answer of this node has not stalled.
        """
        unsent, connection = self._socket.unsent, self.connection
        if self.unsent_charged:
            self.settle()
        is_waiting = self._is_muted or connection.unanswered or connection.waiting or not connection.frames.held
        if not unsent and is_waiting:
            self._marked_at = now
            self._mark = (self._received, self._written - unsent)
            return False
        received, sent = self._received - self._mark[0], self._written - unsent - self._mark[1]
        is_steady = sent >= STEADY_BYTES if unsent else received >= STEADY_BYTES
        if is_steady:
            self._marked_at = now
            self._mark = (self._received, self._written - unsent)
            return False
        if now - self._marked_at < stalled_s:
            return False
        what = f"left {unsent} bytes unread" if unsent else "did not finish a request"
        text = "closing the connection of %s: the peer %s for %d seconds"
        self._serving.log.write(logging.INFO, "stalled", text, self.peer, what, stalled_s)
        return True

    def on_closed(self, cause: Cause, detail: str) -> None:
        """The peer has closed the connection; answers to its requests are discarded."""
        log.debug("connection of %s ended (%s): %s", self.peer, cause, detail)
        self.close()

    def close(self) -> None:
        """Close now, even with requests unanswered."""
        if not self.closed:
            self.closed = True
            if self._logins is not None:
                self._logins.leave(self)
            self._socket.close()
            self._serving.leave(self, self.connection.lost())
            self._socket = ENDED

    @property
    def is_idle(self) -> bool:
        """Whether no request, frame or answer is pending."""
        return not self.connection.unanswered and not self.connection.waiting and not self._socket.unsent
