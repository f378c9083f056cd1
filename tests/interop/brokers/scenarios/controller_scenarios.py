"""B29 and B30: controllers that end meanwhile, and a quorum without a majority."""

from __future__ import annotations

from typing import Final

from lifecycle_scenarios import records_go_on_without_a_controller
from support.scenarios.scenario_cluster import PLAIN, QUORUM, Cluster
from support.scenarios.scenario_list import SCENARIOS, scenario

VERSION: Final = 3


def while_the_controller_dies(cluster: Cluster, *plan: str) -> None:
    """Run scenarios once more; the active controller is killed after the first event of each.

    An event is a pause, a kill, a stop, or a reassignment.
    """
    for one in [one for one in SCENARIOS if one.id in plan and one.kind is PLAIN]:
        cluster.restore()
        cluster.disturbance = cluster.kill_controller
        one.run(cluster)
        assert cluster.disturbance is None, f"nothing happened in {one.name}"


@scenario("B29", by_default=False, kind=QUORUM)
def followers_are_slow_and_fail_while_the_controller_dies(cluster: Cluster) -> None:
    while_the_controller_dies(cluster, "B15", "B16", "B17", "B18", "B19", "B20")


@scenario("B29", by_default=False, kind=QUORUM)
def leaders_fail_while_the_controller_dies(cluster: Cluster) -> None:
    while_the_controller_dies(cluster, "B21", "B22", "B23", "B24", "B25")


@scenario("B29", by_default=False, kind=QUORUM)
def replicas_move_while_the_controller_dies(cluster: Cluster) -> None:
    while_the_controller_dies(cluster, "B26")


@scenario("B30", by_default=False, kind=QUORUM)
def records_go_on_without_a_majority_of_controllers(cluster: Cluster) -> None:
    records_go_on_without_a_controller(cluster)
