"""Faults in the configuration of a voter that is stopped, while the other voters lead."""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from support.doctor.doctor_cluster import SPARE, DoctorCluster, edit, setting
from support.doctor.fault import OFFLINE, Expected, Fault, Found, matching
from support.doctor.faults_files import NODE, on_voter, start_and_catch_up, voter
from support.doctor.faults_quorum import offline

ASSIGNMENT: Final = re.compile(r"\b((?:[a-z]+\.)+[a-z]+)=([\w.:,@-]*[\w])")


def write_as_printed(cluster: DoctorCluster, finding: Found) -> None:
    """Write each KEY=VALUE of the remedy into the properties file of the voter."""
    found = ASSIGNMENT.findall(finding["remedy"])
    assert found, finding["remedy"]
    for key, value in found:
        edit(cluster.config(NODE), **{key.replace(".", "_"): value})


def write_back(cluster: DoctorCluster, finding: Found) -> None:
    """The properties file of the voter as it was."""
    cluster.write_config(NODE)


def restore(cluster: DoctorCluster) -> None:
    cluster.write_config(NODE)


NO_CONFIG: Final = voter(
    "no-quorum-config",
    "controller.quorum.bootstrap.servers is removed",
    lambda cluster: edit(cluster.config(NODE), controller_quorum_bootstrap_servers=None),
    on_voter(
        check="no-quorum-config",
        command="Set controller.quorum.bootstrap.servers=HOST:PORT",
        done="controller.quorum.bootstrap.servers set",
        cure=lambda cluster, finding: edit(cluster.config(NODE), controller_quorum_bootstrap_servers=cluster.bootstrap),
    ),
)


def static_voters(cluster: DoctorCluster) -> None:
    static = ",".join(f"{node}@{cluster.address(node)}" for node in cluster.first_voters)
    edit(cluster.config(NODE), controller_quorum_bootstrap_servers=None, controller_quorum_voters=static)


def replace_voters(cluster: DoctorCluster, finding: Found) -> None:
    """The printed bootstrap servers in place of the voters."""
    edit(cluster.config(NODE), controller_quorum_voters=None)
    write_as_printed(cluster, finding)
    assert setting(cluster.config(NODE), "controller.quorum.bootstrap.servers") == cluster.bootstrap


STATIC_ON_DYNAMIC: Final = voter(
    "static-on-dynamic",
    "controller.quorum.voters in a dynamic quorum",
    static_voters,
    on_voter(
        check="static-config-on-dynamic",
        command="Replace controller.quorum.voters by controller.quorum.bootstrap.servers={bootstrap}",
        done="the printed controller.quorum.bootstrap.servers in its place",
        cure=replace_voters,
    ),
)

SHORT_FETCH: Final = voter(
    "short-fetch",
    "controller.quorum.fetch.timeout.ms=300",
    lambda cluster: edit(cluster.config(NODE), controller_quorum_fetch_timeout_ms="300"),
    on_voter(
        check="quorum-timeouts",
        command="Set controller.quorum.fetch.timeout.ms=2000, controller.quorum.election.timeout.ms=1000 and",
        done="the three printed settings",
        cure=write_as_printed,
    ),
    afterwards=restore,
)

SHORT_SESSION: Final = voter(
    "short-session",
    "broker.session.timeout.ms=3000",
    lambda cluster: edit(cluster.config(NODE), broker_session_timeout_ms="3000"),
    on_voter(
        check="session-timeouts",
        severity="error",
        command="Set broker.session.timeout.ms=9000 and broker.heartbeat.interval.ms=2000",
        done="the two printed settings",
        cure=write_as_printed,
    ),
    afterwards=restore,
)

