"""Frames of Kafka's wire protocol: an int32 length, then that many bytes (Kafka: `NetworkReceive`, `NetworkSend`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from metadata_log.serde.codec import UNCOUNTED_BYTES
from transport.protocol.limits import MAX_FRAME_BYTES

SPEAKS_TLS: Final = "the peer sends TLS on a connection in the clear: its port or its configuration is one for SSL"
_TLS_RECORDS: Final = frozenset(kind << 16 | 0x300 | minor for kind in (0x15, 0x16) for minor in range(5))
"""The first three bytes of an alert or a handshake in each version of TLS, read as the length of a frame."""

Allowed = Callable[[int, int], tuple[int, str]]
"""A function that limits a frame. Its arguments are the number of whole frames before this one, and the int16 that this
frame begins with. The result is the most bytes of the frame, and the reason for the error text.
"""


class FrameReader:
    """Splits a byte stream into frames: an int32 length, then that many bytes.

    No frame may exceed `max_frame_bytes`. For a frame of more than `UNCOUNTED_BYTES` the reader also calls `allowed`
    before it reads the frame.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES, allowed: Allowed | None = None) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._allowed = allowed
        self.small_bytes = min(max_frame_bytes, UNCOUNTED_BYTES)
        """The frame size up to which no limit is checked."""
        self.partial = bytearray()
        """The bytes of an incomplete frame."""
        self._needed = 4
        self.broken: str | None = None
        """Why the reader takes no further bytes: a length that is negative or above the limit."""

    def raise_limit(self, max_frame_bytes: int) -> None:
        """From now on the frames of this stream may be longer."""
        self._max_frame_bytes = max_frame_bytes
        self.small_bytes = min(max_frame_bytes, UNCOUNTED_BYTES)

    def end(self) -> None:
        """No frame follows: forget whoever limits them, who most likely has this reader."""
        self._allowed = None

    @property
    def missing(self) -> int:
        """How many bytes the incomplete frame (or length) still needs; a hint for the size of the next read."""
        return self._needed - len(self.partial)

    @property
    def held(self) -> int:
        """How many bytes of an incomplete frame are buffered."""
        return len(self.partial)

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes. The buffer never exceeds one frame, however the bytes are sliced."""
        is_whole = len(data) - 4 == int.from_bytes(data[:4], "big") <= self.small_bytes
        if is_whole and not self.partial and self.broken is None:
            return [data[4:]]  # the usual case
        if self.partial:
            # Not a list of parts: a part of one byte would take forty bytes.
            self.partial += data
            if len(self.partial) < self._needed:
                return []
            data = bytes(self.partial)
            self.partial = bytearray()
        frames: list[bytes] = []
        position, end = 0, len(data)
        self._needed = 4
        while end - position >= 4 and self.broken is None:
            size = int.from_bytes(data[position : position + 4], "big", signed=True)
            stop = position + 4 + size
            if not 0 <= size <= self.small_bytes:
                start = data[position + 4 : position + 6]
                if 0 <= size <= self._max_frame_bytes and len(start) < 2:
                    self._needed = 6
                    break
                self.broken = self._too_long(size, len(frames), int.from_bytes(start, "big", signed=True))
                if self.broken is not None:
                    break
            if stop > end:
                self._needed = 4 + size
                break
            frames.append(data[position + 4 : stop])
            position = stop
        if position < end and self.broken is None:
            self.partial += memoryview(data)[position:]
        return frames

    def _too_long(self, size: int, before: int, start: int) -> str | None:
        """Why a frame of this size is not read; None if it may be."""
        most, why = self._max_frame_bytes, ""
        if self._allowed is not None and 0 <= size <= most:
            allowed, why = self._allowed(before, start)
            most = min(most, allowed)
        if 0 <= size <= most:
            return None
        if size >> 8 in _TLS_RECORDS:
            return SPEAKS_TLS
        if (text := size.to_bytes(4, "big", signed=True)).isascii() and text.decode().isprintable():
            return f"the peer sends text that begins with {text.decode()!r}: it speaks another protocol, such as HTTP"
        return f"a frame of {size} bytes was announced; at most {most} are allowed{why}"


def with_length(content: bytes) -> bytes:
    """The frame with this content: the length, then the content."""
    return len(content).to_bytes(4, "big") + content
