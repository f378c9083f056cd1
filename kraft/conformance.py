"""Deprecated: `kraft.history_checker`. This name goes with the next release."""

from __future__ import annotations

from metadata_log.forwarding import forward

__getattr__ = forward(__name__, "kraft.history_checker")
