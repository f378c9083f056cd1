"""One TLS session without its socket: sealed bytes in and out on one side, plain bytes on the other.

Kafka: `SslTransportLayer`. The session uses `ssl.MemoryBIO`, so that every kind of socket can carry the session.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Final

from msgspec import Struct

from transport.limits import HANDSHAKE_BYTES
from transport.protocol.inbound import Principal

HANDSHAKE_TIMEOUT_MS: Final = 10_000
"""Kafka's servers have no such deadline: a silent client keeps its connection for `connections.max.idle.ms`."""
_RECORD_BYTES: Final = 16 * 1024
_ALERT: Final = 0x15
_HANDSHAKE: Final = 0x16
_TLS_1_2: Final = "TLSv1.2"

SPEAKS_PLAIN: Final = "the peer sends bytes without TLS: its port or its configuration is one for PLAINTEXT"


class Fault(StrEnum):
    """The kind of a failure of TLS. Each kind has its own limit of log lines."""

    PLAIN = "plain-bytes"
    """The peer does not use TLS."""
    CERTIFICATE = "certificate"
    """This side does not accept the peer's certificate."""
    ALERT = "alert"
    """The peer refused, and named its reason."""
    VERSION = "version"
    """No common version of TLS, or no common cipher suite."""
    RENEGOTIATION = "renegotiation"
    """The peer asked for a second handshake."""
    ENDED = "ended"
    """The peer closed the connection in the middle of the handshake."""
    LATE = "late"
    """The handshake took too long."""
    TOO_LONG = "too-long"
    """The peer sent too many bytes before the handshake was done."""
    PRINCIPAL = "principal"
    """No rule gives the peer's certificate a principal."""
    CONTEXT = "context"
    """This side cannot begin: the name of the host is impossible."""
    OTHER = "other"


class TlsError(Exception):
    """A TLS session failed; the text is for logs and for the callers of requests."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


class TlsListener(Struct, frozen=True):
    """TLS of one listener (Kafka: `SslFactory` of a server).

    Args:
        context: A context of `ssl.PROTOCOL_TLS_SERVER` with the certificate of the node.
        principal_of: Returns the principal for the DER bytes of a peer's certificate. Raises `ValueError` for a
            certificate without a principal; then the connection is refused. Without this function every peer is
            ANONYMOUS.
    """

    context: ssl.SSLContext
    principal_of: Callable[[bytes], Principal] | None = None


class Tls(Struct, frozen=True, kw_only=True):
    """TLS of a transport.

    Args:
        listeners: TLS by the name of the listener; any other listener is in the clear.
        outgoing: A context of `ssl.PROTOCOL_TLS_CLIENT` for connections to peers, by the kind of peers; None for
            connections in the clear. A kind that is not named has that of `PEERS`.
        handshake_timeout_ms: The milliseconds after which an unfinished handshake ends.
    """

    listeners: Mapping[str, TlsListener] = {}
    outgoing: Mapping[str, ssl.SSLContext | None] = {}
    handshake_timeout_ms: int = HANDSHAKE_TIMEOUT_MS


class TlsSession:
    """One end of a TLS connection. After each call, `take` returns the bytes to send.

    Args:
        context: The context of this side.
        host: For a client, the host that the client connects to: the server's certificate has to name the host.
            None makes the session a server's.

    Raises:
        TlsError: No certificate can name this host.
    """

    def __init__(self, context: ssl.SSLContext, host: str | None = None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._received = 0
        self.is_secured = False
        """Whether the handshake is done."""
        self.is_ended = False
        """Whether the peer has said that no more bytes follow."""
        try:
            self._object = context.wrap_bio(
                self._incoming, self._outgoing, server_side=host is None, server_hostname=host
            )
        except (ValueError, ssl.SSLError) as bad:
            raise TlsError(Fault.CONTEXT, f"no certificate can name the host {host!r}: {bad}") from bad
        self.take: Callable[[], bytes] = self._outgoing.read
        """The sealed bytes that are to be sent."""

    @property
    def version(self) -> str | None:
        """The version of TLS, as in `TLSv1.3`."""
        return self._object.version()

    @property
    def peer_certificate(self) -> bytes | None:
        """The verified certificate of the peer in DER form, if the peer sent one."""
        return self._object.getpeercert(binary_form=True)

    def receive(self, data: bytes) -> None:
        """Take sealed bytes of the peer.

        Raises:
            TlsError: The first byte is no record of a handshake, or the peer sends too many bytes.
        """
        if not self.is_secured:
            if not self._received and data[0] not in (_HANDSHAKE, _ALERT):
                raise TlsError(Fault.PLAIN, SPEAKS_PLAIN)
            self._received += len(data)
            if self._received > HANDSHAKE_BYTES:
                raise TlsError(Fault.TOO_LONG, f"more than {HANDSHAKE_BYTES} bytes came before the handshake")
        self._incoming.write(data)

    def advance(self) -> bool:
        """Do the next step of the handshake; returns whether the handshake is done. Raises `TlsError`."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as failed:
            raise _error_of(failed) from failed
        self.is_secured = True
        return True

    def read(self) -> tuple[bytes, TlsError | None]:
        """The plain bytes of what was received, and the failure after them, if any."""
        pieces: list[bytes] = []
        failure = None
        try:
            while piece := self._object.read(_RECORD_BYTES):
                pieces.append(piece)
                if not self._incoming.pending and not self._object.pending():
                    # One more look would find nothing, and to say so by an error takes as long as to open a record.
                    break
            else:
                self.is_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_ended = True
        except ssl.SSLError as failed:
            failure = _error_of(failed)
        if failure is None and not self.is_ended and self._outgoing.pending and self.version == _TLS_1_2:
            # Reading makes a TLS 1.2 session send one thing only: the alert that refuses another handshake.
            failure = TlsError(Fault.RENEGOTIATION, "the peer asked for a second handshake, which is refused")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces), failure

    def seal(self, data: bytes | memoryview) -> None:
        """Seal plain bytes for `take`. Raises `TlsError`."""
        left = data
        try:
            while left:
                sealed = self._object.write(left)
                if sealed == len(left):
                    break
                left = memoryview(left)[sealed:]
        except ssl.SSLError as failed:
            raise _error_of(failed) from failed

    def end(self) -> None:
        """Tell the peer that no more bytes follow, and do not wait for its answer."""
        with suppress(ssl.SSLError):  # the peer's own end is missing, as always
            self._object.unwrap()


