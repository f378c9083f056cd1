"""All scenarios: each module of a group puts its own into the list."""

from __future__ import annotations

import connection_scenarios
import deletion_scenarios
import failover_scenarios
import fetch_scenarios
import idempotence_scenarios
import lifecycle_scenarios
import produce_scenarios
import reassignment_scenarios
import replication_scenarios
from scenario_list import SCENARIOS, Scenario

__all__ = ["SCENARIOS", "Scenario"]

GROUPS = (
    produce_scenarios,
    idempotence_scenarios,
    fetch_scenarios,
    replication_scenarios,
    failover_scenarios,
    reassignment_scenarios,
    lifecycle_scenarios,
    connection_scenarios,
    deletion_scenarios,
)
