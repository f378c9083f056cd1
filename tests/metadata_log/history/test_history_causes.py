"""Each rule by which a cause is inferred, on the records that a controller writes for it (docs/history-causes.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from history_stories import CLUSTERS, Log, Row, real_story
from metadata_log.history import VIEWS, Options
from metadata_log.history.events import FULL_BATCH
from metadata_log.records.control import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    VotersRecord,
    VotersRecordVoter,
)
from metadata_log.records.metadata import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.serde import Message
from metadata_log.types import Uuid

TOPIC = Uuid(b"t" * 16)
DIRECTORIES = [Uuid(bytes([number] * 16)) for number in range(10)]
THREE = tuple(DIRECTORIES[1:4])
DOCS = Path(__file__).parents[3] / "docs" / "history-causes.md"


def change(partition: int = 0, **fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=partition, topic_id=TOPIC, **fields)


def partition(number: int = 0, leader: int = 1, **fields: Any) -> PartitionRecord:
    values = {"replicas": (1, 2, 3), "isr": (1, 2, 3), **fields}
    directories = tuple(DIRECTORIES[one] for one in values["replicas"])
    return PartitionRecord(
        partition_id=number,
        topic_id=TOPIC,
        leader=leader,
        leader_epoch=0,
        partition_epoch=0,
        directories=directories,
        **values,
    )


def registration(broker: int, fenced: bool = True, **fields: Any) -> RegisterBrokerRecord:
    incarnation = fields.pop("incarnation_id", DIRECTORIES[broker])
    of = {"log_dirs": (DIRECTORIES[broker],), **fields}
    return RegisterBrokerRecord(broker_id=broker, broker_epoch=broker, incarnation_id=incarnation, fenced=fenced, **of)


def fence(broker: int) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=broker, fenced=1)


def unfence(broker: int) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=broker, fenced=-1)


def shutdown(broker: int) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=broker, in_controlled_shutdown=1)


def cluster(*partitions: PartitionRecord) -> Log:
    """Three live brokers and a topic."""
    log = Log()
    log.batch(registration(1, False), registration(2, False), registration(3, False))
    log.batch(TopicRecord(name="orders", topic_id=TOPIC), *(partitions or (partition(),)))
    return log


def last_change(log: Log, options: Options | None = None) -> Row:
    """The row of the partition's latest change."""
    rows = log.tell("partition_history", options=options)["partition_history"]
    return max(rows, key=lambda row: (row["valid_from_offset"], -row["partition"]))


