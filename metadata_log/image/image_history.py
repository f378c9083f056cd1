"""The images of a controller: the committed one, and one for each uncommitted batch (Kafka: snapshots of a
`SnapshotRegistry` over timeline collections).
"""

from __future__ import annotations

from collections import deque

from metadata_log.image.image import MetadataImage


class ImageHistory:
    """`latest` holds all appended batches, `committed` all committed ones. A rollback drops images."""

    __slots__ = ("_uncommitted", "committed", "latest")

    def __init__(self, image: MetadataImage) -> None:
        self.committed = image
        self.latest = image
        self._uncommitted: deque[MetadataImage] = deque()

    def appended(self, image: MetadataImage) -> None:
        """A batch was appended, with this image as its result; the batch may commit alone."""
        assert image.end.offset > self.latest.end.offset, (image.end, self.latest.end)
        self.latest = image
        self._uncommitted.append(image)

    def commit(self, high_watermark: int) -> None:
        """Everything below `high_watermark` is committed."""
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0].end.offset <= high_watermark:
            self.committed = uncommitted.popleft()

    def replayed(self, image: MetadataImage) -> None:
        """A committed batch was replayed, with this image as its result; only without uncommitted batches."""
        assert not self._uncommitted, (self.latest.end, image.end)
        self.latest = self.committed = image

    def rollback(self) -> None:
        """Drop the uncommitted images."""
        self.latest = self.committed
        self._uncommitted.clear()
