"""All scenarios: each module of a group puts its own into the list."""

from __future__ import annotations

from support.scenarios import (
    compaction_scenarios,
    connection_scenarios,
    controller_scenarios,
    damage_scenarios,
    deletion_scenarios,
    disk_scenarios,
    endurance_scenarios,
    failover_scenarios,
    idempotence_scenarios,
    lifecycle_scenarios,
    produce_scenarios,
    reassignment_scenarios,
    replication_scenarios,
    transaction_scenarios,
)
from support.scenarios.scenario_list import SCENARIOS, Scenario

__all__ = ["SCENARIOS", "Scenario"]

GROUPS = (
    produce_scenarios,
    idempotence_scenarios,
    transaction_scenarios,
    replication_scenarios,
    failover_scenarios,
    reassignment_scenarios,
    lifecycle_scenarios,
    controller_scenarios,
    damage_scenarios,
    connection_scenarios,
    deletion_scenarios,
    compaction_scenarios,
    disk_scenarios,
    endurance_scenarios,
)
