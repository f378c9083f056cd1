"""The facts of a release of Apache Kafka, from its jars alone, as `metadata_log.serde.declare` reads them.

    PYTHONPATH=tests python -m support.interop.release_facts 4.4.0 out/kafka-4.4.0.json.gz

The jars hold Kafka's schemas, with their comments; a Java program beside this module prints the tables, and starts a
node of both roles for its metrics.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from metadata_log.serde.declare import read_facts
from metadata_log.serde.declare_tables import Facts
from support import TESTS
from support.interop.kafka_or_skip import found_or_skipped, oracle
from support.interop.real_kafka import CLUSTER_ID, STORAGE_TOOL, KafkaInstallation, free_ports

ORACLE: Final = TESTS / "interop" / "ReleaseOracle.java"
_NODE: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
offsets.topic.replication.factor=1
log.dirs={root}/data
"""


def release_facts(kafka: KafkaInstallation) -> Facts:
    """Schemas and tables of a release."""
    with tempfile.TemporaryDirectory() as root:
        path = Path(root) / "node.properties"
        broker, controller = free_ports(2)
        path.write_text(_NODE.format(broker=broker, controller=controller, root=root))
        kafka.tool(STORAGE_TOOL, "format", "-t", CLUSTER_ID, "-c", str(path))
        tables: Facts = json.loads(oracle(kafka, ORACLE, [str(path)]))
    return read_facts(sorted(kafka.jars.glob("kafka-*.jar"))) | tables


if __name__ == "__main__":
    facts = release_facts(found_or_skipped(sys.argv[1]))
    Path(sys.argv[2]).write_bytes(gzip.compress(json.dumps(facts, sort_keys=True).encode(), mtime=0))
