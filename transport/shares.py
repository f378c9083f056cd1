"""One bound of bytes that many addresses share, so that no address can use all of it."""

from __future__ import annotations


class Shares:
    """The bytes of each address, and which addresses may have more (the dynamic threshold of shared-memory switches).

    An address may have more while its bytes are fewer than the free bytes. A single address gets at most half of the
    bound. Another address finds room as long as the bound is large against the number of greedy addresses.
    """

    def __init__(self, limit: int, floor: int = 0) -> None:
        """`limit` is the bound. `floor` is what an address may hold while any byte is free. Both are bytes."""
        self.limit = limit
        self.used = 0
        self._floor = floor
        self._held: dict[str, int] = {}

    def charge(self, address: str, change: int) -> None:
        """Add `change` bytes, which may be negative, to an address."""
        self.used += change
        held = self._held.get(address, 0) + change
        if held:
            self._held[address] = held
        else:
            self._held.pop(address, None)

    def admits(self, address: str) -> bool:
        """Whether this address may hold more bytes."""
        free = self.limit - self.used
        held = self._held.get(address, 0)
        return held < free or (free > 0 and held < self._floor)

    def admits_one(self, address: str) -> bool:
        """Whether this address may have one more thing of any size: as `admits`, or if the address holds nothing.

        A thing that was larger than expected may have used more than the bound. Those that hold nothing get on then.
        """
        return not self._held.get(address, 0) or self.admits(address)
