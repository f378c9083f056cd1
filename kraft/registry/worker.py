"""The process that reads and compares schemas of strangers: one question after the other, each with its own time.

It is made to be ended: by the kernel when a question takes more CPU time than it may, or by the registry, whose
`kraft.registry.checking` starts the next one.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kraft.registry.schemas import CannotCheck, InvalidSchema, Source, warm

MEMORY_BYTES: Final = 512 << 20
"""The address space of a process, its libraries included."""
QUESTION: Final = struct.Struct(">dI")
"""Before a question: the CPU seconds that it may take, and its bytes."""
ANSWER: Final = struct.Struct(">I")
RESULT: Final = "result"
INVALID: Final = "invalid"
UNKNOWN: Final = "unknown"
MEMORY: Final = "memory"
FAILED: Final = "failed"


def main() -> None:
    """Answer what is asked at stdin until its end; the first argument is how much the process steps back (nice)."""
    os.nice(int(sys.argv[1]))
    _limit_memory()
    questions = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    while head := questions.read(QUESTION.size):
        seconds, size = QUESTION.unpack(head)
        function, arguments = pickle.loads(questions.read(size))  # the registry wrote it
        for one in arguments:
            if isinstance(one, Source):
                warm(one.type)
        signal.setitimer(signal.ITIMER_PROF, seconds)  # SIGPROF ends the process, also within a library's C code
        answer = _answered(function, arguments)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(ANSWER.pack(len(answer)) + answer)
        answers.flush()


def _answered(function: Callable[..., object], arguments: tuple[Any, ...]) -> bytes:
    kind: str
    value: object
    try:
        kind, value = RESULT, function(*arguments)
    except InvalidSchema as bad:
        kind, value = INVALID, _printable(bad)
    except CannotCheck as bad:
        kind, value = UNKNOWN, _printable(bad)
    except MemoryError:
        kind, value = MEMORY, None
    except Exception:
        kind, value = FAILED, _printable(traceback.format_exc())
    try:
        return msgspec.msgpack.encode((kind, value))
    except UnicodeEncodeError as bad:
        return msgspec.msgpack.encode((INVALID, _printable(bad)))


def _printable(what: object) -> str:
    """A message without halves of characters, which UTF-8 cannot carry."""
    return str(what).encode("utf-8", "replace").decode()


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    except (ImportError, OSError, ValueError):
        pass  # macOS bounds no address space; time does there
