"""The steps of the protocol that a node takes, in a file, for a check against `docs/protocol/Quorum.tla`.

The file is mapped into memory, so that a killed process loses nothing of it, and has a record for each turn. Most turns
append records, flush them, fetch or commit: of these there are some numbers only, of which
`kraft.quorum.recorded_turns` makes steps. Any other turn is there as JSON.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kraft.node.logging import NodeLog
from kraft.quorum.core import RaftCore
from kraft.quorum.effects import Effect, SendRequest
from kraft.quorum.events import Event, LogFlushed, LogStartRaised, Received, Replied, SnapshotTaken, Tick
from kraft.quorum.messages import Fetch
from kraft.quorum.recorded import ProtocolStep, RecordedCore
from kraft.quorum.recorded_turns import FETCHING, ORDINARY, OTHER, RECORD, SIZE, Raw, records_in
from kraft.quorum.states import FollowerState, LeaderState

MOST_BYTES: Final = 64 * 1024 * 1024
"""The bound on a file of steps: a node that is forgotten fills no disk."""
_pack, _now = RECORD.pack_into, time.monotonic_ns
_step = RaftCore.step
_LEADING: Final[frozenset[type]] = frozenset((Tick, LogFlushed, Replied, Received))
_FOLLOWING: Final[frozenset[type]] = frozenset((Tick, LogFlushed, Replied))
_NONE: Final[frozenset[type]] = frozenset()
"""The events of which a turn may be ordinary: a leader grants no vote, so that no request makes another step of it. In
other states there are messages to tell, too."""
_SILENT: Final = frozenset((LogFlushed, SnapshotTaken, LogStartRaised))
"""The events that are steps without an effect."""


class StepsFile:
    """The file of a node. After `most_bytes` nothing more is written."""

    def __init__(self, path: str, log: NodeLog, most_bytes: int) -> None:
        self._path = path
        self._log = log
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            # The space is taken at once, as nobody can tell a full disk to who writes to a map. Not so on macOS.
            if sys.platform == "darwin":
                os.truncate(file, most_bytes)
            else:
                os.posix_fallocate(file, 0, most_bytes)
            self.map = mmap.mmap(file, most_bytes)
        finally:
            os.close(file)
        with memoryview(self.map) as written:
            self.at = max((one.end for one in records_in(written)), default=0)
            """Where the next record begins; a full file has room for none."""
        self._end = most_bytes
        """The end of what is written, once the file is full."""

    def write(self, turn: list[ProtocolStep], flushed: int) -> None:
        """Append a turn, after which the log is flushed up to an offset."""
        text = msgspec.json.encode(turn)
        begin, end = self.at + SIZE, self.at + SIZE + len(text)
        if end > len(self.map):
            self.fill()
            return
        self.map[begin:end] = text
        RECORD.pack_into(self.map, self.at, time.monotonic_ns(), len(text), flushed, 0, OTHER)
        self.at = end

    def last_ordinary(self) -> Raw:
        """The last record, which is an ordinary one."""
        return Raw(self.at, *RECORD.unpack_from(self.map, self.at - SIZE))

    def fill(self) -> None:
        """Take nothing more."""
        if self.at < len(self.map):
            self._log.write("protocol-steps-full", {"file": self._path, "bytes": len(self.map)})
            self._end, self.at = self.at, len(self.map)

    def close(self) -> None:
        """Give back the space that is not used."""
        end = min(self.at, self._end)
        self.map.close()
        os.truncate(self._path, end)


class NodeCore(RecordedCore):
    """A recorded core of which an ordinary turn costs a commit next to nothing."""

    def __init__(self, *, file: StepsFile, **of_core: Any) -> None:
        """`of_core` are the arguments of a core."""
        self._file = file
        self._told_at = self._told_flushed = self._told_epoch = 0
        self._told_role = ""
        super().__init__(recorder=self._write, **of_core)

    def _write(self, turn: list[ProtocolStep]) -> None:
        self._file.write(turn, self.log.flushed_offset)

    def begin(self, now_ms: int) -> list[Effect]:
        """Enter the first state; call once, before any step."""
        effects = super().begin(now_ms)
        self.step = self._stepping()  # type: ignore[assignment, method-assign]  # a closure has all at hand
        return effects

    def _remember(self) -> tuple[object, frozenset[type], bool]:
        """The objects that an ordinary turn leaves, the events of such turns, and whether this is a follower."""
        quorum, log = self._quorum, self.log
        self._told_role, self._told_epoch, self._told_flushed = self._role(), self.epoch, log.flushed_offset
        self._told_at = self._file.at
        is_leading, is_following = type(quorum.state) is LeaderState, type(quorum.state) is FollowerState
        ordinary = _LEADING if is_leading else _FOLLOWING if is_following else _NONE
        return (quorum.state, quorum.history, log.epochs), ordinary, is_following

    def _stepping(self) -> Callable[[Event, int], list[Effect]]:
        """`step` as a closure: attributes would cost a follower one commit in a hundred."""
        file, quorum, log = self._file, self._quorum, self.log
        known, ordinary, is_following = self._remember()

        def step(event: Event, now_ms: int) -> list[Effect]:
            nonlocal known, ordinary, is_following
            effects, kind = _step(self, event, now_ms), type(event)
            if not effects and kind not in _SILENT:
                return effects
            if kind in ordinary and (quorum.state, quorum.history, log.epochs) == known:
                what = ORDINARY
                if is_following and effects:
                    last = effects[-1]
                    if type(last) is SendRequest and type(last.message) is Fetch:
                        what = FETCHING
                try:
                    _pack(file.map, file.at, _now(), log.end_offset, log.flushed_offset, log.high_watermark, what)
                    file.at += SIZE
                except struct.error:
                    file.fill()
            else:
                self._tell_other(event, effects)
                known, ordinary, is_following = self._remember()
            return effects

        return step

    def _tell_other(self, event: Event, effects: list[Effect]) -> None:
        flushed, file = self._told_flushed, self._file
        if file.at > self._told_at:
            told = file.last_ordinary()
            self._last = replace(self._last, end=told.log_end, high_watermark=told.high_watermark)
            flushed = told.flushed
        self._tell(event, effects, self._told_role, self._told_epoch, flushed)


@contextmanager
def protocol_steps(path: str, log: NodeLog, most_bytes: int = MOST_BYTES) -> Iterator[Callable[..., NodeCore]]:
    """The maker of a core that appends each turn to a file, with the time in ns of the machine's counter.

    A record is there before the effects of its turn, and a killed process loses none. All nodes of one machine have one
    counter, so the records of their files in the order of time are the steps of the quorum.
    """
    file = StepsFile(path, log, most_bytes)
    try:
        yield partial(NodeCore, file=file)
    finally:
        file.close()
