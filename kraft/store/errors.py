"""The errors that the methods of a store raise."""

from __future__ import annotations

from kraft.store.commands import Entry


class StoreError(Exception):
    """The base class of the errors of a store."""


class Conflict(StoreError):
    """A condition did not hold, so that nothing was changed.

    Attributes:
        key: The key of the first condition that did not hold.
        entry: The key as it was found; None if it does not exist.
    """

    def __init__(self, key: str, entry: Entry | None) -> None:
        super().__init__(f"{key!r} does not exist" if entry is None else f"{key!r} has version {entry.version}")
        self.key = key
        self.entry = entry


class LeaseLost(StoreError):
    """A lease has ended, or its holder cannot know whether it has: what was held with it is held no longer."""


class Compacted(StoreError):
    """The history of the store does not go back so far; read the keys, and watch from the revision of that read.

    Attributes:
        revision: The revision after which the history is complete.
    """

    def __init__(self, wanted: int, revision: int) -> None:
        super().__init__(f"the changes after revision {wanted} are not kept any more, only those after {revision}")
        self.revision = revision
