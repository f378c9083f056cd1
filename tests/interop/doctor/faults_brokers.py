"""Faults of brokers, topics and features, and a controller of an older release."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from doctor_cluster import METADATA, PATIENCE_SECONDS, SPARE, DoctorCluster, edit, kraft, setting, told
from doctor_fault import BEFORE, BOTH, LIVE, OFFLINE, Act, Expected, Fault, Found, matching
from faults_quorum import live, printed
from support.interop.real_kafka import eventually

BROKER: Final = 103
"""The broker with the faults."""
MANY: Final = ",".join(("103:102", "103:101", "103:102", "101:103", "102:103", "101:102"))
UNCLEAN: Final = "unclean.leader.election.enable"

on_cluster = partial(Expected, way=LIVE, words=live())


def as_printed(pattern: str) -> Callable[[DoctorCluster, Found], None]:
    """Carry out the command of the remedy that matches."""

    def carry_out(cluster: DoctorCluster, finding: Found) -> None:
        cluster.until_done(*printed(finding, pattern))

    return carry_out


def administer(*words: str) -> Act:
    """A fault that a command of ours causes."""

    def act(cluster: DoctorCluster) -> None:
        cluster.live(*words)

    return act


def restored(cluster: DoctorCluster) -> Path:
    """A directory of controller 1 that an operator restores from a backup."""
    return cluster.root / "n1-restored"


def copy_of(cluster: DoctorCluster, node: int, target: Path) -> None:
    """A copy of the directory of a controller, with the end that it has now."""
    cluster.wait_until_caught_up(node)
    if target.exists():
        cluster.move_aside(target)
    shutil.copytree(cluster.data(node), target, ignore=shutil.ignore_patterns(".lock", "*index", "*.deleted", "*.part"))


def prepare(cluster: DoctorCluster) -> None:
    """A topic, an early backup of controller 1, and records of an idempotent producer after it."""
    cluster.live("topics", "create", "many", "--assignment", MANY)
    copy_of(cluster, 1, cluster.aside / "early")
    produce(cluster)
    copy_of(cluster, 1, restored(cluster))


def produce(cluster: DoctorCluster) -> None:
    """Ten records for each partition, with a producer id of the metadata."""
    servers = ",".join(cluster.address(broker) for broker in cluster.brokers)
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True})
    for number in range(60):
        producer.produce("many", str(number).encode(), partition=number % 6)
    assert producer.flush(PATIENCE_SECONDS) == 0


# --------------------------------------------------------------------------------------------------- voters, features


def one_voter(cluster: DoctorCluster) -> None:
    for node in ("3", "2"):
        cluster.until_done("quorum", "remove", node)


def two_more(cluster: DoctorCluster, finding: Found) -> None:
    for node in (2, 3):
        cluster.wait_until_caught_up(node)
        cluster.until_done("quorum", "add", str(node))


SINGLE: Final = Fault(
    name="single-voter",
    cause="`kraft quorum remove` of two of three voters, with three brokers",
    make=one_voter,
    expected=(
        on_cluster(
            check="voters-single",
            subjects=("1",),
            command="Start two more controllers, then kraft quorum add ID for each",
            done="`kraft quorum add 2`, `kraft quorum add 3`",
            cure=two_more,
        ),
    ),
)

WITHOUT_ELR: Final = Fault(
    name="without-elr",
    cause="`kraft features downgrade --feature eligible.leader.replicas.version=0`",
    make=administer("features", "downgrade", "--feature", "eligible.leader.replicas.version=0"),
    expected=(
        on_cluster(
            check="elr-state",
            severity="warn",
            command="kraft features upgrade --feature eligible.leader.replicas.version=1",
            done="the printed `kraft features upgrade`",
            cure=as_printed(r"kraft features upgrade --feature \S+=1"),
        ),
    ),
)


# ------------------------------------------------------------------------------------------------------------- topics


def reassign(cluster: DoctorCluster, finding: Found) -> None:
    """Carry the printed plan out, with the brokers for `B,B,B`."""
    words = printed(finding, r"kraft reassign plan --topic single --to B,B,B --replication-factor 3")
    plan = cluster.root / "plan.json"
    plan.write_text(cluster.live(*("101,102,103" if word == "B,B,B" else word for word in words)))
    cluster.live("reassign", str(plan), "--wait", "--timeout", "60")


def elect_preferred(cluster: DoctorCluster) -> None:
    """Each preferred replica leads, whatever the order that the plan chose."""
    kraft("elect", "preferred", "--all", "--bootstrap-controller", cluster.bootstrap)


ONE_REPLICA: Final = Fault(
    name="one-replica",
    cause="a topic with replication factor 1, with three brokers",
    make=administer("topics", "create", "single", "--assignment", "101"),
    expected=(
        on_cluster(
            check="rf-one",
            subjects=("single",),
            command="kraft reassign plan --topic single --to B,B,B --replication-factor 3 > plan.json",
            done="the printed `kraft reassign plan --topic single`; its file carried out with --wait",
            cure=reassign,
        ),
    ),
    afterwards=elect_preferred,
)

MIN_ISR: Final = Fault(
    name="min-isr-too-high",
    cause="`kraft configs set topic many min.insync.replicas=3`, with two replicas",
    make=administer("configs", "set", "topic", "many", "min.insync.replicas=3"),
    expected=(
        on_cluster(
            check="min-isr-over-rf",
            subjects=("many",),
            command="kraft configs set topic many min.insync.replicas=1",
            done="the printed `kraft configs set`",
            cure=as_printed(r"kraft configs set topic many min\.insync\.replicas=1"),
        ),
    ),
)

UNCLEAN_TOPIC: Final = Fault(
    name="unclean-topic",
    cause=f"`kraft configs set topic many {UNCLEAN}=true`",
    make=administer("configs", "set", "topic", "many", f"{UNCLEAN}=true"),
    expected=(
        on_cluster(
            check="unclean-enabled",
            subjects=("many",),
            command=f"kraft configs set topic many {UNCLEAN}=false",
            done="the printed `kraft configs set`",
            cure=as_printed(rf"kraft configs set topic many {UNCLEAN}=false"),
        ),
    ),
)

UNCLEAN_CLUSTER: Final = Fault(
    name="unclean-cluster",
    cause=f"`kraft configs set broker default {UNCLEAN}=true`",
    make=administer("configs", "set", "broker", "default", f"{UNCLEAN}=true"),
    expected=(
        on_cluster(
            check="unclean-enabled",
            subjects=("(all brokers)",),
            command=f"kraft configs set broker default {UNCLEAN}=false",
            done="the printed `kraft configs set`",
            cure=as_printed(rf"kraft configs set broker default {UNCLEAN}=false"),
        ),
    ),
)


# ------------------------------------------------------------------------------------------------------------ brokers


def lose_broker(cluster: DoctorCluster) -> None:
    cluster.live("topics", "create", "alone", "--assignment", str(BROKER))
    cluster.live("topics", "create", "strict", "--assignment", f"102:{BROKER}", "--config", "min.insync.replicas=2")
    cluster.kill(BROKER)


def start_broker(cluster: DoctorCluster, finding: Found) -> None:
    """The printed commands show the broker, which is started."""
    assert str(BROKER) in cluster.live(*printed(finding, rf"kraft brokers describe {BROKER}"))
    assert str(BROKER) in cluster.live("brokers", "list")
    cluster.start(BROKER)


LOST_BROKER: Final = Fault(
    name="broker-down",
    cause="kill -9 of broker 103",
    make=lose_broker,
    expected=(
        on_cluster(
            check="broker-fenced",
            subjects=("103",),
            command="Start broker 103, or repair its way to the controllers: kraft brokers describe 103",
            done="`kraft brokers describe 103` and `kraft brokers list`; broker 103 started",
            cure=start_broker,
        ),
        on_cluster(
            check="offline-partitions",
            subjects=("alone-0",),
            command="Start broker 103.",
            done="the same step",
        ),
        on_cluster(
            check="under-min-isr",
            subjects=("strict-0",),
            command="Start the missing replicas' brokers: kraft brokers list",
            done="the same step",
        ),
        on_cluster(
            check="under-replicated",
            subjects=("strict-0", "many-0"),
            command="Start broker 103, or look for slow disks and networks: kraft brokers list",
            done="the same step",
        ),
        on_cluster(
            check="leader-skew",
            command="kraft elect preferred --all",
            done="the printed `kraft elect preferred --all`, after the broker is in sync",
            cure=as_printed(r"kraft elect preferred --all"),
            follows=True,
        ),
    ),
    afterwards=administer("topics", "delete", "alone"),
)


def of_broker(cluster: DoctorCluster) -> tuple[str, ...]:
    """The doctor asks the controllers and reads the broker's configuration and directories."""
    return (*live()(cluster), "-c", str(cluster.config(BROKER)))