NO_PROTOCOL: Final = voter(
    "listener-without-protocol",
    "the entry of CONTROLLER is removed from listener.security.protocol.map",
    lambda cluster: edit(cluster.config(NODE), listener_security_protocol_map="PLAINTEXT:PLAINTEXT"),
    on_voter(
        check="listener-map",
        subjects=("CONTROLLER",),
        command="Add CONTROLLER:PLAINTEXT, or the protocol in use, to listener.security.protocol.map",
        done="CONTROLLER:PLAINTEXT added",
        cure=lambda cluster, finding: edit(
            cluster.config(NODE), listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
    ),
    afterwards=restore,
)

OTHER_PROTOCOL: Final = voter(
    "other-protocol",
    "CONTROLLER:SSL on one of three controllers",
    lambda cluster: edit(cluster.config(NODE), listener_security_protocol_map="CONTROLLER:SSL"),
    on_voter(
        check="controller-listener-mismatch",
        command="Make controller.listener.names and the protocol of its first name equal on all nodes",
        done="CONTROLLER:PLAINTEXT, as on the others",
        cure=write_back,
    ),
)

SMALL_RETENTION: Final = voter(
    "small-retention",
    "metadata.max.retention.bytes=1000000",
    lambda cluster: edit(cluster.config(NODE), metadata_max_retention_bytes="1000000"),
    on_voter(
        check="metadata-retention",
        subjects=("metadata.max.retention.bytes",),
        command="Set metadata.max.retention.bytes=104857600 and metadata.max.retention.ms=604800000",
        done="the two printed settings",
        cure=write_as_printed,
    ),
    afterwards=restore,
)


def on_every_address(cluster: DoctorCluster) -> None:
    edit(cluster.config(NODE), listeners=f"CONTROLLER://0.0.0.0:{cluster.ports[NODE]}")


PLAINTEXT: Final = voter(
    "plaintext-on-every-address",
    "a PLAINTEXT controller listener at 0.0.0.0 (the controller is not started with it)",
    on_every_address,
    on_voter(
        check="plaintext-controller",
        command="or a network of its own",
        done="the listener at the loopback address only",
        cure=write_back,
    ),
)


def unknown_host(cluster: DoctorCluster) -> None:
    servers = f"{cluster.bootstrap},controller-9.invalid:9093"
    edit(cluster.config(NODE), controller_quorum_bootstrap_servers=servers)


UNKNOWN_HOST: Final = voter(
    "unknown-host",
    "a bootstrap server with a host name that does not exist",
    unknown_host,
    Expected(
        check="voter-endpoint-unresolvable",
        way="configurations and the resolver",
        words=lambda cluster: offline()(cluster)[1:],
        nodes=(NODE,),
        subjects=("controller-9.invalid",),
        command="Correct the name in {root}/n3.properties",
        done="the name corrected in the properties file",
        cure=write_back,
    ),
)


def other_log_dir(cluster: DoctorCluster) -> None:
    edit(cluster.config(NODE), log_dirs=f"{cluster.root}/n3-new,{cluster.data(NODE)}")


OTHER_LOG_DIR: Final = voter(
    "other-log-dir",
    "another directory in front of the one with the log in log.dirs",
    other_log_dir,
    on_voter(
        check="log-dir-missing-metadata",
        command="Set metadata.log.dir={root}/n3, or restore the order of log.dirs",
        done="the printed metadata.log.dir",
        cure=lambda cluster, finding: edit(cluster.config(NODE), metadata_log_dir=str(cluster.data(NODE))),
    ),
    afterwards=restore,
)

EXCHANGED: Final = voter(
    "volumes-exchanged",
    "log.dirs of controller 3 is the directory of controller 2",
    lambda cluster: edit(cluster.config(NODE), log_dirs=str(cluster.data(2))),
    Expected(
        check="node-id-mismatch",
        way=OFFLINE,
        words=offline(NODE),
        command="volumes may be exchanged. Correct log.dirs or node.id",
        done="log.dirs corrected",
        cure=write_back,
    ),
    afterwards=lambda cluster: start_and_catch_up(cluster, {}),
)

SETTINGS_FAULTS: Final = (
    NO_CONFIG,
    STATIC_ON_DYNAMIC,
    SHORT_FETCH,
    SHORT_SESSION,
    NO_PROTOCOL,
    OTHER_PROTOCOL,
    SMALL_RETENTION,
    PLAINTEXT,
    UNKNOWN_HOST,
    OTHER_LOG_DIR,
    EXCHANGED,
)
"""The last one starts the voter."""


# ----------------------------------------------------------------------------------------------------- a static quorum


def fourth_voter(cluster: DoctorCluster) -> None:
    voters = setting(cluster.config(NODE), "controller.quorum.voters")
    edit(cluster.config(NODE), controller_quorum_voters=f"{voters},{SPARE}@{cluster.address(SPARE)}")


DIFFERENT_VOTERS: Final = voter(
    "voters-differ",
    "a fourth voter in controller.quorum.voters of controller 3 alone",
    fourth_voter,
    on_voter(
        check="voters-config-differs",
        severity="fatal",
        command="Make controller.quorum.voters equal on all nodes before any of them starts",
        done="controller.quorum.voters as on the others",
        cure=write_back,
    ),
)


def without_itself(cluster: DoctorCluster) -> None:
    voters = setting(cluster.config(NODE), "controller.quorum.voters").split(",")
    edit(cluster.config(NODE), controller_quorum_voters=",".join(one for one in voters if not one.startswith("3@")))


WITHOUT_ITSELF: Final = voter(
    "voters-without-itself",
    "controller 3 is not in its own controller.quorum.voters",
    without_itself,
    on_voter(
        check="self-not-in-voters",
        command="add the node to controller.quorum.voters on all nodes",
        done="3@host:port added",
        cure=write_back,
    ),
)

AUTO_JOIN_STATIC: Final = voter(
    "auto-join-static",
    "controller.quorum.auto.join.enable=true in a static quorum",
    lambda cluster: edit(cluster.config(NODE), controller_quorum_auto_join_enable="true"),
    on_voter(
        check="auto-join-on-static",
        command="Remove the setting, or kraft quorum upgrade",
        done="the setting removed",
        cure=lambda cluster, finding: edit(cluster.config(NODE), controller_quorum_auto_join_enable=None),
    ),
)


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
    DIFFERENT_VOTERS,
    WITHOUT_ITSELF,
    AUTO_JOIN_STATIC,
    DYNAMIC_ON_STATIC,
    EMPTY_MAJORITY,
)
