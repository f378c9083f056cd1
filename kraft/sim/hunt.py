"""Deprecated: `kraft.sim.search.seed_search`. This name goes with the next release."""

from __future__ import annotations

from metadata_log.forwarding import forward

__getattr__ = forward(__name__, "kraft.sim.search.seed_search", {"Hunt": "SeedSearch"})
