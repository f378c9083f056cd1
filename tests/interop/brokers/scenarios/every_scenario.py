"""All scenarios: each module of a group puts its own into the list."""

from __future__ import annotations

import compaction_scenarios
import connection_scenarios
import controller_scenarios
import damage_scenarios
import deletion_scenarios
import disk_scenarios
import endurance_scenarios
import failover_scenarios
import idempotence_scenarios
import lifecycle_scenarios
import produce_scenarios
import replication_scenarios
import transaction_scenarios
from support.scenarios import reassignment_scenarios
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
