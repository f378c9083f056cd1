"""What is wrong with a record that contradicts the image it is applied to (Kafka: what a `FaultHandler` is told)."""

from __future__ import annotations

from metadata_log.errors import MetadataLogError


class ReplayError(MetadataLogError):
    """A record contradicts the image it is applied to: the log does not follow its own rules."""
