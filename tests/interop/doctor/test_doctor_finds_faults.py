"""Faults that are caused on purpose on clusters of Apache Kafka: `kraft doctor` finds each one, and its remedy works."""

from __future__ import annotations

from pathlib import Path

import pytest
from doctor_cluster import DoctorCluster, doctor_cluster
from fault import carry_through
from faults_quorum import DOWN, EVEN, QUORUM_FAULTS
from real_kafka import KafkaInstallation

pytestmark = pytest.mark.kafka


def test_some_faults_of_a_live_quorum_are_found_and_cured(kafka: KafkaInstallation, tmp_path: Path) -> None:
    with doctor_cluster(DoctorCluster(kafka, tmp_path)) as cluster:
        for fault in (EVEN, DOWN):
            carry_through(cluster, fault)


@pytest.mark.soak
def test_faults_of_a_live_quorum_are_found_and_cured(kafka: KafkaInstallation, tmp_path: Path) -> None:
    with doctor_cluster(DoctorCluster(kafka, tmp_path)) as cluster:
        for fault in QUORUM_FAULTS:
            carry_through(cluster, fault)
