"""The types that `kraft.Store` takes and returns: operations, conditions, entries, events, holders.

`kraft` itself has the names to begin with: `Store`, `open_store`, `Lock`, `Election` and so on.
"""

from kraft.store.commands import Append, Clear, Delete, Entry, Event, IfValue, IfVersion, Put
from kraft.store.errors import StoreError
from kraft.store.locks import Held, Leader, LeaderWatch
from kraft.store.store import Lease, Page, StoreWatch

__all__ = [
    "Append",
    "Clear",
    "Delete",
    "Entry",
    "Event",
    "Held",
    "IfValue",
    "IfVersion",
    "Leader",
    "LeaderWatch",
    "Lease",
    "Page",
    "Put",
    "StoreError",
    "StoreWatch",
]
