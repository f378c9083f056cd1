"""Apache Kafka for the tests that need it, or the reason why it cannot be run."""

from __future__ import annotations

import os

import pytest
from kafka_jars import KafkaUnavailable
from real_kafka import KafkaInstallation


def found_or_skipped() -> KafkaInstallation:
    """What can be run; else the test is skipped with the reason, and with CI=true it fails."""
    try:
        return KafkaInstallation.find()
    except KafkaUnavailable as unavailable:
        reason = f"Apache Kafka cannot be run here: {unavailable}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
