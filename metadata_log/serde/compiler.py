"""Compiles (declaration, version) to straight-line Python that decodes or encodes (Kafka: the generated `*Data.java`).

The generated code favours speed over readability. Runs of fixed-width fields and the following length byte become one
`struct` call, nested structures are inlined, absent tagged fields cost nothing. The code does not explain failures: the
caller then uses `primitives`, which reads the same bytes again slowly and names the position.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from functools import cache
from typing import Final

from metadata_log.serde.bounded import BoundedReaderMaker
from metadata_log.serde.fields import Message, MessageType
from metadata_log.serde.reading import Malformed, ReaderMaker
from metadata_log.serde.writing import SteppedWriterMaker, WriterMaker

READ_FAILURES: Final = (Malformed, struct.error, IndexError, UnicodeDecodeError)
WRITE_FAILURES: Final = (
    Malformed,
    struct.error,
    AttributeError,
    TypeError,
    UnicodeEncodeError,
    ValueError,
    OverflowError,
)

ReadFunction = Callable[[bytes, int], MessageType]
ReadFromFunction = Callable[[bytes, int], tuple[MessageType, int]]
ReadInStepsFunction = Callable[[bytes, int, int], Generator[None, None, tuple[MessageType, int]]]
WriteFunction = Callable[[MessageType, bytes], bytes]
WriteInPiecesFunction = Callable[[MessageType], list[bytes]]
WriteInStepsFunction = Callable[[MessageType, int, int], Generator[None, None, list[bytes]]]


@cache
def reader(cls: type[MessageType], version: int, flexible: bool) -> ReadFunction[MessageType]:
    """The read function: (data, position) -> the message that fills the rest; raises one of `READ_FAILURES`."""
    made, value = _reading(cls, ReaderMaker(version, flexible))
    made.source.emit("if p != end: raise Malformed")
    made.source.emit(f"return {value}")
    return made.source.compile("read(data, p)", f"read {cls.__name__} version {version}")


@cache
def reader_from(cls: type[MessageType], version: int, flexible: bool) -> ReadFromFunction[MessageType]:
    """The same for a message with bytes after it: (data, position) -> (message, position after it)."""
    made, value = _reading(cls, ReaderMaker(version, flexible))
    made.source.emit(f"return {value}, p")
    return made.source.compile("read_from(data, p)", f"read {cls.__name__} version {version}, something behind it")


@cache
def bounded_reader(cls: type[MessageType], version: int, flexible: bool) -> ReadInStepsFunction[MessageType]:
    """The same in steps and within a budget: (data, position, budget) -> steps that end as `reader_from` does.

    The steps raise `OverBudget` before they read more than `budget` values.
    """
    maker = BoundedReaderMaker(version, flexible)
    maker.begin()
    made, value = _reading(cls, maker)
    made.source.emit(f"return {value}, p")
    return made.source.compile("read_in_steps(data, p, left)", f"read {cls.__name__} version {version} in steps")


def _reading(cls: type[Message], made: ReaderMaker) -> tuple[ReaderMaker, str]:
    """The code that reads a message from position `p` on, and the name of the variable with the result."""
    made.source.emit("end = len(data)")
    value = made.structure(cls)
    made.flush()
    return made, value


@cache
def writer(cls: type[MessageType], version: int, flexible: bool) -> WriteFunction[MessageType]:
    """The write function: (message, head) -> head and the encoded message; raises one of `WRITE_FAILURES`."""
    made = WriterMaker(version, flexible)
    made.source.emit("w = [head]; a = w.append")
    made.structure(cls, "m")
    made.flush()
    made.source.emit("return join(w)")
    return made.source.compile("write(m, head)", f"write {cls.__name__} version {version}")


@cache
def piece_writer(cls: type[MessageType], version: int, flexible: bool) -> WriteInPiecesFunction[MessageType]:
    """The same without the copy at the end: (message) -> the consecutive pieces. Bytes of the message are pieces."""
    made = WriterMaker(version, flexible)
    made.source.emit("w = []; a = w.append")
    made.structure(cls, "m")
    made.flush()
    made.source.emit("return w")
    return made.source.compile("write_in_pieces(m)", f"write {cls.__name__} version {version} in pieces")


@cache
def stepped_writer(cls: type[MessageType], version: int, flexible: bool) -> WriteInStepsFunction[MessageType]:
    """The same in steps: (message, elements of the first step, of each other step) -> steps that end with pieces."""
    made = SteppedWriterMaker(version, flexible)
    made.begin()
    made.structure(cls, "m")
    made.end()
    return made.source.compile(
        "write_in_steps(m, first, following)", f"write {cls.__name__} version {version} in steps"
    )
