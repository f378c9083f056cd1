"""Deprecated: `kraft.sim.search.hunt`. This name goes with the next release."""

from __future__ import annotations

from metadata_log.forwarding import forward

__getattr__ = forward(__name__, "kraft.sim.search.hunt", {"Hunt": "SeedSearch"})
