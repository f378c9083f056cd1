"""A fault of a real cluster as data: its cause, the findings of `kraft doctor`, and the remedies that cure it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct

from doctor_cluster import PATIENCE_SECONDS, DoctorCluster
from kraft.operate.doctor.facts.catalog import CATALOG
from support.interop.real_kafka import eventually

Found = dict[str, Any]
"""A finding as `kraft doctor --json` prints it."""
Act = Callable[[DoctorCluster], None]
Words = Callable[[DoctorCluster], tuple[str, ...]]
LIVE = "live"
OFFLINE = "directories and configurations"
BOTH = "live, with a configuration"
BEFORE = "planned step, live"


class Expected(Struct, frozen=True, kw_only=True):
    """A finding that a fault must cause.

    Args:
        check: The id of the check.
        way: What the doctor reads, for the table: `LIVE`, `OFFLINE`, `BOTH` or `BEFORE`.
        words: The words of the doctor's call.
        nodes: The nodes that the finding must name.
        subjects: The partitions, brokers, settings or users that the finding must name.
        command: What the printed remedy must contain, with places of the cluster in braces.
        cure: Carries the remedy out; None where the remedy of the finding before it is the same step.
        done: What was carried out, for the table.
        severity: The severity, where a check has several; a finding of another one does not count.
        follows: Whether the finding appears only when the finding before it is cured.
    """

    check: str
    way: str
    words: Words
    command: str
    done: str
    cure: Callable[[DoctorCluster, Found], object] | None = None
    nodes: tuple[int, ...] = ()
    subjects: tuple[str, ...] = ()
    severity: str = ""
    follows: bool = False


class Fault(Struct, frozen=True, kw_only=True):
    """A fault.

    Args:
        name: The name of the fault in the list of faults.
        cause: How the fault is caused, for the table.
        make: Causes the fault.
        expected: The findings, in the order in which they are cured.
        afterwards: What must be true at the end, and the way back to the cluster of the next fault.
    """

    name: str
    cause: str
    make: Act
    expected: tuple[Expected, ...]
    afterwards: Act = lambda cluster: None


def matching(cluster: DoctorCluster, expected: Expected) -> list[Found]:
    """The findings of the doctor now that are the expected one."""
    names = {f"node {node}" for node in expected.nodes}
    return [
        one
        for one in cluster.examine(expected.words(cluster))["findings"]
        if one["id"] == expected.check
        and all(any(name == own or own.startswith(f"{name} ") for own in one["nodes"]) for name in names)
        and set(expected.subjects) <= set(one["subjects"])
        and expected.severity in {"", one["severity"]}
    ]


def wait_for(cluster: DoctorCluster, expected: Expected) -> Found:
    """The expected finding, as soon as the doctor reports it."""
    found: list[Found] = []

    def is_reported() -> bool:
        found[:] = matching(cluster, expected)
        return bool(found)

    eventually(is_reported, f"doctor reports {expected.check}", PATIENCE_SECONDS)
    return found[0]


def carry_through(cluster: DoctorCluster, fault: Fault) -> None:
    """Cause a fault, let the doctor find it, carry the remedies out, and see that the findings are gone."""
    for expected in fault.expected:
        present = matching(cluster, expected)
        assert not present, f"{fault.name}: {expected.check} is reported before the fault: {present}"
    fault.make(cluster)
    found = {place: wait_for(cluster, one) for place, one in enumerate(fault.expected) if not one.follows}
    for place, expected in enumerate(fault.expected):
        finding = found.get(place) or wait_for(cluster, expected)
        check_remedy(cluster, expected, finding)
        if expected.cure is not None:
            expected.cure(cluster, finding)
        eventually(
            partial(is_gone, cluster, expected),
            f"{fault.name}: {expected.check} is gone after: {finding['remedy']}",
            PATIENCE_SECONDS,
        )
        print(f"{fault.name}: {expected.check} ({finding['severity']}) was found and cured")
    fault.afterwards(cluster)


def is_gone(cluster: DoctorCluster, expected: Expected) -> bool:
    """Whether the doctor does not report the expected finding."""
    return not matching(cluster, expected)


def check_remedy(cluster: DoctorCluster, expected: Expected, finding: Found) -> None:
    """The finding has evidence, what was read, and a remedy that contains the command."""
    command = expected.command.format(root=cluster.root, bootstrap=cluster.bootstrap, **addresses(cluster))
    assert command in finding["remedy"], f"{expected.check}: {command!r} is not in {finding['remedy']!r}"
    assert finding["evidence"], finding
    assert finding["read"], finding
    assert finding["source"] == CATALOG[expected.check].source


def addresses(cluster: DoctorCluster) -> dict[str, str]:
    """The addresses of the nodes, by the names `n1`, `n2` and so on."""
    return {f"n{node}": cluster.address(node) for node in cluster.ports}
