"""All scenarios of coordinators: each module of a group puts its own into the list."""

from __future__ import annotations

import consumer_group_scenarios
import group_coordinator_scenarios
import takeover_scenarios
import transaction_coordinator_scenarios
from support.scenarios.coordinator_client import COORDINATOR_SCENARIOS, CoordinatorScenario

__all__ = ["COORDINATOR_SCENARIOS", "CoordinatorScenario"]

GROUPS = (group_coordinator_scenarios, consumer_group_scenarios, transaction_coordinator_scenarios, takeover_scenarios)
