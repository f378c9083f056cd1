"""Compiles the function that decodes a peer's message in steps, within a budget of values.

A *value* is a field of a structure, an element of an array or a tagged field. By their costs, eight numbers of an array
count as one value, and an unknown tag as four. The reader charges the values of an array to its budget before it reads
the first of them, so that a message over the budget costs neither memory nor time. See
`docs/decisions/0026-limits-of-frames.md`.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from metadata_log.serde.fields import FieldType, Kind, Message, fields_at
from metadata_log.serde.reading import OverBudget, ReaderMaker

STEP_VALUES: Final = 8192
"""The values between two pauses of a reader."""
_STEP_ELEMENTS: Final = 1024
"""The elements between two pauses within one long array; a power of two."""
_MOST_NUMBERS: Final = 1 << 19
"""The most elements of an array of numbers, which the reader reads in one step."""
_TAG_VALUES: Final = 4
_UUID_VALUES: Final = 2


@cache
def values_in(cls: type[Message], version: int) -> int:
    """How many values one structure counts: itself and its fields, and those of the structures directly inside."""
    inside = [field.type for field in fields_at(cls, version).plain]
    return 1 + sum(values_in(kind, version) if isinstance(kind, type) else 1 for kind in inside)


class BoundedReaderMaker(ReaderMaker):
    """Compiles a generator function: (data, position, budget) -> steps that end with (message, position after it)."""

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self.source.names["OverBudget"] = OverBudget

    def begin(self) -> None:
        """Emit the code before the first field. The unused `yield` makes each function a generator."""
        self.source.emit(f"step = {STEP_VALUES}")
        self.source.emit("if left < 0: yield")

    def leaf(self, kind: Kind, taken: str) -> str:
        """Decode invalid UTF-8 as Kafka does, without a second check."""
        return f"{taken}.decode('utf-8', 'replace')" if kind is Kind.STRING else taken

    def charge_elements(self, element: FieldType, count: str) -> None:
        """Charge structures by their fields."""
        values = values_in(element, self.version) if isinstance(element, type) else 1
        self._charge(f"{count} - 1" if values == 1 else f"({count} - 1) * {values}")
        self._step(count, values)

    def charge_numbers(self, kind: Kind, count: str) -> None:
        """Charge one value for eight numbers, and two values for an id, which may be a new object."""
        self.source.emit(f"if {count} > {_MOST_NUMBERS}: raise OverBudget")
        self._charge(f"{count} * {_UUID_VALUES}" if kind is Kind.UUID else f"({count} >> 3) + 1")

    def charge_tags(self, count: str) -> None:
        """Charge a tag as a tuple and a bytes object."""
        self._charge(f"{count} * {_TAG_VALUES}")
        self._step(count, _TAG_VALUES)

    def _charge(self, values: str) -> None:
        self.source.emit(f"left -= {values}")
        self.source.emit("if left < 0: raise OverBudget")

    def _step(self, count: str, values: int) -> None:
        """Pause after enough values; a long array pauses by itself."""
        self.source.emit(f"step -= {count} * {values} if {count} < {_STEP_ELEMENTS} else {_STEP_ELEMENTS * values}")
        self.source.emit(f"if step < 0: step = {STEP_VALUES}; yield")

    def pause(self, count: str) -> None:
        """Pause within a long array."""
        self.source.emit(f"if not {count} & {_STEP_ELEMENTS - 1}: yield")

    def several(self, count: str) -> str:
        """A reader does not pause within rows, so this limits their number."""
        return f"{super().several(count)} and {count} <= {_STEP_ELEMENTS}"
