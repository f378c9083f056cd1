"""Deprecated: `metadata_log.reading.timeline`. This name goes with the next release."""

from __future__ import annotations

from metadata_log.forwarding import forward

__getattr__ = forward(__name__, "metadata_log.reading.timeline")