LEADERLESS = partition(leader=-1, isr=(), eligible_leader_replicas=(2,), last_known_elr=(1,))
LOST = partition(leader=-1, isr=(), last_known_elr=(1,))
RULES: dict[str, tuple[PartitionRecord, list[list[Message]], str, str | None, int | None]] = {
    "the leader's session times out": (
        partition(),
        [[change(isr=(2, 3), leader=2), fence(1)]],
        "session-timeout",
        "isr",
        1,
    ),
    "a broker that leads nothing is fenced": (partition(), [[change(isr=(1, 2)), fence(3)]], "broker-fenced", None, 3),
    "controlled shutdown of a leader": (
        partition(),
        [[shutdown(1), change(isr=(2, 3), leader=2)]],
        "controlled-shutdown",
        "isr",
        1,
    ),
    "controlled shutdown of the only replica in sync": (
        partition(isr=(1,)),
        [[shutdown(1), change(isr=(), leader=-1, eligible_leader_replicas=(1,), last_known_elr=(1,))]],
        "controlled-shutdown",
        "none",
        1,
    ),
    "the fence that completes a controlled shutdown": (
        partition(leader=2),
        [[shutdown(1)], [change(isr=(2, 3)), fence(1)]],
        "controlled-shutdown",
        None,
        1,
    ),
    "a broker that shuts down goes silent while it leads": (
        partition(),
        [[shutdown(1)], [change(isr=(2, 3), leader=2), fence(1)]],
        "session-timeout",
        "isr",
        1,
    ),
    "an in-sync replica is unfenced": (
        partition(leader=-1, isr=(1,)),
        [[fence(1)], [unfence(1), change(leader=1)]],
        "broker-unfenced",
        "isr",
        1,
    ),
    "an eligible replica is unfenced": (
        LEADERLESS,
        [[fence(2)], [unfence(2), change(isr=(2,), leader=2, eligible_leader_replicas=(), last_known_elr=())]],
        "broker-unfenced",
        "elr",
        2,
    ),
    "the last known leader is unfenced": (
        LOST,
        [[fence(1)], [unfence(1), change(isr=(1,), leader=1, leader_recovery_state=1, last_known_elr=())]],
        "broker-unfenced",
        "last-known-leader",
        1,
    ),
    "a broker is unfenced and unclean elections are allowed": (
        LEADERLESS,
        [[fence(3)], [unfence(3), change(isr=(3,), leader=3, leader_recovery_state=1, eligible_leader_replicas=())]],
        "broker-unfenced",
        "unclean",
        3,
    ),
    "a process starts anew without its clean shutdown": (
        partition(leader=2, isr=(2,), eligible_leader_replicas=(1,)),
        [[change(eligible_leader_replicas=()), registration(1, incarnation_id=DIRECTORIES[9])]],
        "broker-restarted",
        None,
        1,
    ),
    "a live leader is unregistered": (
        partition(),
        [[change(isr=(2, 3), leader=2), UnregisterBrokerRecord(broker_id=1, broker_epoch=1)]],
        "broker-unregistered",
        "isr",
        1,
    ),
    "a log directory fails": (
        partition(),
        [
            [registration(1, False, log_dirs=(DIRECTORIES[1], DIRECTORIES[8]))],
            [
                change(isr=(2, 3), leader=2),
                BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, log_dirs=(DIRECTORIES[8],)),
            ],
        ],
        "directory-failed",
        "isr",
        1,
    ),
    "a preferred election": (partition(leader=2), [[change(leader=1)]], "preferred-election", "preferred", None),
    "an unclean election is asked for": (
        LEADERLESS,
        [[change(isr=(3,), leader=3, leader_recovery_state=1, eligible_leader_replicas=(), last_known_elr=())]],
        "unclean-election",
        "unclean",
        None,
    ),
    "an election is asked for without a leader": (
        partition(leader=-1, isr=(2, 3)),
        [[change(leader=2)]],
        "clean-election",
        "isr",
        None,
    ),
    "the leader shrinks the ISR": (partition(), [[change(isr=(1, 2))]], "isr-shrink", None, 1),
    "the leader shrinks the ISR before 3.6": (partition(), [[change(isr=(1, 2), leader=1)]], "isr-shrink", "same", 1),
    "the leader expands the ISR": (partition(isr=(1,)), [[change(isr=(1, 3))]], "isr-expand", None, 1),
    "one leaves the ISR and one joins": (partition(isr=(1, 2)), [[change(isr=(1, 3))]], "isr-change", None, 1),
    "the leader has recovered": (
        partition(isr=(1,), leader_recovery_state=1),
        [[change(isr=(1, 2), leader_recovery_state=0)]],
        "leader-recovered",
        None,
        1,
    ),
    "a broker tells which directory it uses": (
        partition(),
        [[change(directories=(DIRECTORIES[1], DIRECTORIES[7], DIRECTORIES[3]))]],
        "directory-assigned",
        None,
        2,
    ),
    "the eligible replicas alone change": (
        partition(isr=(1,), eligible_leader_replicas=(2,)),
        [[change(eligible_leader_replicas=())]],
        "elr-change",
        None,
        None,
    ),
    "min.insync.replicas is set": (
        partition(isr=(1,), eligible_leader_replicas=(2,)),
        [
            [
                ConfigRecord(resource_type=2, resource_name="orders", name="min.insync.replicas", value="1"),
                ClearElrRecord(topic_name="orders"),
            ]
        ],
        "min-isr-changed",
        None,
        None,
    ),
    "the eligible replicas of all topics are cleared": (
        partition(isr=(1,), eligible_leader_replicas=(2,)),
        [[ClearElrRecord(topic_name="")]],
        "elr-cleared",
        None,
        None,
    ),
    "a reassignment is asked for": (
        partition(replicas=(1, 2), isr=(1, 2)),
        [[change(replicas=(3, 1, 2), adding_replicas=(3,), removing_replicas=(2,), directories=THREE)]],
        "reassignment-started",
        None,
        None,
    ),
    "a reassignment completes": (
        partition(replicas=(3, 1, 2), isr=(1, 2), adding_replicas=(3,), removing_replicas=(1,)),
        [
            [
                change(
                    isr=(2, 3),
                    leader=3,
                    replicas=(3, 2),
                    adding_replicas=(),
                    removing_replicas=(),
                    directories=(DIRECTORIES[3], DIRECTORIES[2]),
                )
            ]
        ],
        "reassignment-completed",
        "isr",
        None,
    ),
    "a reassignment is cancelled": (
        partition(replicas=(2, 3, 1), isr=(1, 2), adding_replicas=(3,), removing_replicas=(1,)),
        [
            [
                change(
                    leader=1,
                    replicas=(2, 1),
                    adding_replicas=(),
                    removing_replicas=(),
                    directories=(DIRECTORIES[2], DIRECTORIES[1]),
                )
            ]
        ],
        "reassignment-cancelled",
        "same",
        None,
    ),
    "a reassignment gets another target": (
        partition(replicas=(1, 2, 3), isr=(1, 2), adding_replicas=(3,)),
        [[change(replicas=(1, 3, 2), removing_replicas=(2,))]],
        "reassignment-changed",
        None,
        None,
    ),
    "a leader changes and nothing tells why": (partition(), [[change(leader=2)]], "unknown", "isr", None),
    "only the epoch grows": (partition(), [[change(leader=1)]], "unknown", "same", 1),
    "a topic is created": (partition(), [], "topic-created", "first", None),
    "a partition is added": (partition(), [[partition(1)]], "partitions-added", "first", None),
    "brokers are fenced as before 3.3": (
        partition(),
        [[change(isr=(2, 3), leader=2), FenceBrokerRecord(id=1, epoch=1)]],
        "session-timeout",
        "isr",
        1,
    ),
    "brokers are unfenced as before 3.3": (
        partition(leader=-1, isr=(1,)),
        [[FenceBrokerRecord(id=1, epoch=1)], [UnfenceBrokerRecord(id=1, epoch=1), change(leader=1)]],
        "broker-unfenced",
        "isr",
        1,
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_gives_cause_election_and_broker(rule: str) -> None:
    before, batches, code, election, broker = RULES[rule]
    log = cluster(before)
    for batch in batches:
        log.batch(*batch)
    row = last_change(log)
    assert (row["cause"], row["election"], row["cause_broker"]) == (code, election, broker), row["cause_text"]
    assert row["cause_text"]
    assert not row["cause_text"].endswith((".", ";", " "))


def test_every_code_is_documented() -> None:
    """The page names each code of these tests, and each in the history of a real cluster."""
    text = DOCS.read_text(encoding="utf-8")
    codes = {code for _, _, cause, election, _ in RULES.values() for code in (cause, election) if code is not None}
    for cluster_name in CLUSTERS:
        for rows in real_story(cluster_name).values():
            for row in rows:
                codes |= {row[name] for name in ("cause", "end_cause", "election") if row.get(name) is not None}
    assert [code for code in sorted(codes) if f"`{code}`" not in text] == []


# Brokers


def fencings(log: Log, options: Options | None = None) -> list[Row]:
    return log.tell("fencing", options=options)["fencing"]


def test_a_second_fence_marks_the_first_as_a_controlled_shutdown() -> None:
    log = cluster()
    log.batch(change(isr=(1, 2)), fence(3))
    assert [row["cause"] for row in fencings(log)] == ["broker-fenced"]
    second = log.batch(fence(3))
    [row] = fencings(log)
    assert row["cause"] == "controlled-shutdown"
    assert f"second fence record at offset {second}" in row["cause_text"]
    assert (row["isr_left"], row["leaders_moved"], row["valid_to"]) == (1, 0, None)


def test_a_fence_before_the_session_timeout_is_a_controlled_shutdown() -> None:
    log = cluster()
    log.batch(fence(3))
    log.batch(unfence(3))
    log.batch(change(isr=(1, 2)), fence(3), after_ms=5_000)
    assert last_change(log)["cause"] == "broker-fenced"
    assert last_change(log, Options(session_timeout_ms=9_000))["cause"] == "controlled-shutdown"
    assert last_change(log, Options(session_timeout_ms=4_000))["cause"] == "broker-fenced"


def test_a_decision_of_several_batches_is_one_event() -> None:
    """The record that explains 10,000 changes comes in the batch after them."""
    partitions = [partition(number) for number in range(FULL_BATCH)]
    log = Log()
    log.batch(registration(1, False), registration(2, False))
    log.batch(TopicRecord(name="orders", topic_id=TOPIC), *partitions)
    log.batch(*(change(number, isr=(2, 3), leader=2) for number in range(FULL_BATCH)))
    log.batch(fence(1))
    rows = log.tell("leadership_changes", "fencing")
    assert {row["cause"] for row in rows["leadership_changes"]} == {"session-timeout"}
    assert [row["leaders_moved"] for row in rows["fencing"]] == [FULL_BATCH]


def test_two_events_in_one_batch_are_distinguished() -> None:
    log = cluster(partition(0), partition(1, leader=-1, isr=(3,)), partition(2, leader=2))
    log.batch(fence(3))
    log.batch(
        change(0, isr=(2, 3), leader=2),
        fence(1),
        unfence(3),
        change(1, leader=3),
        change(2, isr=(1, 2)),
    )
    rows = log.tell("partition_history")["partition_history"]
    causes = {row["partition"]: row["cause"] for row in rows if row["valid_to"] is None}
    assert causes == {0: "session-timeout", 1: "broker-unfenced", 2: "isr-shrink"}


def test_a_brokers_life() -> None:
    log = Log()
    log.batch(registration(1))
    log.batch(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, cordoned_log_dirs=()))
    log.batch(unfence(1))
    log.batch(registration(1, False, rack="a"))
    log.batch(shutdown(1))
    log.batch(fence(1))
    log.batch(registration(1, incarnation_id=DIRECTORIES[9]))
    log.batch(UnregisterBrokerRecord(broker_id=1, broker_epoch=1))
    rows = log.tell("broker_history")["broker_history"]
    assert [row["cause"] for row in rows] == [
        "broker-registered",
        "directories-cordoned",
        "broker-unfenced",
        "broker-registered-again",
        "controlled-shutdown",
        "controlled-shutdown",
        "broker-restarted",
    ]
    assert rows[-1]["end_cause"] == "broker-unregistered"


