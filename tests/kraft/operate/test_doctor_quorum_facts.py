"""Checks of a live quorum, and preflights on it, from facts: what a test over TCP cannot cause within seconds."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.operate.doctor.before import is_safe, preflight
from kraft.operate.doctor.diagnose import diagnose, merged
from kraft.operate.doctor.facts.finding import Finding, Severity
from kraft.operate.doctor.facts.log_facts import ImageFacts
from kraft.operate.doctor.facts.node import Facts, LiveAnswer, LiveFacts, LiveReplica
from kraft.operate.doctor.sarif import sarif
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.records.metadata import RegisterControllerRecord
from metadata_log.types import OffsetAndEpoch, Uuid

WHERE = "127.0.0.1:9093"


def directory(number: int) -> Uuid:
    return Uuid(bytes(14) + bytes([1, number]))


def replica(number: int, *, end: int = 5000, behind_ms: int | None = 0, disk: int | None = None) -> LiveReplica:
    return LiveReplica(
        id=number,
        directory_id=directory(number if disk is None else disk),
        log_end_offset=end,
        caught_up_ms_ago=behind_ms,
        fetched_ms_ago=behind_ms,
    )


def live(*voters: LiveReplica, **more: Any) -> LiveFacts:
    usual: dict[str, Any] = {
        "bootstrap": WHERE,
        "cluster_id": "bXJKq1A8SQG97oAf89FrDw",
        "leader_id": 1,
        "leader_epoch": 7,
        "voters": voters,
        "answers": tuple(LiveAnswer(id=one.id, address=f"host{one.id}:9093", epoch=7, leader_id=1) for one in voters),
        "epochs_seen": (7,),
    }
    return LiveFacts(**(usual | more))


def image_with_controllers(*ids: int) -> ImageFacts:
    delta = MetadataDelta(MetadataImage())
    for offset, number in enumerate(ids):
        delta.replay(RegisterControllerRecord(controller_id=number, incarnation_id=directory(number)), offset)
    return ImageFacts(where=WHERE, image=delta.apply(OffsetAndEpoch(epoch=7, offset=len(ids))))


def findings(facts: LiveFacts, image: ImageFacts | None = None) -> dict[str, Finding]:
    return {one.id: one for one in diagnose(Facts(live=facts, image=image)).findings}


THREE = (replica(1), replica(2), replica(3))


def test_a_healthy_quorum_has_no_finding() -> None:
    assert findings(live(*THREE), image_with_controllers(1, 2, 3)) == {}


@pytest.mark.parametrize("late", [replica(3, end=3999), replica(3, behind_ms=30_001), replica(3, behind_ms=None)])
def test_a_voter_behind_a_bare_majority_is_an_error(late: LiveReplica) -> None:
    found = findings(live(replica(1), replica(2), late))
    assert found.keys() == {"voter-lag"}
    assert found["voter-lag"].severity == "error"
    assert "2 of 3 voters have caught up" in found["voter-lag"].evidence


def test_a_voter_behind_is_a_warning_if_more_than_a_majority_is_left() -> None:
    five = (*THREE, replica(4), replica(5, behind_ms=60_000))
    assert findings(live(*five))["voter-lag"].severity == "warn"


@pytest.mark.parametrize("near", [replica(3, end=4000), replica(3, behind_ms=30_000)])
def test_a_voter_within_the_limits_is_no_finding(near: LiveReplica) -> None:
    assert findings(live(replica(1), replica(2), near)) == {}


def test_an_epoch_that_rises_again_and_again_is_fatal() -> None:
    assert "no-leader" not in findings(live(*THREE, epochs_seen=(7, 8, 9, 10)))
    found = findings(live(*THREE, epochs_seen=(7, 8, 9, 10, 11)))
    assert found["no-leader"].severity == "fatal"
    assert found["no-leader"].evidence.startswith("the epoch rose 4 times, to 11")


def test_no_leader_names_the_state_of_each_controller() -> None:
    answers = (
        LiveAnswer(id=1, address="host1:9093", epoch=9),
        LiveAnswer(id=-1, address="host2:9093", problem="Connection refused"),
    )
    silent = live(leader_id=-1, answers=answers, problem="no active controller answered within 1 s")
    found = findings(silent)
    assert found["no-leader"].evidence == (
        "no controller leads (no active controller answered within 1 s); controller 1 at host1:9093: epoch 9, "
        "no leader; the controller at host2:9093: Connection refused"
    )
    assert found["no-leader"].subjects == ("host2:9093",)


@pytest.mark.parametrize(("clock_ms", "direction"), [(5_000, "5.0 s behind"), (-5_000, "5.0 s ahead of")])
def test_a_leader_with_another_time_is_named(clock_ms: int, direction: str) -> None:
    assert direction in findings(live(*THREE, clock_ms=clock_ms))["clock-skew"].evidence
    assert findings(live(*THREE, clock_ms=clock_ms // 10)) == {}


def test_a_controller_that_fetches_with_another_directory_is_named() -> None:
    facts = live(*THREE, observers=(replica(3, disk=9), replica(101)))
    found = findings(facts, image_with_controllers(1, 2, 3))
    assert found.keys() == {"directory-id-not-voter"}
    assert found["directory-id-not-voter"].remedy == (
        f"kraft quorum remove 3 --directory-id {directory(3)}, then kraft quorum add 3"
    )


def test_an_observer_that_the_leader_still_lists_is_no_finding_after_its_last_fetch() -> None:
    """Kafka's leader lists the former directory of a voter that was removed and added for five minutes."""
    facts = live(*THREE, observers=(replica(3, disk=9, behind_ms=10_001),))
    assert findings(facts, image_with_controllers(1, 2, 3)) == {}


