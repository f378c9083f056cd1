"""Seeded runs of whole clusters, brokers and administration included; a failure names its seed and how to replay it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from kraft.broker import replicas
from kraft.controller import broker_heartbeat, broker_registration, isr
from kraft.controller.brokers import restart
from kraft.controller.deciding import Deciding
from kraft.controller.leader_election import Candidates
from kraft.controller.result import VersionedRecord
from kraft.controller.topic_configs import TopicDefaults
from kraft.sim import InvariantViolated, run_cluster
from metadata_log.errors import MetadataLogError
from metadata_log.image import Broker, ImageHistory, MetadataImage, Partition, topics_delta
from metadata_log.image.topics import merge
from metadata_log.records.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord
from transport.protocol.errors import Error
from transport.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest


def _run_slice(first: int, count: int, nodes: int = 3, brokers: int = 3) -> int:
    """How many changes of partitions there were."""
    print(f"seeds {first} to {first + count - 1}, {nodes} controllers, {brokers} brokers")
    return sum(run_cluster(seed, nodes, brokers)[1].changes for seed in range(first, first + count))


def test_a_cluster_keeps_its_promises_under_faults() -> None:
    """Leaders in their ISRs, epochs that rise, nothing that was acknowledged is led away, equal metadata everywhere;
    and in the end every partition is whole again.
    """
    assert _run_slice(0, 12) > 12 * 10, "a simulation in which nothing changes shows nothing"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1000, 5000, 100))
def test_a_cluster_keeps_its_promises_in_four_thousand_runs(first: int) -> None:
    _run_slice(first, 70)
    _run_slice(first + 70, 20, nodes=1, brokers=4)
    _run_slice(first + 90, 10, nodes=5, brokers=2)


def test_a_cluster_is_the_same_run_in_every_process() -> None:
    """A failure that another process cannot repeat cannot be mended."""
    script = "from kraft.sim import run_cluster; print(run_cluster(1, chaos_ms=6000)[0].digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1


# Broken controllers and agents


def _let_fenced_brokers_into_an_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr, "_is_eligible", lambda *_: True)
    monkeypatch.setattr(replicas, "_is_eligible", lambda *_: True)


def _keep_the_leader_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    def merge_without_epoch(old: Partition, record: PartitionChangeRecord) -> Partition:
        return replace(merge(old, record), leader_epoch=old.leader_epoch)

    monkeypatch.setattr(topics_delta, "merge", merge_without_epoch)


def _listen_to_former_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    registered = broker_heartbeat._registered

    def registered_with_any_epoch(deciding: Deciding, request: BrokerHeartbeatRequest) -> tuple[Broker, int]:
        broker = deciding.image.brokers.by_id.get(request.broker_id)
        epoch = request.broker_epoch if broker is None else broker.epoch
        return registered(deciding, replace(request, broker_epoch=epoch))

    monkeypatch.setattr(broker_heartbeat, "_registered", registered_with_any_epoch)


def _elect_outside_of_the_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_valid(candidates: Candidates, replica: int) -> bool:
        return replica in candidates.replicas and candidates.is_acceptable(candidates.partition, replica)

    monkeypatch.setattr(Candidates, "is_valid", is_valid)


def _forget_to_roll_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def rollback(history: ImageHistory) -> None:
        history.committed = history.latest
        history._uncommitted.clear()

    monkeypatch.setattr(ImageHistory, "rollback", rollback)


def _trust_every_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    def restart_cleanly(
        image: MetadataImage, broker_id: int, defaults: TopicDefaults, *, is_clean: bool
    ) -> list[VersionedRecord]:
        return restart(image, broker_id, defaults, is_clean=True)

    monkeypatch.setattr(broker_registration, "restart", restart_cleanly)


def _overlook_partition_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    error = isr._error

    def error_but_of_epochs(*arguments: Any) -> Error:
        found = error(*arguments)
        return Error.NONE if found is Error.INVALID_UPDATE_VERSION else found

    monkeypatch.setattr(isr, "_error", error_but_of_epochs)


def _leave_leaders_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def fence(image: MetadataImage, broker: Broker, defaults: TopicDefaults) -> list[VersionedRecord]:
        change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=1)
        return [VersionedRecord(change)]

    monkeypatch.setattr(broker_heartbeat, "fence", fence)


MUTANTS = [
    _let_fenced_brokers_into_an_isr,
    _keep_the_leader_epoch,
    _listen_to_former_lives,
    _elect_outside_of_the_isr,
    _forget_to_roll_back,
    _trust_every_restart,
    _overlook_partition_epochs,
    _leave_leaders_where_they_are,
]


@pytest.mark.parametrize("breaks", MUTANTS, ids=lambda breaks: breaks.__name__[1:])
def test_a_broken_cluster_is_found(
    breaks: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulation would be worth nothing if it let these pass."""
    breaks(monkeypatch)
    for seed in range(100):
        try:
            run_cluster(seed)
        except (InvariantViolated, MetadataLogError) as found:
            print(f"found with seed {seed}: {found}")
            return
    pytest.fail("100 seeds found nothing wrong")