# Configurations, rules, features


def test_unclean_elections_name_the_setting_that_allows_them() -> None:
    change_ = change(isr=(3,), leader=3, leader_recovery_state=1, eligible_leader_replicas=(), last_known_elr=())
    log = cluster(LEADERLESS)
    config = ConfigRecord(resource_type=4, resource_name="", name="unclean.leader.election.enable", value="true")
    log.batch(config)
    log.batch(change_)
    assert "by the periodic task as unclean.leader.election.enable is true" in last_change(log)["cause_text"]
    [row] = log.tell("unclean_elections")["unclean_elections"]
    assert (row["from_leader"], row["to_leader"], row["elr_before"], row["valid_to"]) == (-1, 3, (2,), None)
    log.batch(change(leader_recovery_state=0), after_ms=4_000)
    [row] = log.tell("unclean_elections")["unclean_elections"]
    assert (row["seconds"], row["end_cause"]) == (4.0, "leader-recovered")


def config(value: str | None, name: str = "retention.ms", resource: tuple[int, str] = (2, "orders")) -> ConfigRecord:
    return ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=name, value=value)


def test_a_key_is_set_changed_set_again_and_removed() -> None:
    log = cluster()
    for value in ("1", "2", "2", None, "3"):
        log.batch(config(value))
    log.batch(RemoveTopicRecord(topic_id=TOPIC))
    rows = log.tell("config_history")["config_history"]
    told = [(row["value"], row["previous_value"], row["cause"], row["end_cause"]) for row in rows]
    assert told == [
        ("1", None, "config-set", "config-set"),
        ("2", "1", "config-set", "config-set-again"),
        ("2", "2", "config-set-again", "config-removed"),
        ("3", None, "config-set", "topic-deleted"),
    ]


