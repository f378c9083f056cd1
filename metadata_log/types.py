"""The values that every layer shares: `Uuid`, `OffsetAndEpoch` and sentinels (Kafka: `Uuid`, `OffsetAndEpoch`)."""

from __future__ import annotations

import base64
import re
from random import Random
from typing import ClassVar, Final

from msgspec import Struct

_UUID_CHARACTERS: Final = 22
_UUID_TEXT: Final = re.compile(r"[A-Za-z0-9_-]{22}(==)?")


class Uuid(bytes):
    """Kafka's 128-bit id: 16 bytes that print as unpadded URL-safe base64 (Kafka: `Uuid`).

    `Uuid` is a subclass of `bytes` without its own `__hash__` or `__eq__`, because it is the key of every hot map.

    Args:
        value: The 16 bytes.

    Raises:
        ValueError: The value does not have 16 bytes.
    """

    __slots__ = ()

    ZERO: ClassVar[Uuid]
    METADATA_TOPIC: ClassVar[Uuid]

    def __new__(cls, value: bytes) -> Uuid:
        """Wrap exactly 16 bytes."""
        if len(value) != 16:
            raise ValueError(f"a Uuid has 16 bytes, not {len(value)}")
        return super().__new__(cls, value)

    @classmethod
    def parse(cls, text: str) -> Uuid:
        """Parse the text form of `meta.properties` and Kafka's tools.

        Args:
            text: 22 characters of URL-safe base64.

        Returns:
            The id.

        Raises:
            ValueError: The text is no id.
        """
        if _UUID_TEXT.fullmatch(text) is None:
            raise ValueError(f"not a Kafka uuid (22 characters of URL-safe base64): {text!r}")
        return cls(base64.urlsafe_b64decode(text[:_UUID_CHARACTERS] + "=="))

    @property
    def is_reserved(self) -> bool:
        """Whether Kafka reserves this value as a directory id (`DirectoryId.reserved`)."""
        return self[:8] == bytes(8) and int.from_bytes(self[8:], "big", signed=True) < 100

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self).rstrip(b"=").decode("ascii")

    def __repr__(self) -> str:
        return f"Uuid({self})"


Uuid.ZERO = Uuid(bytes(16))
Uuid.METADATA_TOPIC = Uuid(bytes(15) + b"\x01")


def random_uuid(rng: Random) -> Uuid:
    """A random id as Kafka makes it: version 4, never reserved, and no leading dash (`Uuid.randomUuid`)."""
    while True:
        bits = rng.getrandbits(128)
        bits = bits & ~(0xF << 76) & ~(0x3 << 62) | 0x4 << 76 | 0x2 << 62
        uuid = Uuid(bits.to_bytes(16, "big"))
        if not uuid.is_reserved and not str(uuid).startswith("-"):
            return uuid


class OffsetAndEpoch(Struct, frozen=True, gc=False, order=True, kw_only=True):
    """A position in the log (Kafka: `OffsetAndEpoch`). Pairs compare by epoch first, then by offset, as votes do.

    Args:
        offset: The offset.
        epoch: The epoch.
    """

    epoch: int
    offset: int

    def __str__(self) -> str:
        return f"{self.offset}@{self.epoch}"


BOOTSTRAP_SNAPSHOT: Final = OffsetAndEpoch(epoch=0, offset=0)
"""The snapshot of a formatted directory: no snapshot of the log, but its first voters and first records."""
METADATA_TOPIC: Final = "__cluster_metadata"
REMOTE_TOPIC: Final = "__remote_log_metadata"
"""The topic by which brokers tell each other what is in tiered storage."""
METADATA_PARTITION: Final = 0
PARTITION_DIRECTORY: Final = f"{METADATA_TOPIC}-{METADATA_PARTITION}"
"""The directory of the metadata log in a log directory."""
NEVER_MS: Final = 2**62
"""A deadline in milliseconds that no clock reaches."""
NO_NODE: Final = -1
"""No leader, or no vote, on the wire and in files."""
NO_OFFSET: Final = -1
"""An unknown offset, such as a new leader's high watermark."""
NO_EPOCH: Final = -1
"""No epoch: of a broker, a leader or a producer."""
NO_PRODUCER: Final = -1
"""The id of the producer of a batch that has none."""
NO_SEQUENCE: Final = -1
"""The sequence number of a batch that has no producer, or that ends a transaction."""
LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
EARLIEST_LOCAL_TIMESTAMP: Final = -4
"""The times with which ListOffsets asks for the end and for the start of a partition, and for that of its local log."""
