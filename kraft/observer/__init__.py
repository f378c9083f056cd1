"""Following the metadata log of a live cluster from outside.

`Follower` returns every committed batch. `watch` shows them, `archive_committed` keeps them, and `read_image` makes the
image of the cluster from them.
"""

from kraft.observer.archiving import archive_committed, watch
from kraft.observer.follower import LONGEST_RETRY_MS, Committed, Follower, HistoryLost, Jumped
from kraft.observer.live_image import read_image

__all__ = [
    "LONGEST_RETRY_MS",
    "Committed",
    "Follower",
    "HistoryLost",
    "Jumped",
    "archive_committed",
    "read_image",
    "watch",
]