def delete_meanwhile(cluster: DoctorCluster) -> None:
    """A topic is deleted while the broker is down."""
    cluster.stop(BROKER)
    cluster.live("topics", "delete", "strict")


def move_strays(cluster: DoctorCluster, finding: Found) -> None:
    for name in finding["subjects"]:
        cluster.move_aside(cluster.data(BROKER) / name)


STRAY: Final = Fault(
    name="stray",
    cause="a topic is deleted while broker 103 is down",
    make=delete_meanwhile,
    expected=(
        Expected(
            check="stray-dirs",
            way=BOTH,
            words=of_broker,
            nodes=(BROKER,),
            subjects=("strict-0",),
            severity="fatal",
            command="or move the directories away",
            done="the directory moved away; started, the broker renames nothing",
            cure=move_strays,
        ),
    ),
)


def lose_partition(cluster: DoctorCluster) -> None:
    if BROKER in cluster.running:
        cluster.stop(BROKER)
    shutil.move(cluster.data(BROKER) / "many-0", cluster.aside / "many-0")


def nothing_is_renamed(cluster: DoctorCluster) -> None:
    """The broker starts, and every directory of the topic keeps its name. Other faults leave strays of other topics."""
    cluster.start(BROKER)
    names = sorted(path.name for path in cluster.data(BROKER).glob("many-*") if path.is_dir())
    assert not [name for name in names if name.endswith("-stray")], names
    assert "many-0" in names


