"""Files of settings that Kafka and we judge."""

from __future__ import annotations

from pathlib import Path

from support.interop.kafka_or_skip import oracle
from support.interop.real_kafka import KafkaInstallation
from support.interop.settings_table import ORACLE

CONTROLLER = """\
process.roles=controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9001
controller.listener.names=CONTROLLER
listeners=CONTROLLER://127.0.0.1:9001
log.dirs=/var/lib/kraft
"""
BROKER = """\
process.roles=broker
node.id=101
controller.quorum.voters=1@127.0.0.1:9001
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:9101
log.dirs=/var/lib/kraft
"""


def verdicts(kafka: KafkaInstallation, directory: Path, texts: list[str]) -> list[tuple[str, str]]:
    """Kafka's verdict on each of these files, and its words."""
    paths = [directory / f"{number}.properties" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    answers = [line.partition("\t") for line in oracle(kafka, ORACLE, [str(path) for path in paths]).splitlines()]
    assert len(answers) == len(texts)
    return [(kind, why) for kind, _, why in answers]