def test_secrets_are_shown_only_if_asked_for() -> None:
    log = Log()
    log.batch(config("old", "ssl.keystore.password", (4, "1")))
    log.batch(config("new", "ssl.keystore.password", (4, "1")))
    shown = [(row["value"], row["previous_value"]) for row in log.tell("config_history")["config_history"]]
    assert shown == [("(redacted)", None), ("(redacted)", "(redacted)")]
    options = Options(show_secrets=True)
    rows = log.tell("config_history", options=options)["config_history"]
    shown = [(row["value"], row["previous_value"]) for row in rows]
    assert shown == [("old", None), ("new", "old")]


def test_config_drift_lists_differences_from_the_default() -> None:
    log = Log()
    log.batch(config("5", "log.retention.ms", (4, "")))
    log.batch(config("5", "log.retention.ms", (4, "1")))
    log.batch(config("7", "log.retention.ms", (4, "2")))
    log.batch(config("7", "log.retention.ms", (4, "")), after_ms=3_000)
    rows = log.tell("config_drift")["config_drift"]
    columns = ("resource_name", "value", "default_value", "seconds", "end_cause")
    told = [tuple(row[name] for name in columns) for row in rows]
    assert told == [("2", "7", "5", 3.0, "no-longer-different"), ("1", "5", "7", 0.0, None)]


