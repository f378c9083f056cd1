"""One bound of bytes that many addresses share, so that no address can take all of it."""

from __future__ import annotations


class Shares:
    """How many bytes each address holds, and who may have more (the dynamic threshold of shared-memory switches).

    An address may have more while it holds less than what is free. A single address gets half of the bound at most, and
    there is room for another one as long as the number of greedy addresses is small against the bound.
    """

    def __init__(self, limit: int, floor: int = 0) -> None:
        """`floor`: what an address may hold in any case while anything is free. Both are bytes."""
        self.limit = limit
        self.used = 0
        self._floor = floor
        self._held: dict[str, int] = {}

    def charge(self, address: str, change: int) -> None:
        """An address holds so many bytes more, or less."""
        self.used += change
        held = self._held.get(address, 0) + change
        if held:
            self._held[address] = held
        else:
            self._held.pop(address, None)

    def admits(self, address: str) -> bool:
        """Whether this address may hold more than it does."""
        free = self.limit - self.used
        held = self._held.get(address, 0)
        return held < free or (free > 0 and held < self._floor)