_ALERTS: Final = {
    "UNKNOWN_CA": "no authority that the peer trusts has signed this side's certificate",
    "CERTIFICATE_UNKNOWN": "the peer does not accept this side's certificate",
    "BAD_CERTIFICATE": "the peer does not accept this side's certificate, or this side sent none",
    "CERTIFICATE_EXPIRED": "this side's certificate has expired",
    "CERTIFICATE_REVOKED": "this side's certificate is revoked",
    "UNSUPPORTED_CERTIFICATE": "this side's certificate is not made for this use",
    "CERTIFICATE_REQUIRED": "the peer requires a certificate, and this side sent none",
    "HANDSHAKE_FAILURE": "the peer and this side have no common settings, or the peer requires a certificate",
    "PROTOCOL_VERSION": "the peer supports no version of TLS that this side offers",
    "NO_RENEGOTIATION": "the peer refuses a second handshake",
}
_REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (Fault.CERTIFICATE, "the peer sent no certificate, and one is required"),
    "NO_SHARED_CIPHER": (Fault.VERSION, "the peer offers no cipher suite that this side allows"),
    "NO_SUITABLE_SIGNATURE_ALGORITHM": (Fault.VERSION, "the peer offers no signature that this side's key can make"),
    "UNSUPPORTED_PROTOCOL": (Fault.VERSION, "the peer supports no version of TLS that this side allows"),
    "WRONG_VERSION_NUMBER": (Fault.VERSION, "the peer supports no version of TLS that this side allows"),
    "UNEXPECTED_EOF_WHILE_READING": (Fault.ENDED, "the peer closed the connection within a record of TLS"),
}


def _error_of(failed: ssl.SSLError) -> TlsError:
    """The failure in words. The texts of OpenSSL have no bytes of the peer."""
    if isinstance(failed, ssl.SSLCertVerificationError):
        return TlsError(
            Fault.CERTIFICATE, f"the peer's certificate is not accepted: {failed.verify_message.rstrip('.')}"
        )
    reason = failed.reason or ""
    if (known := _REASONS.get(reason)) is not None:
        return TlsError(*known)
    _, is_alert, alert = reason.partition("_ALERT_")
    if is_alert:
        return TlsError(Fault.ALERT, _ALERTS.get(alert, f"the peer refused: {_words(alert)}"))
    return TlsError(Fault.OTHER, f"the bytes of the peer are no sound TLS: {_words(reason) or 'no reason is known'}")


def _words(reason: str) -> str:
    return reason.replace("_", " ").lower()
