"""Deprecated: `kraft.sim.nodes.state_machine_member`. This name goes with the next release."""

from __future__ import annotations

from metadata_log.forwarding import forward

__getattr__ = forward(__name__, "kraft.sim.nodes.state_machine_member")
