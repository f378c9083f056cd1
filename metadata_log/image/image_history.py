"""The images that a controller holds at a time: the committed one, and one for each batch not yet committed (Kafka
keeps them as the snapshots of a `SnapshotRegistry` over timeline collections).
"""

from __future__ import annotations

from collections import deque

from metadata_log.image.image import MetadataImage


class ImageHistory:
    """`latest` holds everything that was appended, `committed` everything that is final. Going back is forgetting."""

    __slots__ = ("_uncommitted", "committed", "latest")

    def __init__(self, image: MetadataImage) -> None:
        self.committed = image
        self.latest = image
        self._uncommitted: deque[MetadataImage] = deque()

    def appended(self, image: MetadataImage) -> None:
        """A batch was appended that makes `image`; it may commit alone."""
        assert image.end.offset > self.latest.end.offset, (image.end, self.latest.end)
        self.latest = image
        self._uncommitted.append(image)

    def commit(self, high_watermark: int) -> None:
        """Everything below `high_watermark` is final."""
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0].end.offset <= high_watermark:
            self.committed = uncommitted.popleft()

    def replayed(self, image: MetadataImage) -> None:
        """A committed batch was replayed that makes `image`; only where nothing is uncommitted."""
        assert not self._uncommitted, (self.latest.end, image.end)
        self.latest = self.committed = image

    def rollback(self) -> None:
        """Forget what is not committed."""
        self.latest = self.committed
        self._uncommitted.clear()
