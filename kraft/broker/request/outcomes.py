"""The form of the handlers of data requests."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Handling = Generator[None, None, T]
"""The handling of a request in steps of less than a millisecond: a request may name a hundred thousand partitions."""
