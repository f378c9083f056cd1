"""Deprecated: `kraft.sim.pictures.execution`. This name goes with the next release."""

from __future__ import annotations

from metadata_log.forwarding import forward

__getattr__ = forward(
    __name__,
    "kraft.sim.pictures.execution",
    {"Story": "Execution", "story_lines": "execution_lines", "tell": "execution_of"},
)
