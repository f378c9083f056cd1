"""Writes the function that reads what a stranger sent: in steps, and not more than a budget of values.

A *value* is a field of a structure, an element of an array or a tagged field; eight numbers of an array count as one,
and an unknown tag as four, by what they cost.
The reader takes the values of an array from its budget before it reads the first of them, so that memory and time are
refused before they are spent. See `docs/decisions/0026-limits-of-frames.md`.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from metadata_log.serde.fields import FieldType, Kind, Message, fields_at
from metadata_log.serde.reading import OverBudget, ReaderMaker

STEP_VALUES: Final = 8192
"""A reader pauses when it has begun to read this many values since its last pause."""
_STEP_ELEMENTS: Final = 1024
"""Within one long array a reader pauses after this many elements; a power of two."""
_MOST_NUMBERS: Final = 1 << 19
"""No array of numbers is longer: the reader takes such an array in one step."""
_TAG_VALUES: Final = 4
_UUID_VALUES: Final = 2


@cache
def values_in(cls: type[Message], version: int) -> int:
    """How many values one structure counts for: itself and its fields, and those of the structures directly in it."""
    inside = [field.type for field in fields_at(cls, version).plain]
    return 1 + sum(values_in(kind, version) if isinstance(kind, type) else 1 for kind in inside)


class BoundedReaderMaker(ReaderMaker):
    """Makes a generator function: (data, position, budget) -> steps that end with (message, position behind it)."""

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self.source.names["OverBudget"] = OverBudget

    def begin(self) -> None:
        """Emit what comes before the first field. The unused `yield` makes a generator of each function."""
        self.source.emit(f"step = {STEP_VALUES}")
        self.source.emit("if left < 0: yield")

    def leaf(self, kind: Kind, taken: str) -> str:
        """Text that is not UTF-8 is read as Kafka reads it, without a second look."""
        return f"{taken}.decode('utf-8', 'replace')" if kind is Kind.STRING else taken

    def charge_elements(self, element: FieldType, count: str) -> None:
        """Structures count by their fields."""
        values = values_in(element, self.version) if isinstance(element, type) else 1
        self._charge(f"{count} - 1" if values == 1 else f"({count} - 1) * {values}")
        self._step(count, values)

    def charge_numbers(self, kind: Kind, count: str) -> None:
        """Eight numbers count as one value; one id counts as two, as it may be a new object."""
        self.source.emit(f"if {count} > {_MOST_NUMBERS}: raise OverBudget")
        self._charge(f"{count} * {_UUID_VALUES}" if kind is Kind.UUID else f"({count} >> 3) + 1")

    def charge_tags(self, count: str) -> None:
        """A tag is a tuple and a piece of bytes."""
        self._charge(f"{count} * {_TAG_VALUES}")
        self._step(count, _TAG_VALUES)

    def _charge(self, values: str) -> None:
        self.source.emit(f"left -= {values}")
        self.source.emit("if left < 0: raise OverBudget")

    def _step(self, count: str, values: int) -> None:
        """Pause if enough has been read; a long array pauses within itself."""
        self.source.emit(f"step -= {count} * {values} if {count} < {_STEP_ELEMENTS} else {_STEP_ELEMENTS * values}")
        self.source.emit(f"if step < 0: step = {STEP_VALUES}; yield")

    def pause(self, count: str) -> None:
        """After every so many elements."""
        self.source.emit(f"if not {count} & {_STEP_ELEMENTS - 1}: yield")

    def several(self, count: str) -> str:
        """A reader does not pause within rows, so there may not be too many."""
        return f"{super().several(count)} and {count} <= {_STEP_ELEMENTS}"
