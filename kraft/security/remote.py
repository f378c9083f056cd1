"""Values that a thread reads from a file or a URL, and reads again before they are out of date.

Kafka: `RefreshingHttpsJwks`, `ExpiringCredentialRefreshingLogin`. The loop that owns the connections never waits for a
read.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from http.client import HTTPResponse

T = TypeVar("T")

log = logging.getLogger("kraft.security")

MOST_BYTES: Final = 1 << 20
"""The most bytes that are read of a file or an answer."""
TIMEOUT_S: Final = 10.0
ASKED_EVERY_S: Final = 60.0
"""The least time between two reads that `Remote.ask` causes."""


class RemoteError(Exception):
    """A read failed. The text names no secret."""


class Remote(Generic[T]):
    """A value, and the thread that keeps it up to date.

    Args:
        what: The value and its place, for log lines.
        read: Reads the value; returns it with the seconds until the next read. Raises `RemoteError`.
        backoff_ms: The pause after a first failure, in milliseconds; doubled with each further one.
        backoff_max_ms: The longest such pause.
    """

    def __init__(
        self, what: str, read: Callable[[], tuple[T, float]], *, backoff_ms: int = 100, backoff_max_ms: int = 10_000
    ) -> None:
        self.value: T | None = None
        """The value of the last read that succeeded."""
        self.error: str | None = None
        """Why the last read failed; None if it succeeded."""
        self._what = what
        self._read = read
        self._backoff_s = (backoff_ms / 1000, max(backoff_ms, backoff_max_ms) / 1000)
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._reads = 0
        self._failures = 0
        self._is_ended = False
        self._is_asked = False
        self._asked_at = -ASKED_EVERY_S

    def begin(self) -> None:
        """Start the thread, which ends with the process or by `end`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"kraft: {self._what}", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Block until the first read is over; not for the loop that owns the connections."""
        with self._changed:
            self._changed.wait_for(lambda: self._reads or self._is_ended, 2 * TIMEOUT_S)

    def ask(self) -> None:
        """Read soon, because the value lacks something; at most once a minute."""
        now = time.monotonic()
        if now - self._asked_at >= ASKED_EVERY_S:
            self._asked_at = now
            with self._changed:
                self._is_asked = True
                self._changed.notify_all()

    def end(self) -> None:
        """Stop reading. A read in progress ends by itself."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    def read_once(self) -> float:
        """Read now; returns the seconds until the next read."""
        try:
            value, pause_s = self._read()
        except RemoteError as bad:
            first, longest = self._backoff_s
            if str(bad) != self.error:
                kept = "the last one stays in use" if self.value is not None else "there is none yet"
                log.warning("%s cannot be read, and %s: %s", self._what, kept, bad)
            self.error = str(bad)
            self._failures = min(self._failures + 1, 20)
            return min(first * (1 << self._failures - 1), longest)
        if self.error is not None:
            log.info("%s can be read again", self._what)
        self.value, self.error, self._failures = value, None, 0
        return pause_s

    def _run(self) -> None:
        while not self._is_ended:
            pause_s = self.read_once()
            with self._changed:
                self._reads += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_ended or self._is_asked, min(pause_s, threading.TIMEOUT_MAX))
                self._is_asked = False


def read_url(
    url: str,
    context: Callable[[], ssl.SSLContext],
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """The content of a file or of a URL, in a thread that may block; a POST request if there is a body.

    No redirection is followed. `RemoteError` if the read fails, the answer is none of 200, or has more than a megabyte.
    """
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            with Path(unquote(parts.path)).open("rb") as file:
                return _bounded(file.read(MOST_BYTES + 1))
        host = parts.hostname or ""
        connection = (
            HTTPSConnection(host, parts.port, timeout=TIMEOUT_S, context=context())
            if parts.scheme == "https"
            else HTTPConnection(host, parts.port, timeout=TIMEOUT_S)
        )
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            method = "GET" if body is None else "POST"
            connection.request(method, path, body, {"Accept": "application/json", **(headers or {})})
            return _answer(connection.getresponse())
        finally:
            connection.close()
    except ssl.SSLCertVerificationError as bad:
        raise RemoteError(f"the certificate of {parts.hostname} is not accepted: {bad.verify_message}") from None
    except (OSError, HTTPException) as bad:
        raise RemoteError(getattr(bad, "strerror", None) or str(bad) or type(bad).__name__) from None


def _answer(response: HTTPResponse) -> bytes:
    from http.client import responses

    if response.status != 200:
        # The body may repeat what was sent.
        raise RemoteError(f"the answer is {response.status} {responses.get(response.status, '')}".strip())
    body, deadline = b"", time.monotonic() + TIMEOUT_S
    while len(body) <= MOST_BYTES and (piece := response.read1(65_536)):
        body += piece
        if time.monotonic() > deadline:
            raise RemoteError(f"the answer takes longer than {TIMEOUT_S:.0f} s")
    return _bounded(body)


def _bounded(content: bytes) -> bytes:
    if len(content) > MOST_BYTES:
        raise RemoteError(f"there are more than {MOST_BYTES} bytes")
    return content
