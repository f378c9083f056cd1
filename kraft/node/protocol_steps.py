"""The steps of the protocol that a node takes, in a file, for a check against `docs/protocol/Quorum.tla`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from kraft.node.logging import NodeLog
from kraft.quorum.recorded import ProtocolStep, Recorder

MOST_BYTES: Final = 64 * 1024 * 1024
"""The bound on a file of steps: a node that is forgotten fills no disk."""


@contextmanager
def protocol_steps(path: str, log: NodeLog, most_bytes: int = MOST_BYTES) -> Iterator[Recorder]:
    """A recorder that appends each turn to a file, a line of JSON: the time in ns of the machine's counter, the steps.

    A line is written before the effects of its turn, and a killed process loses no line of them. All nodes of one
    machine have one counter, so the lines of their files in the order of time are the steps of the quorum. After
    `most_bytes` nothing more is written.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    room = most_bytes - os.fstat(file).st_size
    encoder = msgspec.json.Encoder()

    def record(turn: list[ProtocolStep]) -> None:
        nonlocal room
        if room <= 0:
            return
        line = encoder.encode((time.monotonic_ns(), turn)) + b"\n"
        room -= len(line)
        if room <= 0:
            log.write("protocol-steps-full", {"file": path, "bytes": most_bytes})
        else:
            os.write(file, line)

    try:
        yield record
    finally:
        os.close(file)