def test_a_registered_controller_that_does_not_fetch_is_a_ghost() -> None:
    found = findings(live(*THREE, observers=(replica(4),)), image_with_controllers(1, 2, 3, 4, 99))
    assert found["observer-controller"].subjects == ("4",)
    assert found["ghost-registration"].subjects == ("99",)
    stopped = findings(live(*THREE, observers=(replica(4, behind_ms=60_000),)), image_with_controllers(1, 2, 3, 4))
    assert stopped.keys() == {"ghost-registration"}
    assert stopped["ghost-registration"].subjects == ("4",)


# --------------------------------------------------------------------------------------------------------- preflights


def reasons(facts: LiveFacts, operation: str, node_id: int) -> list[tuple[str, str]]:
    return [(str(one.severity), one.evidence) for one in preflight(Facts(live=facts), operation, node_id, ())]


def test_a_restart_waits_for_voters_that_have_not_caught_up_within_seconds() -> None:
    assert reasons(live(*THREE), "restart", 2) == []
    slow = live(replica(1), replica(2), replica(3, behind_ms=4_001))
    ((severity, evidence),) = reasons(slow, "restart", 2)
    assert severity == "fatal"
    assert evidence == (
        "without voter 2 a majority needs 2 voters that have caught up: voter 1 has caught up, voter 3 is behind"
    )


def test_a_restart_of_the_leader_with_a_slow_voter_is_a_warning() -> None:
    five = live(*THREE, replica(4), replica(5, behind_ms=60_000))
    ((severity, evidence),) = reasons(five, "restart", 1)
    assert severity == "warn"
    assert evidence.startswith("1 leads, and not every other voter has caught up")


def test_a_voter_that_does_not_answer_has_not_caught_up() -> None:
    answers = (
        LiveAnswer(id=1, address="host1:9093", epoch=7, leader_id=1),
        LiveAnswer(id=2, address="host2:9093", epoch=7, leader_id=1),
        LiveAnswer(id=3, address="host3:9093", problem="Connection refused"),
    )
    assert [severity for severity, _ in reasons(live(*THREE, answers=answers), "restart", 2)] == ["fatal"]
    assert [severity for severity, _ in reasons(live(*THREE, answers=answers), "restart", 3)] == []


def test_a_removal_leaves_a_majority_that_has_caught_up() -> None:
    assert reasons(live(*THREE), "remove-voter", 3) == [("warn", "2 voters remain (1, 2): 0 may fail")]
    slow = live(replica(1), replica(2, behind_ms=60_000), replica(3))
    found = reasons(slow, "remove-voter", 3)
    assert ("fatal", "the majority of the 2 remaining voters is 2: voter 1 has caught up, voter 2 is behind") in found
    assert reasons(slow, "remove-voter", 2) == [("warn", "2 voters remain (1, 3): 0 may fail")]


def test_the_format_of_a_voter_is_refused_until_its_removal() -> None:
    found = preflight(Facts(live=live(*THREE, leader_id=-1)), "format", 3, ())
    assert not is_safe(found)


# ------------------------------------------------------------------------------------------------------------- output


def test_findings_that_say_the_same_are_one_with_all_nodes_and_places() -> None:
    same = [
        Finding(id="log-gap", severity=Severity.FATAL, evidence="x", nodes=(f"node {number}",), read=(f"p{number}",))
        for number in (1, 2)
    ]
    other = Finding(id="log-gap", severity=Severity.FATAL, evidence="y", nodes=("node 3",))
    assert [(one.evidence, one.nodes, one.read) for one in merged([*same, other])] == [
        ("x", ("node 1", "node 2"), ("p1", "p2")),
        ("y", ("node 3",), ()),
    ]


def test_a_request_is_no_file_in_sarif() -> None:
    found = tuple(findings(live(replica(1), replica(2), replica(3, behind_ms=None))).values())
    (result,) = sarif(found, "1")["runs"][0]["results"]
    assert result["locations"] == [
        {
            "logicalLocations": [{"fullyQualifiedName": f"{WHERE}: DescribeQuorum"}],
            "message": {"text": f"{WHERE}: DescribeQuorum"},
        }
    ]