def acl(number: int, permission: int, operation: int, **fields: Any) -> AccessControlEntryRecord:
    values: dict[str, Any] = {
        "principal": "User:alice",
        "resource_name": "orders",
        "pattern_type": 3,
        "host": "*",
        **fields,
    }
    of: dict[str, Any] = {
        "id": DIRECTORIES[number],
        "resource_type": 2,
        "operation": operation,
        "permission_type": permission,
    }
    return AccessControlEntryRecord(**of, **values)


def test_acl_audit_lists_denials_and_implied_operations() -> None:
    log = Log()
    log.batch(acl(1, 3, 3), acl(2, 3, 8, principal="User:bob"))
    deny = log.batch(acl(3, 2, 2, resource_name="ord", pattern_type=4))
    log.batch(RemoveAccessControlEntryRecord(id=DIRECTORIES[3]), after_ms=2_000)
    rows = log.tell("acl_audit")["acl_audit"]
    alice = [row for row in rows if row["acl_id"] == str(DIRECTORIES[1])]
    assert [(row["effective"], row["implied_operations"], row["cause"]) for row in alice] == [
        (True, ("DESCRIBE",), "acl-created"),
        (False, ("DESCRIBE",), "acl-overruled"),
        (True, ("DESCRIBE",), "acl-removed"),
    ]
    assert alice[1]["denied_by"] == (str(DIRECTORIES[3]),)
    assert (alice[1]["valid_from_offset"], alice[1]["seconds"]) == (deny, 2.0)
    assert [row["effective"] for row in rows if row["principal"] == "User:bob"] == [True]


@pytest.mark.parametrize(
    ("denial", "overruled"),
    [
        ({"principal": "User:*"}, True),
        ({"principal": "User:bob"}, False),
        ({"host": "10.0.0.1"}, False),
        ({"resource_name": "*"}, True),
        ({"resource_name": "order"}, False),
        ({"resource_name": "orders", "pattern_type": 4}, True),
        ({"operation": 3}, True),
        ({"operation": 4}, False),
    ],
    ids=str,
)
def test_a_deny_acl_overrides_only_what_it_covers(denial: dict[str, Any], overruled: bool) -> None:
    log = Log()
    log.batch(acl(1, 3, 3), acl(2, 2, denial.pop("operation", 2), **denial))
    rows = log.tell("acl_audit")["acl_audit"]
    [last] = [row for row in rows if row["permission"] == "ALLOW" and row["valid_to_offset"] is None]
    assert last["effective"] is not overruled


