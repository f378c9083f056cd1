"""The fixture `kafka`: Apache Kafka's own programs, or a skip that says why (under CI=true a failure)."""

from __future__ import annotations

import os

import pytest
from kafka_jars import KafkaUnavailable
from real_kafka import KafkaInstallation


@pytest.fixture(scope="session")
def kafka() -> KafkaInstallation:
    try:
        return KafkaInstallation.find()
    except KafkaUnavailable as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"Apache Kafka cannot be run here: {reason}")
        pytest.skip(f"Apache Kafka cannot be run here: {reason}")
