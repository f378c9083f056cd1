"""Following the metadata log of a live cluster from outside: every committed batch, and the image that they make."""

from kraft.observer.follower import LONGEST_RETRY_MS, Committed, Follower, HistoryLost, Jumped
from kraft.observer.live_image import read_image

__all__ = ["LONGEST_RETRY_MS", "Committed", "Follower", "HistoryLost", "Jumped", "read_image"]
