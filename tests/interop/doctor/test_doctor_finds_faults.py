"""Faults caused on purpose on clusters of Apache Kafka: `kraft doctor` finds each one, and its remedy works."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from doctor_cluster import DoctorCluster, doctor_cluster
from doctor_fault import Fault, carry_through
from faults_brokers import BROKER_FAULTS, OLDER_FAULTS, prepare
from faults_files import ADDRESS_FAULTS, FILE_FAULTS
from faults_quorum import DOWN, EVEN, QUORUM_FAULTS
from faults_static import STATIC_FAULTS
from support.interop.real_kafka import KafkaInstallation

pytestmark = pytest.mark.kafka


def carry_all(cluster: DoctorCluster, faults: Iterable[Fault]) -> None:
    """Carry every fault through; those that are not found or not cured are named together."""
    failed: list[str] = []
    for fault in faults:
        try:
            carry_through(cluster, fault)
        except AssertionError as wrong:
            failed.append(f"{fault.name}: {wrong}")
    assert not failed, "\n\n".join(failed)


def test_some_faults_of_a_live_quorum_are_found_and_cured(kafka: KafkaInstallation, tmp_path: Path) -> None:
    with doctor_cluster(DoctorCluster(kafka, tmp_path)) as cluster:
        carry_all(cluster, (EVEN, DOWN))


@pytest.mark.soak
def test_faults_of_a_live_quorum_are_found_and_cured(kafka: KafkaInstallation, tmp_path: Path) -> None:
    with doctor_cluster(DoctorCluster(kafka, tmp_path)) as cluster:
        carry_all(cluster, QUORUM_FAULTS)


@pytest.mark.soak
def test_faults_in_the_files_of_a_voter_are_found_and_cured(kafka: KafkaInstallation, tmp_path: Path) -> None:
    with doctor_cluster(DoctorCluster(kafka, tmp_path)) as cluster:
        carry_all(cluster, (*FILE_FAULTS, *ADDRESS_FAULTS))


@pytest.mark.soak
def test_faults_of_a_static_quorum_are_found_and_cured(kafka: KafkaInstallation, tmp_path: Path) -> None:
    with doctor_cluster(DoctorCluster(kafka, tmp_path, dynamic=False)) as cluster:
        carry_all(cluster, STATIC_FAULTS)


@pytest.mark.soak
def test_faults_of_brokers_and_topics_are_found_and_cured(kafka: KafkaInstallation, tmp_path: Path) -> None:
    with doctor_cluster(DoctorCluster(kafka, tmp_path, brokers=(101, 102, 103))) as cluster:
        prepare(cluster)
        carry_all(cluster, BROKER_FAULTS)


@pytest.mark.soak
def test_faults_of_an_upgrade_are_found_and_cured(
    kafka: KafkaInstallation, older_kafka: KafkaInstallation, tmp_path: Path
) -> None:
    cluster = DoctorCluster(kafka, tmp_path, voters=(1,), older=older_kafka, release="3.9-IV0")
    with doctor_cluster(cluster):
        carry_all(cluster, OLDER_FAULTS)