def test_levels_of_features() -> None:
    log = Log()
    log.control(KRaftVersionRecord(kraft_version=1), VotersRecord(voters=(VotersRecordVoter(voter_id=1),)))
    for level in (29, 30, 29):
        log.batch(FeatureLevelRecord(name="metadata.version", feature_level=level))
    log.batch(FeatureLevelRecord(name="share.version", feature_level=1))
    log.batch(FeatureLevelRecord(name="share.version", feature_level=0))
    log.batch(FeatureLevelRecord(name="kraft.version", feature_level=7))
    rows = log.tell("feature_history")["feature_history"]
    told = {(row["feature"], row["level"], row["previous_level"], row["release"], row["cause"]) for row in rows}
    assert told == {
        ("kraft.version", 1, None, None, "feature-finalized"),
        ("metadata.version", 29, None, "4.2-IV1", "feature-finalized"),
        ("metadata.version", 30, 29, "4.3-IV0", "feature-upgraded"),
        ("metadata.version", 29, 30, "4.2-IV1", "feature-downgraded"),
        ("share.version", 1, None, None, "feature-finalized"),
    }


# The quorum


def leader_change(leader: int) -> LeaderChangeMessage:
    voters = tuple(LeaderChangeMessageVoter(voter_id=number) for number in (1, 2, 3))
    return LeaderChangeMessage(leader_id=leader, voters=voters, granting_voters=voters[:2])


def test_gaps_are_classified_as_silence_or_election() -> None:
    log = Log()
    log.control(leader_change(1))
    for wait in (500, 500, 4_000, 500, 1_400):
        log.batch(NoOpRecord(), after_ms=wait)
    log.epoch = 4
    log.control(leader_change(2), after_ms=3_000)
    log.batch(NoOpRecord(), after_ms=500)
    rows = log.tell("controller_gaps", "quorum_epochs", "controller_elections")
    gaps = [(row["kind"], row["seconds"], row["leader_before"], row["leader_after"]) for row in rows["controller_gaps"]]
    assert gaps == [("silence", 4.0, 1, 1), ("election", 3.0, 1, 2)]
    epochs = [(row["quorum_epoch"], row["leader_id"], row["skipped_epochs"]) for row in rows["quorum_epochs"]]
    assert epochs == [(1, 1, None), (4, 2, 2)]
    assert [row["silence_seconds"] for row in rows["controller_elections"]] == [None, 3.0]
    wide = log.tell("controller_gaps", options=Options(gap_tolerance_ms=5_000))
    assert [row["kind"] for row in wide["controller_gaps"]] == ["election"]


def test_without_noops_silence_means_nothing() -> None:
    """metadata.max.idle.interval.ms may be 0: then there is no clock."""
    log = cluster()
    log.batch(change(isr=(1, 2)), after_ms=60_000)
    assert log.tell("controller_gaps")["controller_gaps"] == []


def test_voters_come_go_and_change() -> None:
    log = Log()
    one, two = VotersRecordVoter(voter_id=1), VotersRecordVoter(voter_id=2, voter_directory_id=DIRECTORIES[2])
    log.control(VotersRecord(voters=(one,)))
    log.control(VotersRecord(voters=(one, two)))
    moved = VotersRecordVoter(voter_id=1, kraft_version_feature=type(one.kraft_version_feature)(0, 1))
    log.control(VotersRecord(voters=(moved, two)))
    log.control(VotersRecord(voters=(moved,)))
    rows = log.tell("voter_history")["voter_history"]
    assert {(row["voter"], row["cause"], row["end_cause"]) for row in rows} == {
        (1, "voters-begin", "voter-updated"),
        (1, "voter-updated", None),
        (2, "voter-added", "voter-removed"),
    }


def test_controllers_restart() -> None:
    log = Log()
    for incarnation, ready in ((1, False), (2, False), (2, True)):
        record = RegisterControllerRecord(
            controller_id=1, incarnation_id=DIRECTORIES[incarnation], zk_migration_ready=ready
        )
        log.batch(record)
    rows = log.tell("controller_history")["controller_history"]
    causes = [row["cause"] for row in rows]
    assert causes == ["controller-registered", "controller-restarted", "controller-registered-again"]


