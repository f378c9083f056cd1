"""TLS between a socket and its channel: a `Channel` towards the socket and a `Socket` towards the channel.

Kafka: `SslTransportLayer`. The stage works with every `Sockets`. Frames, requests and answers are as on a connection in
the clear.
"""

from __future__ import annotations

import logging
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from transport.addresses import PEER_CLOSED
from transport.channels import Channel, Connector, Owner, Socket
from transport.handshakes import Handshakes
from transport.interface import Cause, Endpoint
from transport.limited_log import LimitedLog
from transport.limits import SEAL_BYTES
from transport.protocol.inbound import ANONYMOUS, Principal
from transport.server_channel import ServerChannel
from transport.tls import Fault, TlsError, TlsListener, TlsSession

_MIDDLE: Final = "the peer closed the connection in the middle of the TLS handshake"
_UNHEARD: Final = "the peer closed the connection at the start of the TLS handshake: does the peer speak TLS?"
LINGER_SECONDS: Final = 0.1
"""How long a refused peer's bytes are read and ignored: a socket that closes with unread bytes resets the connection,
and the reset may overtake the alert with the reason. Kafka: `connection.failed.authentication.delay.ms`.
"""
_CAUSES: Final = {Fault.LATE: Cause.TIMEOUT, Fault.ENDED: Cause.RESET}
"""The causes of failures that are none of authentication."""


