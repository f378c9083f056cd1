"""The same requests to Apache Kafka's controller and to ours: answers equal field by field, records batch by batch.

Differ may only what chance draws: topic ids, and where a controller places replicas. Brokers are stubs that register
and beat over the wire. What Kafka answers here is recorded in tests/data, for
`tests/kraft/controller/test_controller_answers.py`.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

import pytest

from controller_releases import OTHERWISE, SAME_RECORDS, differing
from kraft.config import Config
from kraft.node.options import process_options
from metadata_log.releases import NEWEST_RELEASE
from metadata_log.serde import schema_of
from support.differential.controller_draws import DEFAULT_RUN, STEPS, Draw
from support.differential.controller_sides import InProcess, Side, by_batches, plain, recorded_answers, without_frame
from support.differential.controller_stories import (
    DIFFERENCES,
    GROUPS,
    GROUPS_OF_A_NODE,
    OUR_ANSWERS,
    STORIES,
    Step,
    latest,
    reassignments,
    told,
    unregister,
)
from support.differential.tiered_stories import TIERED, TIERED_OF_NODES
from support.interop.one_controller import both, log_of, side_of, single
from support.interop.real_kafka import (
    KafkaInstallation,
    QuorumLayout,
    eventually,
    kafka_controller,
    kafka_format,
    running,
)
from support.wire import active_controller
from transport.interface import Endpoint
from transport.protocol import messages as m
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error

UNKNOWN_BROKER: Final = 99_999

pytestmark = pytest.mark.kafka


@pytest.mark.each_release
def test_answers_and_records_are_kafkas(turn_kafka: KafkaInstallation, tmp_path: Path) -> None:
    """Those of an older release, as far as it knows what is asked, if ours has its level."""
    with both(turn_kafka, tmp_path) as (theirs, ours):
        one, other = side_of(theirs), side_of(ours)
        if (release := turn_kafka.release) != NEWEST_RELEASE:
            found = differing(release, one, other)
            assert found.keys() == OTHERWISE[release].keys(), "\n".join(f"{at}: {both}" for at, both in found.items())
            assert release not in SAME_RECORDS or by_batches(log_of(ours)) == by_batches(log_of(theirs))
            return
        for name, story in STORIES.items():
            kafkas = told(one, story)
            assert told(other, story) == kafkas, name
            assert plain(kafkas) == recorded_answers()[name], f"tests/data has other answers to the story {name}"
        assert by_batches(log_of(ours)) == by_batches(log_of(theirs))
        for reason, story in DIFFERENCES.items():
            eventually(lambda: told(one, [unregister(UNKNOWN_BROKER)])[0]["error_code"] != Error.NOT_CONTROLLER, "back")
            kafkas, our = told(one, story), told(other, story)
            assert kafkas[:-1] == our[:-1], reason
            assert without_frame(plain(our[-1])) == OUR_ANSWERS[reason], reason
            assert kafkas[-1] != our[-1], reason


@pytest.mark.parametrize(("name", "settings"), [("groups", {}), ("groups of a node with settings", GROUPS_OF_A_NODE)])
def test_settings_of_groups_are_bounded_and_described_as_kafkas(
    newer_kafka: KafkaInstallation, tmp_path: Path, name: str, settings: dict[str, str]
) -> None:
    with both(newer_kafka, tmp_path, *(f"{key}={value}" for key, value in settings.items())) as (theirs, ours):
        one, other = side_of(theirs), side_of(ours)
        for step, recorded in zip(GROUPS, recorded_answers()[name], strict=True):
            [our] = told(other, [step])
            assert plain(our) == recorded
            if isinstance(step[0](other), m.DescribeConfigsRequest):
                eventually(lambda step=step, our=our: told(one, [step]) == [our], "Kafka has published it", 5)
            else:
                assert told(one, [step]) == [our]


@pytest.mark.parametrize("name", TIERED_OF_NODES)
def test_settings_of_tiered_storage_are_judged_as_by_kafka(
    newer_kafka: KafkaInstallation, tmp_path: Path, name: str
) -> None:
    with both(newer_kafka, tmp_path, *(f"{key}={value}" for key, value in TIERED_OF_NODES[name].items())) as sides:
        theirs, ours = (plain(told(side_of(side), TIERED)) for side in sides)
    assert ours == theirs == recorded_answers()[name]


FULL = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS",
    "delegation.token.secret.key=shared",
    # Nothing is done from time to time, as the clock of our side stands still.
    "auto.leader.rebalance.enable=false",
    "unclean.leader.election.interval.ms=3600000",
    "num.partitions=2",
    "log.retention.hours=48",
    "log.roll.hours=24",
    "log.flush.scheduler.interval.ms=60000",
    "message.max.bytes=2000000",
    "unclean.leader.election.enable=false",
)
"""Settings with which there is more to administrate, and more to tell of it."""


def in_process(layout: QuorumLayout) -> InProcess:
    """Our controller with the same settings, in this process, so that what is drawn can depend on its state."""
    options = process_options(
        Config.load(str(layout.properties(1))), [Endpoint("127.0.0.1", layout.ports[1])], inline_flush=True
    )
    return InProcess(
        voters=((1, "127.0.0.1", layout.ports[1]),),
        listeners=(("CONTROLLER", "127.0.0.1", layout.ports[1]),),
        max_idle_interval_ms=0,
        topics=options.topics,
        decisions=options.decisions,
        admin=options.admin,
        own_settings=options.own_settings,
    )


READS: Final = (
    reassignments(),
    latest(lambda side: m.DescribeClusterRequest(endpoint_type=2)),
    latest(
        lambda side: m.DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
    ),
)
"""What a controller tells of its state. Kafka's publishes it a moment after the writes are answered."""


LATE: Final = (ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN)


def is_late(step: Step, side: Side) -> bool:
    """Whether Kafka's controller answers this from what it has published, and so perhaps without the last writes."""
    request = step[0](side)
    if isinstance(request, m.EnvelopeRequest):
        return int.from_bytes(request.request_data[:2], "big") in LATE
    return schema_of(type(request)).api_key in LATE


@pytest.mark.parametrize(("seed", "count"), [DEFAULT_RUN, pytest.param(2, 300, marks=pytest.mark.soak)])
def test_random_sequences_have_kafkas_answers_and_records(
    newer_kafka: KafkaInstallation, tmp_path: Path, seed: int, count: int
) -> None:
    """Our controller decides in this process, so that what is drawn can depend on the state."""
    layout = single(tmp_path / "theirs", *FULL)
    kafka_format(newer_kafka, layout)
    controller = in_process(layout)
    with running(layout, kafka_controller(newer_kafka, layout), name="kafka"):
        eventually(lambda: active_controller(layout.ports[1]) == 1, "it is active")
        theirs, ours = side_of(layout), Side(controller.ask)
        for number in range(count):
            draw = Draw(Random(seed * 1000 + number), f"s{number}", ours, lambda: controller.controller.history.latest)
            for step in draw.sequence(STEPS):
                where = f"seed {seed}, sequence {number}: {step[0](ours)}"
                expected = told(ours, [step])
                if not is_late(step, ours):
                    assert expected == told(theirs, [step]), where
                else:
                    eventually(lambda step=step, expected=expected: told(theirs, [step]) == expected, where, 5)
            for step in READS:
                expected = told(ours, [step])
                eventually(lambda step=step, expected=expected: told(theirs, [step]) == expected, f"{step[0](ours)}", 5)
        assert by_batches(controller.batches) == by_batches(log_of(layout))