# What follows


def test_unavailability_without_leader_and_below_min_isr_is_listed() -> None:
    log = cluster(partition())
    log.batch(config("2", "min.insync.replicas", (4, "")))
    log.batch(change(isr=(1,)))
    leaderless = change(isr=(), leader=-1, eligible_leader_replicas=(1,), last_known_elr=(1,))
    log.batch(shutdown(1), leaderless, after_ms=2_000)
    log.batch(unfence(2), change(isr=(1, 2), leader=1, eligible_leader_replicas=(), last_known_elr=()), after_ms=5_000)
    log.batch(config("3", "min.insync.replicas"), after_ms=1_000)
    log.batch(config(None, "min.insync.replicas"), after_ms=10_000)
    rows = log.tell("unavailability")["unavailability"]
    columns = ("kind", "seconds", "min_isr", "isr_size", "cause", "end_cause")
    told = [tuple(row[name] for name in columns) for row in rows]
    assert told == [
        ("leaderless", 5.0, 2, 0, "controlled-shutdown", "broker-unfenced"),
        ("below-min-isr", 7.0, 2, 1, "isr-shrink", "broker-unfenced"),
        ("below-min-isr", 10.0, 3, 2, "config-set", "config-removed"),
    ]


def test_isr_flaps_are_replicas_that_left_and_returned() -> None:
    log = cluster()
    log.batch(change(isr=(1, 2)))
    log.batch(change(isr=(1,)))
    log.batch(change(isr=(1, 3)), after_ms=6_000)
    rows = log.tell("isr_flaps")["isr_flaps"]
    told = [(row["broker"], row["leader"], row["seconds"], row["cause"], row["end_cause"]) for row in rows]
    assert told == [(3, 1, 7.0, "isr-shrink", "isr-expand")]


def test_a_changed_reassignment_target_starts_a_second_reassignment() -> None:
    log = cluster(partition(replicas=(1, 2), isr=(1, 2)))
    log.batch(change(replicas=(1, 2, 3), adding_replicas=(3,), directories=THREE))
    log.batch(change(isr=(1,)))
    log.batch(change(replicas=(1, 3, 2), removing_replicas=(2,)))
    log.batch(RemoveTopicRecord(topic_id=TOPIC))
    rows = log.tell("reassignments")["reassignments"]
    told = [(row["from_replicas"], row["to_replicas"], row["outcome"], row["steps"], row["seconds"]) for row in rows]
    assert told == [((1, 2), (1, 2, 3), "superseded", 2, 2.0), ((1, 2), (1, 3), "topic-deleted", 1, 1.0)]


def test_churn_is_counted_per_hour() -> None:
    log = cluster()
    log.batch(change(isr=(2, 3), leader=2), fence(1))
    log.batch(unfence(1))
    log.batch(change(isr=(1, 2, 3)), config("1"), after_ms=3_600_000)
    rows = log.tell("churn")["churn"]
    columns = ("kind", "name", "partition_changes", "leader_changes", "isr_shrinks", "isr_expands")
    counts = [tuple(row[name] for name in columns) for row in rows]
    assert counts == [
        ("broker", "1", 1, 1, 1, 0),
        ("broker", "2", 1, 1, 0, 0),
        ("broker", "3", 0, 0, 0, 0),
        ("topic", "orders", 1, 1, 1, 0),
        ("broker", "1", 0, 0, 0, 1),
        ("broker", "2", 1, 0, 0, 0),
        ("topic", "orders", 1, 0, 0, 1),
    ]
    assert [(row["fencings"], row["registrations"]) for row in rows[:3]] == [(1, 1), (0, 1), (0, 1)]
    assert rows[-1]["config_changes"] == 1
    assert rows[-1]["hour"] - rows[0]["hour"] == 3_600_000


def test_every_row_has_the_columns_of_its_view() -> None:
    log = cluster()
    log.batch(change(isr=(2, 3), leader=2), fence(1))
    rows = log.tell(*VIEWS)
    assert {view for view in VIEWS if rows[view]} >= {"partition_history", "fencing", "churn", "retention"}
