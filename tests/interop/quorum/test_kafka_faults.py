"""A log that contradicts itself ends the start of Kafka's own controller where it ends ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from metadata_log.records import metadata as records
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.serde import Message
from support.interop.real_kafka import (
    CLUSTER_ID,
    QUIET,
    KafkaInstallation,
    Process,
    QuorumLayout,
    free_ports,
    kafka_controller,
    kafka_format,
)
from support.metadata_faults import FAULTS, Fault

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

VERSIONS: dict[type[Message], int] = {
    records.PartitionRecord: 2,
    records.PartitionChangeRecord: 2,
    records.RegisterBrokerRecord: 4,
    records.BrokerRegistrationChangeRecord: 3,
}
ENDED = "Encountered fatal fault"
ACTIVE = "Becoming the active controller"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.words)
def test_kafkas_controller_reacts_to_each_fault_as_recorded(
    fault: Fault, kafka: KafkaInstallation, tmp_path: Path
) -> None:
    """The only voter begins with this log; where we are stricter, it becomes active."""
    layout = QuorumLayout(tmp_path, CLUSTER_ID, {1: free_ports(1)[0]}, QUIET)
    layout.log_dir(1).mkdir()
    layout.properties(1)
    kafka_format(kafka, layout, 1)
    log = [records.FeatureLevelRecord(name="metadata.version", feature_level=30), *fault.log]
    values = [encode_record(record, VERSIONS.get(type(record), 0)) for record in log]
    layout.partition(1).mkdir(exist_ok=True)
    (layout.partition(1) / "00000000000000000000.log").write_bytes(build_batch(0, 1, 1000, values))
    process = Process(kafka_controller(kafka, layout)(1), tmp_path / "output.txt")
    try:
        if fault.kafka_dies:
            process.wait_for(ENDED)
            assert process.wait() == 1
        else:
            process.wait_for(ACTIVE)
    finally:
        process.kill()
