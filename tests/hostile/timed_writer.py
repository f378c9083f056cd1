"""A legitimate client: one change at a time on one connection, each timed; which were acknowledged."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from support.hostile.frames import request_frame
from support.wire import CLIENT_METRICS, active_controller
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.frames import FrameReader
from transport.protocol.headers import decode_response
from transport.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

ANSWER_SECONDS: Final = 5
PAUSE_SECONDS: Final = 0.004
NAME: Final = "legitimate"


class Writer:
    """Writes numbers until the block ends; a change without an answer is written again as the next number."""

    def __init__(self, ports: Mapping[int, int]) -> None:
        self._ports = ports
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._connection: socket.socket | None = None
        self._next = 1000
        self.acknowledged = 0
        """The last number that was acknowledged."""
        self.times: list[tuple[float, float]] = []
        """When each acknowledged change was begun, on the monotonic clock, and how long it took, in seconds."""
        self.refused = 0
        """Changes without an acknowledgement: a lost connection, a late answer, another leader."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join(ANSWER_SECONDS * 4)
        assert not self._thread.is_alive(), "the writer did not come back"
        if self._connection is not None:
            self._connection.close()

    def since(self, moment: float) -> list[float]:
        """How long each change took that was begun after a moment; in seconds, shortest first."""
        return sorted(took for began, took in self.times if began >= moment)

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stopped.is_set():
            try:
                self._write(str(self._next))
            except OSError:
                self.refused += 1
                self._disconnect()
                self._stopped.wait(PAUSE_SECONDS)
                continue
            now = time.monotonic()
            self.times.append((began, now - began))
            self._stopped.wait(PAUSE_SECONDS)
            began = time.monotonic()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> socket.socket:
        if self._connection is None:
            leaders = (active_controller(port) for port in self._ports.values())
            leader = next((one for one in leaders if one in self._ports), None)
            if leader is None:
                raise ConnectionError("no node knows a leader")
            self._connection = socket.create_connection(("127.0.0.1", self._ports[leader]), ANSWER_SECONDS)
        return self._connection

    def _write(self, value: str) -> None:
        """One change; raises `OSError` if it is not acknowledged."""
        connection = self._connect()
        config = AlterableConfig(name="interval.ms", value=value)
        resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=NAME, configs=[config])
        connection.sendall(request_frame(IncrementalAlterConfigsRequest(resources=[resource]), 1))
        reader = FrameReader()
        frames: list[bytes] = []
        while not frames:
            data = connection.recv(1 << 16)
            if not data:
                raise ConnectionError("the node closed the connection")
            frames = reader.feed(data)
        _, answer = decode_response(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, frames[0])
        assert isinstance(answer, IncrementalAlterConfigsResponse)
        if answer.responses[0].error_code != Error.NONE:
            raise ConnectionError(Error.of(answer.responses[0].error_code).name)
        self.acknowledged = int(value)
        self._next += 1
