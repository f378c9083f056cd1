"""Unary gRPC calls over clear HTTP/2, one call at a time on one connection: as much of both as a load generator needs.

The first call of a connection adds its headers to the peer's table (RFC 7541), so that each later call has six bytes of
headers, as those of a gRPC library. A unary call that fails has no message in its response (gRPC over HTTP/2:
"Trailers-Only"), so a message means success, and the client decodes no headers.
"""

from __future__ import annotations

from typing import Final

from load import Address, Refused, connect

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM: Final = 1
ACK: Final = 1
END_HEADERS: Final = 4
FRAME_HEADER_BYTES: Final = 9
WINDOW_BYTES: Final = 65_535
"""What a peer accepts on a new connection before its first WINDOW_UPDATE."""
LARGEST_WINDOW_BYTES: Final = 2**31 - 1
READ_BYTES: Final = 1 << 16
POST_AND_HTTP: Final = b"\x83\x86"
"""`:method: POST` and `:scheme: http`, both of HPACK's static table."""
LATER_HEADERS: Final = POST_AND_HTTP + b"\xc1\xc0\xbf\xbe"
"""The same, then the four headers that the first call has added to the table."""
MESSAGE_PREFIX_BYTES: Final = 5


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def grpc_message(content: bytes) -> bytes:
    """An uncompressed message with its prefix."""
    return b"\0" + len(content).to_bytes(4, "big") + content


def first_headers(path: str, authority: str) -> bytes:
    """The header block of the first call, which the peer adds to its table."""

    def literal(index: int, text: str) -> bytes:
        return bytes((index, len(text))) + text.encode()

    return (
        POST_AND_HTTP
        + literal(0x44, path)
        + literal(0x41, authority)
        + literal(0x5F, "application/grpc")
        + b"\x40"
        + literal(2, "te")[1:]
        + literal(0, "trailers")[1:]
    )


class GrpcConnection:
    """A connection for calls of one method."""

    def __init__(self, address: Address, path: str) -> None:
        self.connection = connect(address)
        update = frame(WINDOW_UPDATE, 0, 0, (LARGEST_WINDOW_BYTES - WINDOW_BYTES).to_bytes(4, "big"))
        self.connection.sendall(PREFACE + frame(SETTINGS, 0, 0) + update)
        self._headers = first_headers(path, f"{address[0]}:{address[1]}")
        self._stream = -1
        self._credit = WINDOW_BYTES
        self._unread = b""
        self._message = b""

    def call(self, content: bytes) -> bytes:
        """Send a request and wait for its response; raises `Refused` if the call fails."""
        self.send(grpc_message(content))
        while (response := self.receive()) is None:
            pass
        return response

    def send(self, message: bytes) -> None:
        """Send a request that `grpc_message` has framed; raises `Refused` if the peer has no window for the request."""
        self._stream += 2
        self._credit -= len(message)
        if self._credit < 0:
            raise Refused("the peer gives no window for a request")
        self._message = b""
        headers = frame(HEADERS, END_HEADERS, self._stream, self._headers)
        self._headers = LATER_HEADERS
        self.connection.send(headers + frame(DATA, END_STREAM, self._stream, message))

    def receive(self) -> bytes | None:
        """Read what has arrived; returns the response without its prefix, once complete.

        Raises `Refused` if the call fails, or if the peer closes the connection.
        """
        more = self.connection.recv(READ_BYTES)
        if not more:
            raise Refused("the peer closed the connection instead of an answer")
        data = self._unread + more
        at = 0
        is_complete = False
        while (start := at + FRAME_HEADER_BYTES) <= len(data):
            end = start + int.from_bytes(data[at : at + 3], "big")
            if end > len(data):
                break
            kind, flags = data[at + 3], data[at + 4]
            if kind == DATA:
                self._message += data[start:end]
            elif kind != HEADERS:
                self._control(kind, flags, int.from_bytes(data[at + 5 : start], "big"), data[start:end])
            is_complete = is_complete or (kind in (DATA, HEADERS) and bool(flags & END_STREAM))
            at = end
        self._unread = data[at:]
        if not is_complete:
            return None
        if not self._message:
            raise Refused("the call failed")
        return self._message[MESSAGE_PREFIX_BYTES:]

    def _control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """Answer or note a frame that is no part of a response; the client ignores frames of unknown kinds."""
        if kind == WINDOW_UPDATE:
            self._credit += 0 if stream else int.from_bytes(payload, "big")
        elif kind in (SETTINGS, PING):
            if not flags & ACK:
                self.connection.send(frame(kind, ACK, 0, payload if kind == PING else b""))
        elif kind in (RST_STREAM, GOAWAY):
            raise Refused(f"the peer ended the call with a frame of kind {kind}: {payload!r}")
