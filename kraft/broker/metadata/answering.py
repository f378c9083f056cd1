"""Long answers from the metadata image, in steps."""

from __future__ import annotations

from collections.abc import Generator

from metadata_log.serde import Message

ITEMS_PER_STEP = 64
"""How many entries of an answer one step makes: some hundred microseconds."""
Answering = Generator[None, None, Message]
"""An answer in steps of less than a millisecond, so that an answer about a million partitions delays no heartbeat."""
