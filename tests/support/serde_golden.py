"""The vectors that Apache Kafka wrote: `tests/data/golden`."""

import json
import lzma
from collections.abc import Iterator
from typing import Any

from support import DATA

FAMILIES = ("messages", "records", "coordinator_records", "remote_records", "data")
"""The files with vectors of whole messages."""


def golden(name: str) -> Iterator[dict[str, Any]]:
    """The lines of one file of vectors written by Apache Kafka."""
    with lzma.open(DATA / "golden" / f"{name}.jsonl.xz", "rt") as lines:
        for line in lines:
            yield json.loads(line)
