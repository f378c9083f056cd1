"""Questions about schemas of strangers, answered by processes that can be ended.

There is a process for small questions, one for larger ones, one for the largest, so that no question waits for a
larger kind. In each the smallest question that waits comes next. A process starts with the first question, stays, and
ends when a question takes more time or memory than it may.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Any, Final, NamedTuple, NoReturn

import msgspec
import trio

from kraft.registry import worker
from kraft.registry.requests import Run
from kraft.registry.schemas import CannotCheck, InvalidSchema, TooCostly


class Kind(NamedTuple):
    """Questions of one process: up to so many bytes, and the CPU time that each may take."""

    most_bytes: float
    seconds: float


KINDS: Final = (Kind(1 << 12, 0.5), Kind(1 << 16, 1.0), Kind(inf, 5.0))
"""The bytes are those of the schema, of what it imports, and of the versions that it is compared with."""
NICE: Final = 5
"""How much the process of each kind steps back behind the one before, and behind the registry."""
WALL_SECONDS: Final = 30.0
"""How long a question may last by the clock, with the start of its process, on a machine that is busy."""
_READ_BYTES: Final = 1 << 16
_SPAWN: Final = "import sys; sys.path[:] = sys.argv[2:]; from kraft.registry.worker import main; main()"


class Checkers:
    """The processes of one registry."""

    def __init__(self) -> None:
        self._processes = [(kind.most_bytes, _Process(kind.seconds, NICE * at)) for at, kind in enumerate(KINDS)]

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Wait until cancelled, and end the processes."""
        try:
            task_status.started()
            await trio.sleep_forever()
        finally:
            for _, process in self._processes:
                await process.end()

    async def result(self, run: Run) -> Any:
        """The result of a call.

        Raises:
            InvalidSchema: As the function raises it.
            CannotCheck: As the function raises it.
            TooCostly: The call took more time or memory than it may.
        """
        question = pickle.dumps((run.function, run.arguments), protocol=pickle.HIGHEST_PROTOCOL)
        process = next(one for most_bytes, one in self._processes if len(question) <= most_bytes)
        return await process.result(question)


class _Process:
    """A process, which starts when it is needed."""

    def __init__(self, seconds: float, nice: int) -> None:
        self._seconds = seconds
        self._nice = nice
        self._turns = _Turns()
        self._process: trio.Process | None = None

    async def result(self, question: bytes) -> Any:
        async with self._turns.taken(len(question)):
            try:
                with trio.fail_after(WALL_SECONDS):
                    kind, value = await self._asked(question)
            except trio.TooSlowError:
                await self.end()
                raise TooCostly(f"it takes more than {WALL_SECONDS:g} s") from None
            except trio.BrokenResourceError:
                await self._ended()
            except BaseException:  # nobody waits for the answer, which must not be taken for that of the next question
                await self.end()
                raise
            match kind:
                case worker.RESULT:
                    return value
                case worker.INVALID:
                    raise InvalidSchema(value)
                case worker.UNKNOWN:
                    raise CannotCheck(value)
                case worker.MEMORY:
                    await self.end()
                    raise TooCostly(f"it takes more than {worker.MEMORY_BYTES >> 20} MiB of memory")
                case _:
                    raise RuntimeError(f"a schema could not be read or compared:\n{value}")

    async def _asked(self, question: bytes) -> tuple[str, Any]:
        if self._process is None:
            # A session of its own: Ctrl-C at a terminal is for the registry, which ends this process.
            self._process = await trio.lowlevel.open_process(
                [sys.executable, "-c", _SPAWN, str(self._nice), *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        to, answers = self._process.stdin, self._process.stdout
        assert to is not None
        assert answers is not None
        await to.send_all(worker.QUESTION.pack(self._seconds, len(question)) + question)
        data = bytearray()
        wanted = worker.ANSWER.size
        while len(data) < wanted:
            if not (part := await answers.receive_some(_READ_BYTES)):
                raise trio.BrokenResourceError
            data += part
            if wanted == worker.ANSWER.size and len(data) >= wanted:
                wanted += worker.ANSWER.unpack_from(data)[0]
        answer: tuple[str, Any] = msgspec.msgpack.decode(data[worker.ANSWER.size :], type=tuple[str, Any])
        return answer

    async def _ended(self) -> NoReturn:
        """Say why the process ended by itself."""
        assert self._process is not None
        process = self._process
        status = await process.wait()
        await self.end()
        if status == -signal.SIGPROF:
            raise TooCostly(f"it takes more than {self._seconds:g} s of CPU time")
        if status < 0:
            raise TooCostly(f"the process that read it was ended by {signal.Signals(-status).name}")
        raise RuntimeError(f"the process that reads schemas ended with status {status}")

    async def end(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is None:
            return
        with trio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    await pipe.aclose()


class _Turns:
    """The askers of now and those that wait; the smallest is next."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: list[tuple[int, int, trio.Event]] = []
        self._numbers = count()

    @asynccontextmanager
    async def taken(self, size: int) -> AsyncIterator[None]:
        if self._is_taken:
            mine = size, next(self._numbers), trio.Event()
            heappush(self._waiting, mine)
            try:
                await mine[2].wait()
            except trio.Cancelled:
                if mine in self._waiting:
                    self._waiting.remove(mine)
                    heapify(self._waiting)
                else:
                    self._pass_on()
                raise
        self._is_taken = True
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        if self._waiting:
            heappop(self._waiting)[2].set()
        else:
            self._is_taken = False
