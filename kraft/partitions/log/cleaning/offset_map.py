"""The last offset of each key in the dirty part of a log, in bounded memory (Kafka: `SkimpyOffsetMap`).

An entry has 24 bytes: the MD5 of the key, and the offset. Keys with equal hashes count as one key, as in Kafka.
"""

from __future__ import annotations

from hashlib import md5
from typing import Final

HASH_BYTES: Final = 16
ENTRY_BYTES: Final = HASH_BYTES + 8
_WINDOW_BYTES: Final = 4
_WINDOWS: Final = HASH_BYTES - _WINDOW_BYTES
NOT_FOUND: Final = -1


class OffsetMap:
    """A hash table with open addressing in one array.

    Args:
        memory_bytes: The size limit of the table, `log.cleaner.dedupe.buffer.size`.
        load_factor: How full the table may become, `log.cleaner.io.buffer.load.factor`.
        most_keys: A bound of the number of keys: a short dirty part needs no large table.
    """

    def __init__(self, memory_bytes: int, load_factor: float, most_keys: int) -> None:
        slots = memory_bytes // ENTRY_BYTES
        self.most_entries = int(slots * load_factor)
        """How many keys the map takes. A cleaning goes as far as that many keys reach."""
        self.latest_offset = NOT_FOUND
        """The map knows every key up to this offset."""
        self.entries = 0
        self._slots = max(1, min(slots, int(most_keys / load_factor) + 1))
        self._table = bytearray(self._slots * ENTRY_BYTES)

    @property
    def is_full(self) -> bool:
        """Whether no further record may be added."""
        return self.entries >= self.most_entries

    @property
    def size_bytes(self) -> int:
        """The memory of the table."""
        return len(self._table)

    def put(self, key: bytes, offset: int) -> None:
        """Note the offset of a record; offsets grow. The caller checks `is_full` before."""
        digest = md5(key, usedforsecurity=False).digest()
        at, is_known = self._find(digest)
        if not is_known:
            self._table[at : at + HASH_BYTES] = digest
            self.entries += 1
        # An empty slot has zeros here.
        self._table[at + HASH_BYTES : at + ENTRY_BYTES] = (offset + 1).to_bytes(8, "big")
        self.latest_offset = offset

    def get(self, key: bytes) -> int:
        """The last offset of a key; `NOT_FOUND` for a key that is not in the map."""
        at, is_known = self._find(md5(key, usedforsecurity=False).digest())
        return int.from_bytes(self._table[at + HASH_BYTES : at + ENTRY_BYTES], "big") - 1 if is_known else NOT_FOUND

    def _find(self, digest: bytes) -> tuple[int, bool]:
        """The place of a hash, and whether the hash is there: windows of the hash itself, then one slot after the
        other (`SkimpyOffsetMap.positionOf`).
        """
        table, slots = self._table, self._slots
        for attempt in range(_WINDOWS + slots):
            window = min(attempt, _WINDOWS)
            probe = int.from_bytes(digest[window : window + _WINDOW_BYTES], "big") + max(0, attempt - _WINDOWS)
            at = probe % slots * ENTRY_BYTES
            if not any(table[at + HASH_BYTES : at + ENTRY_BYTES]):
                return at, False
            if table[at : at + HASH_BYTES] == digest:
                return at, True
        return 0, False