MISSING: Final = Fault(
    name="partition-directory-lost",
    cause="the directory of a partition is not there, as on a volume that is not mounted",
    make=lose_partition,
    expected=(
        Expected(
            check="missing-dirs",
            way=BOTH,
            words=of_broker,
            nodes=(BROKER,),
            subjects=("many-0",),
            command="Mount the right volume before the start",
            done="the directory is back before the broker starts",
            cure=lambda cluster, finding: shutil.move(cluster.aside / "many-0", cluster.data(BROKER)),
        ),
    ),
    afterwards=nothing_is_renamed,
)


def restore_early(cluster: DoctorCluster) -> None:
    """The directory of controller 1 is restored from the early backup; a topic and the leaders' epochs are younger."""
    produce(cluster)
    cluster.live("topics", "create", "late", "--assignment", f"{BROKER}:101")
    eventually((cluster.data(BROKER) / "late-0" / "partition.metadata").exists, "the broker has the topic")
    cluster.move_aside(restored(cluster))
    shutil.copytree(cluster.aside / "early", restored(cluster))


def newer_copy(cluster: DoctorCluster, finding: Found) -> None:
    """`kraft recover plan` names a newer copy, which replaces the restored one."""
    controllers = (str(restored(cluster)), str(cluster.data(2)), str(cluster.data(3)))
    plan = json.loads(told("recover", "plan", "--live", "--json", *controllers, "--brokers", str(cluster.data(BROKER))))
    assert plan["best"] != restored(cluster).name, plan["best"]
    cluster.move_aside(restored(cluster) / METADATA)
    best = cluster.root / plan["best"] / METADATA
    shutil.copytree(best, restored(cluster) / METADATA, ignore=shutil.ignore_patterns("*index", "*.deleted", "*.part"))


on_backup = partial(
    Expected,
    way=OFFLINE,
    words=lambda cluster: ("--offline", str(restored(cluster)), str(cluster.data(BROKER))),
    nodes=(BROKER,),
)

EARLY_METADATA: Final = Fault(
    name="early-metadata",
    cause="the directory of a controller is restored from a backup that is older than topics, leaders and producers",
    make=restore_early,
    expected=(
        on_backup(
            check="stray-dirs",
            subjects=("late-0",),
            command="Do not start the broker. Look for a newer copy of the metadata log: kraft recover plan DIR",
            done="`kraft recover plan` over the copies names a newer one, which replaces the restored one",
            cure=newer_copy,
        ),
        on_backup(
            check="partition-epoch-behind",
            command="Look for a newer copy of the metadata log: kraft recover plan DIR",
            done="the same step",
        ),
        on_backup(
            check="producer-id-regress",
            command="The metadata is older than the data: kraft recover plan DIR",
            done="the same step",
        ),
    ),
)


# -------------------------------------------------------------------------------------------------------- credentials

