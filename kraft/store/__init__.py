"""The types that `kraft.Store` takes and returns: operations, conditions, entries, events, holders, jobs.

`kraft` itself has the names to begin with: `Store`, `open_store`, `Lock`, `Election` and so on.

Names are imported on first access (PEP 562): the machine of a store needs no event loop.
"""

from typing import TYPE_CHECKING

from metadata_log.lazy_names import lazy_names

if TYPE_CHECKING:
    from kraft.store.commands import Append, Clear, Delete, Entry, Event, IfValue, IfVersion, Put
    from kraft.store.errors import StoreError
    from kraft.store.locks import Held, Leader, LeaderWatch
    from kraft.store.store import Lease, Page, StoreWatch
    from kraft.store.work_queue import DeadLetter, Job
else:
    _HOMES = {
        "Append": "kraft.store.commands",
        "Clear": "kraft.store.commands",
        "DeadLetter": "kraft.store.work_queue",
        "Delete": "kraft.store.commands",
        "Entry": "kraft.store.commands",
        "Event": "kraft.store.commands",
        "Held": "kraft.store.locks",
        "IfValue": "kraft.store.commands",
        "IfVersion": "kraft.store.commands",
        "Job": "kraft.store.work_queue",
        "Leader": "kraft.store.locks",
        "LeaderWatch": "kraft.store.locks",
        "Lease": "kraft.store.store",
        "Page": "kraft.store.store",
        "Put": "kraft.store.commands",
        "StoreError": "kraft.store.errors",
        "StoreWatch": "kraft.store.store",
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)

__all__ = [
    "Append",
    "Clear",
    "DeadLetter",
    "Delete",
    "Entry",
    "Event",
    "Held",
    "IfValue",
    "IfVersion",
    "Job",
    "Leader",
    "LeaderWatch",
    "Lease",
    "Page",
    "Put",
    "StoreError",
    "StoreWatch",
]
