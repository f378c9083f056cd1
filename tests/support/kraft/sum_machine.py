"""A state machine that adds, for tests of nodes."""

from __future__ import annotations

from msgspec import Struct

import kraft


class Add(Struct, frozen=True):
    amount: int


class Sum(kraft.StateMachine[Add, int]):
    def __init__(self) -> None:
        self.total = 0

    def apply(self, command: Add, at: kraft.Position) -> int:
        if command.amount < 0:
            raise kraft.CommandRefused("only more")
        self.total += command.amount
        return self.total

    def value(self) -> int:
        return self.total

    def snapshot(self) -> bytes:
        return b"%d" % self.total

    def restore(self, data: bytes) -> None:
        self.total = int(data)
