"""Faults of a static quorum: another kind of configuration, and lost disks."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from doctor_cluster import DoctorCluster, edit
from doctor_fault import OFFLINE, Expected, Fault, Found, matching
from faults_files import NODE, on_voter, start_and_catch_up, voter
from faults_quorum import offline


def write_back(cluster: DoctorCluster, finding: Found) -> None:
    """The properties file of the voter as it was."""
    cluster.write_config(NODE)


def bootstrap_on_static(cluster: DoctorCluster) -> None:
    edit(
        cluster.config(NODE),
        controller_quorum_voters=None,
        controller_quorum_bootstrap_servers=cluster.bootstrap,
    )


DYNAMIC_ON_STATIC: Final = voter(
    "dynamic-on-static",
    "controller.quorum.bootstrap.servers in place of controller.quorum.voters, before kraft.version is raised",
    bootstrap_on_static,
    on_voter(
        check="dynamic-config-on-static",
        command="Put controller.quorum.voters back",
        done="controller.quorum.voters is back; started, the controller catches up",
        cure=write_back,
    ),
    afterwards=lambda cluster: start_and_catch_up(cluster, {}),
)


def lose_disks_of_two(cluster: DoctorCluster) -> None:
    """Two of three voters lost their disks and were formatted again; nothing runs."""
    cluster.kill(1, 2, NODE)
    for node in (2, NODE):
        cluster.move_aside(cluster.data(node))
        cluster.format(node)


def put_disk_back(cluster: DoctorCluster, finding: Found) -> None:
    """As printed: the voters with a log start first. One of the disks was found again; two voters with a log lead."""
    assert "Start the voters with a log first" in finding["remedy"]
    (kept,) = (path for path in cluster.aside.iterdir() if path.name.endswith("-n2"))
    cluster.move_aside(cluster.data(2))
    kept.rename(cluster.data(2))
    cluster.start(1, 2)
    cluster.until_done("quorum", "status")


def start_last(cluster: DoctorCluster) -> None:
    """The empty voter starts under the leader with the log, and is empty no more."""
    empty = EMPTY_MAJORITY.expected[0]
    assert matching(cluster, replace(empty, nodes=(NODE,), severity="warn"))
    start_and_catch_up(cluster, {})
    assert not matching(cluster, replace(empty, nodes=(), severity=""))


def before_start(cluster: DoctorCluster) -> tuple[str, ...]:
    """Whether all voters may start."""
    return ("--before", "start", *offline()(cluster))


EMPTY_MAJORITY: Final = Fault(
    name="empty-majority",
    cause="two of three static voters lost their disks and are formatted again; nothing runs",
    make=lose_disks_of_two,
    expected=(
        Expected(
            check="empty-voter",
            way=OFFLINE,
            words=offline(),
            nodes=(2, NODE),
            severity="fatal",
            command="Start the voters with a log first, wait until one leads (kraft quorum status)",
            done="the disk of controller 2 put back; 1 and 2 started, `kraft quorum status`, then 3 started",
            cure=put_disk_back,
        ),
        Expected(
            check="before-start",
            way="planned step, offline",
            words=before_start,
            nodes=(2, NODE),
            severity="fatal",
            command="Repair the other findings first: kraft doctor DIR",
            done="the same step",
        ),
    ),
    afterwards=start_last,
)

STATIC_FAULTS: Final = (
    DYNAMIC_ON_STATIC,
    EMPTY_MAJORITY,
)
