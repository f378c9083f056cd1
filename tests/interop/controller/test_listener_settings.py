"""Every combination of the settings of listeners is read or refused as by Kafka (`KafkaConfig.validateValues`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from judged_settings import verdicts
from support.interop.real_kafka import KafkaInstallation
from support.listener_files import files, stored

pytestmark = pytest.mark.kafka


def test_the_stored_verdicts_on_listeners_are_kafkas(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    """`tests/kraft/config/test_kafkas_verdicts.py` compares ours with them."""
    answers = verdicts(newer_kafka, tmp_path, list(files()))
    assert [kind == "read" for kind, _ in answers] == stored()