class TlsStage:
    """One connection with TLS. Handshakes advance in turns of `Handshakes`; later bytes pass at once."""

    __slots__ = (
        "_channel",
        "_describe",
        "_handshakes",
        "_has_heard",
        "_is_closed",
        "_is_connected",
        "_is_held",
        "_is_paused",
        "_linger_s",
        "_log",
        "_make_session",
        "_on_failed",
        "_on_secured",
        "_owner",
        "_plain",
        "_plain_bytes",
        "_session",
        "_socket",
        "_waiting",
    )

    _channel: Channel
    _socket: Socket

    def __init__(
        self,
        owner: Owner,
        handshakes: Handshakes,
        limited: LimitedLog,
        *,
        make_session: Callable[[], TlsSession],
        on_secured: Callable[[TlsSession], None],
        describe: str,
        linger_s: float = 0.0,
        on_failed: Callable[[Fault], None] = lambda _: None,
    ) -> None:
        """`describe` begins the log line of a failure; `on_secured` may refuse the peer with a `TlsError`.
        `on_failed` gets the kind of a failure before the handshake is done.

        `linger_s` is the time in seconds for which a refused peer's further bytes are read and ignored.
        """
        self._owner = owner
        self._handshakes = handshakes
        self._log = limited
        self._make_session = make_session
        self._on_secured = on_secured
        self._on_failed = on_failed
        self._describe = describe
        self._linger_s = linger_s
        self._session: TlsSession | None = None
        self._waiting: deque[bytes] = deque()
        """Bytes of the handshake that wait for their turn."""
        self._plain: deque[memoryview] = deque()
        """Plain bytes that are not sealed yet: a long answer is sealed in portions, as the peer reads them."""
        self._plain_bytes = 0
        self._is_connected = False
        self._is_closed = False
        self._is_paused = False
        """Whether the channel wants no bytes."""
        self._is_held = False
        """Whether the handshake waits for its turn; the socket is not read meanwhile."""
        self._has_heard = False

    def join(self, socket: Socket, channel: Channel) -> None:
        """Stand between this socket and this channel."""
        self._socket = socket
        self._channel = channel

    def accepted(self) -> None:
        """Begin as a server: a peer has connected, and speaks first."""
        self._is_connected = True
        self._session = self._make_session()

    # The channel of the socket

    def on_connected(self) -> None:
        """Begin the handshake: the connection exists. The deadline holds without a request, too."""
        self._is_connected = True
        self._handshakes.enter(self)
        try:
            self._session = self._make_session()
        except TlsError as failed:
            self._fail(failed)
            return
        self._step()

    def on_data(self, data: bytes) -> int:
        """Continue the handshake in its turn, or hand the plain bytes to the channel."""
        session = self._session
        if self._is_closed:
            return 0
        assert session is not None, self._describe
        if session.is_secured:
            session.receive(data)
            return self._read(session)
        self._has_heard = True
        self._waiting.append(data)
        if not self._is_held:
            self._is_held = True
            if not self._is_paused:
                self._socket.pause()
            self._handshakes.queue(self)
        return 0

    @property
    def is_silent(self) -> bool:
        """Whether the peer has sent nothing yet."""
        return not self._has_heard

    def step(self) -> None:
        """Continue the handshake with the bytes that have arrived."""
        if self._is_closed or not self._is_held:
            return
        self._is_held = False
        self._step()
        if not self._is_closed and not self._is_held and not self._is_paused:
            self._socket.resume()

    def _step(self) -> None:
        session = self._session
        assert session is not None, self._describe
        try:
            while self._waiting:
                session.receive(self._waiting.popleft())
            is_done = session.advance()
            if is_done:
                self._on_secured(session)
        except TlsError as failed:
            self._fail(failed)
            return
        self._send(session)
        if is_done:
            self._handshakes.leave(self)
            self._channel.on_connected()
            if not self._is_closed:
                self._read(session)

    def _read(self, session: TlsSession) -> int:
        plain, failure = session.read()
        self._send(session)
        needed = self._channel.on_data(plain) if plain else 0
        if failure is not None:
            self._fail(failure)
        elif session.is_ended:
            self._end(Cause.RESET, PEER_CLOSED)
        return needed

    def _send(self, session: TlsSession) -> None:
        if sealed := session.take():
            self._socket.write(sealed)

    def on_drained(self) -> None:
        """The system has taken the sealed bytes: seal more, or tell the channel."""
        if self._plain:
            self._seal_on()
        elif self._session is not None and self._session.is_secured:
            self._channel.on_drained()

    def on_closed(self, cause: Cause, detail: str) -> None:
        """The connection ended. Bytes that came before may hold the peer's reason."""
        if self._is_held:
            self.step()
        session = self._session
        if self._is_connected and (session is None or not session.is_secured) and not self._is_closed:
            detail = _MIDDLE if self._has_heard else _UNHEARD
            # Programs that only check whether a port is open do the same to a server, again and again.
            is_probe = bool(self._linger_s) and not self._has_heard
            if not is_probe:
                self._note(Fault.ENDED)
            self._tell(TlsError(Fault.ENDED, detail), logging.INFO if is_probe else logging.WARNING)
        self._forget()
        self._end(cause, detail)

    def expire(self) -> None:
        """The handshake has taken too long."""
        self._fail(TlsError(Fault.LATE, "the TLS handshake was not finished in time"))

    def _fail(self, failure: TlsError) -> None:
        """Send the alert, name the cause in the log, and end the connection."""
        if self._is_closed:
            return
        self._note(failure.fault)
        self._tell(failure)
        cause = _CAUSES.get(failure.fault, Cause.AUTHENTICATION)
        if self._session is not None and not self._socket.unsent:
            self._send(self._session)
        if self._linger_s and self._has_heard and self in self._handshakes:
            self._is_closed = True
            self._socket.resume()
            self._owner.later(self._leave, self._linger_s)
            self._channel.on_closed(cause, str(failure))
        else:
            self._end(cause, str(failure))

    def _leave(self) -> None:
        """Close the socket of a refused peer."""
        self._forget()
        self._socket.close()

    def _note(self, fault: Fault) -> None:
        if self in self._handshakes:
            self._on_failed(fault)

    def _tell(self, failure: TlsError, level: int = logging.WARNING) -> None:
        self._log.write(level, f"tls-{failure.fault}", "%s: %s", self._describe, failure)

    def _end(self, cause: Cause, detail: str) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._forget()
            self._socket.close()
            self._channel.on_closed(cause, detail)

    def _forget(self) -> None:
        """Release the memory at once: the stage and its channel refer to each other."""
        self._handshakes.leave(self)
        self._session = None
        self._waiting.clear()
        self._plain.clear()
        self._plain_bytes = 0

    # The socket of the channel

    @property
    def unsent(self) -> int:
        """Bytes that `write` took and the operating system has not accepted yet, sealed or not."""
        return self._socket.unsent + self._plain_bytes

    def write(self, data: bytes) -> None:
        """Seal and send; the rest of a long answer follows as the peer reads."""
        if self._is_closed:
            return
        if not self._plain and len(data) <= SEAL_BYTES:
            self._seal(data)
            return
        is_first = not self._plain
        self._plain.append(memoryview(data))
        self._plain_bytes += len(data)
        if is_first:
            self._seal_on()

    def write_pieces(self, pieces: Sequence[bytes]) -> None:
        """Seal and send each piece; the seal is the only copy."""
        for piece in pieces:
            self.write(piece)

    def _seal(self, data: bytes | memoryview) -> None:
        session = self._session
        assert session is not None, self._describe
        try:
            session.seal(data)
        except TlsError as failed:
            self._owner.later(partial(self._fail, failed))
            return
        self._send(session)

    def _seal_on(self) -> None:
        """Seal the next portion."""
        if self._is_closed or not self._plain:
            return
        first = self._plain[0]
        portion = first[:SEAL_BYTES]
        if len(portion) == len(first):
            self._plain.popleft()
        else:
            self._plain[0] = first[SEAL_BYTES:]
        self._plain_bytes -= len(portion)
        self._seal(portion)
        if not self._socket.unsent:
            # No report of the socket follows: the system has taken everything.
            self._owner.later(self._seal_on if self._plain else self._tell_drained)

    def _tell_drained(self) -> None:
        if not self._is_closed and not self.unsent:
            self._channel.on_drained()

    def pause(self) -> None:
        """Read no more until `resume`."""
        self._is_paused = True
        if not self._is_held:
            self._socket.pause()

    def resume(self) -> None:
        """Read again."""
        self._is_paused = False
        if not self._is_held:
            self._socket.resume()

    def close(self) -> None:
        """Close at once. The peer is told, so that the end is no cut."""
        if self._is_closed:
            return
        self._is_closed = True
        session = self._session
        if session is not None and session.is_secured and not self._socket.unsent:
            session.end()
            self._send(session)
        self._forget()
        self._socket.close()