JAAS: Final = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="node104" password="hidden";'


def fourth_broker(cluster: DoctorCluster) -> Path:
    """The configuration of a broker that is to come."""
    return cluster.root / "n104.properties"


def scram_login(cluster: DoctorCluster) -> None:
    edit(fourth_broker(cluster), sasl_jaas_config=JAAS, sasl_mechanism_controller_protocol="SCRAM-SHA-512")


def write_fourth(cluster: DoctorCluster) -> tuple[str, ...]:
    """The doctor asks the controllers and reads the configuration."""
    path = fourth_broker(cluster)
    if not path.exists():
        shutil.copy2(cluster.config(BROKER), path)
        edit(path, node_id="104", log_dirs=str(cluster.root / "n104"))
        path.chmod(0o600)
    return (*live()(cluster), "-c", str(path))


def set_password(cluster: DoctorCluster, finding: Found) -> None:
    """Carry the printed command out, with a file for `FILE`."""
    password = cluster.root / "password.txt"
    password.write_text("hidden\n")
    words = printed(finding, r"kraft users set node104 --mechanism SCRAM-SHA-512 --password-file FILE")
    cluster.live(*(str(password) if word == "FILE" else word for word in words))


NO_CREDENTIAL: Final = Fault(
    name="no-credential",
    cause="a new broker authenticates with SCRAM-SHA-512 as a user without a credential",
    make=scram_login,
    expected=(
        Expected(
            check="scram-missing",
            way=BOTH,
            words=write_fourth,
            subjects=("node104",),
            command="kraft users set node104 --mechanism SCRAM-SHA-512 --password-file FILE",
            done="the printed `kraft users set`",
            cure=set_password,
        ),
    ),
)

BROKER_FAULTS: Final = (
    SINGLE,
    WITHOUT_ELR,
    ONE_REPLICA,
    MIN_ISR,
    UNCLEAN_TOPIC,
    UNCLEAN_CLUSTER,
    LOST_BROKER,
    STRAY,
    MISSING,
    EARLY_METADATA,
    NO_CREDENTIAL,
)
"""`prepare` goes before."""


# ----------------------------------------------------------------------------------------------------- older software


def start_older(cluster: DoctorCluster) -> None:
    """The spare controller runs the older release, and is registered."""
    assert cluster.older is not None
    if not cluster.data(SPARE).exists():
        cluster.format(SPARE, "--no-initial-controllers")
    assert setting(cluster.config(SPARE), "node.id") == str(SPARE)
    cluster.start(SPARE, kafka=cluster.older)


def older_again(cluster: DoctorCluster) -> None:
    cluster.stop(SPARE)
    start_older(cluster)
    level = GHOST.expected[1]
    eventually(lambda: not matching(cluster, level), "the older software is registered", PATIENCE_SECONDS)


def start_present(cluster: DoctorCluster, finding: Found) -> None:
    """The spare controller runs the present release."""
    if SPARE in cluster.running:
        cluster.stop(SPARE)
    cluster.start(SPARE)


OLD_CONTROLLER: Final = Fault(
    name="old-controller",
    cause="controller 4 runs Kafka 3.9.2 beside Kafka 4.3.1, and metadata.version is to be raised",
    make=start_older,
    expected=(
        Expected(
            check="before-upgrade",
            way=BEFORE,
            words=live("--before", "upgrade"),
            severity="error",
            command="Start the named nodes with newer software first",
            done="controller 4 restarted with Kafka 4.3.1",
            cure=start_present,
        ),
    ),
    afterwards=older_again,
)

GHOST: Final = Fault(
    name="ghost",
    cause="controller 4 ran Kafka 3.9.2 once, and is gone",
    make=lambda cluster: cluster.kill(SPARE),
    expected=(
        on_cluster(
            check="ghost-registration",
            subjects=("4",),
            severity="error",
            command="Start a controller of id 4 with the present software once",
            done="controller 4 started with Kafka 4.3.1",
            cure=start_present,
        ),
        on_cluster(
            check="mv-vs-software",
            severity="info",
            subjects=("metadata.version",),
            command="kraft features upgrade --release-version 4.3",
            done="the printed `kraft features upgrade`",
            cure=as_printed(r"kraft features upgrade --release-version 4\.3"),
            follows=True,
        ),
    ),
)

OLDER_FAULTS: Final = (OLD_CONTROLLER, GHOST)
