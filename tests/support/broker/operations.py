"""Operations of tests on a coordinator, which no client asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from kraft.access.errors import ApiError
from kraft.coordinators.runtime.shard import Context, CoordinatorResult


class Doing(Struct):
    """An operation that a function decides; its results, or its errors, come in order."""

    decided: Callable[[Any, Context], CoordinatorResult]
    results: list[Any] = []
    request = None

    def decide(self, shard: Any, context: Context) -> CoordinatorResult:
        """Decide."""
        return self.decided(shard, context)

    def tell(self, result: Any) -> None:
        """Note the result."""
        self.results.append(result)

    def refuse(self, refused: ApiError) -> None:
        """Note the error."""
        self.results.append(refused.error)