class TlsServing:
    """TLS on the listeners of a transport: makes the stage of an accepted connection."""

    def __init__(self, owner: Owner, handshakes: Handshakes, limited: LimitedLog) -> None:
        self._owner = owner
        self._handshakes = handshakes
        self._log = limited

    def accept(
        self,
        socket: Socket,
        tls: TlsListener,
        peer: str,
        make: Callable[[Socket], ServerChannel],
        *,
        on_failed: Callable[[Fault], None],
        on_succeeded: Callable[[], None],
    ) -> Channel:
        """The stage of a peer's connection; `make` makes the channel behind the stage.

        `on_succeeded` follows a handshake, and `on_failed` gets the kind of a failure.
        """

        def on_secured(session: TlsSession) -> None:
            channel.connection.principal = _principal(session, tls)
            on_succeeded()

        stage = TlsStage(
            self._owner,
            self._handshakes,
            self._log,
            make_session=partial(TlsSession, tls.context),
            on_secured=on_secured,
            describe=f"closing the connection of {peer}",
            linger_s=LINGER_SECONDS,
            on_failed=on_failed,
        )
        channel = make(stage)
        stage.join(socket, channel)
        self._handshakes.enter(stage, channel.address)
        stage.accepted()
        return stage


def _principal(session: TlsSession, tls: TlsListener) -> Principal:
    certificate = session.peer_certificate
    if certificate is None or tls.principal_of is None:
        return ANONYMOUS
    try:
        return tls.principal_of(certificate)
    except ValueError as bad:
        raise TlsError(Fault.PRINCIPAL, f"the peer's certificate has no principal: {bad}") from bad


class TlsConnector:
    """Connects to peers with TLS."""

    def __init__(
        self,
        owner: Owner,
        handshakes: Handshakes,
        limited: LimitedLog,
        connector: Connector,
        *,
        context: Callable[[], ssl.SSLContext],
        on_certificate: Callable[[Endpoint, bytes], None],
    ) -> None:
        """`context` returns the context of the next connection; `on_certificate` gets the verified ones of peers."""
        self._owner = owner
        self._handshakes = handshakes
        self._log = limited
        self._connector = connector
        self._context = context
        self._on_certificate = on_certificate

    def connect(self, endpoint: Endpoint, channel: Channel, failures: int) -> Socket:
        """Begin to connect; `on_connected` follows the handshake. See `Sockets.connect`."""
        stage = TlsStage(
            self._owner,
            self._handshakes,
            self._log,
            make_session=partial(self._session, endpoint),
            on_secured=partial(self._accept, endpoint),
            describe=f"closing the connection to {endpoint}",
        )
        stage.join(self._connector.connect(endpoint, stage, failures), channel)
        return stage

    def _session(self, endpoint: Endpoint) -> TlsSession:
        return TlsSession(self._context(), endpoint.host)

    def _accept(self, endpoint: Endpoint, session: TlsSession) -> None:
        """The context has verified the server already."""
        if (certificate := session.peer_certificate) is not None:
            self._on_certificate(endpoint, certificate)
