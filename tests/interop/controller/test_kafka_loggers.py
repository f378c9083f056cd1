"""Log levels by request: the same requests to a controller of Kafka's and to ours, and Kafka's tool on ours."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from metadata_log.records.metadata import ConfigRecord
from support.differential.controller_stories import LOGGER, SET, configure, told
from support.interop.kafka_tools import KafkaTools
from support.interop.one_controller import both, log_of, side_of
from support.interop.our_nodes import told as printed
from support.interop.real_kafka import CONFIG_TOOL, KafkaInstallation
from transport.protocol.errors import Error

pytestmark = pytest.mark.kafka

DELETE, APPEND, SUBTRACT = 1, 2, 3
SAME = [
    configure(LOGGER, "1", ("root", SET, "WARN")),
    configure(LOGGER, "1", ("root", SET, "WARN"), validate_only=True),
    configure(LOGGER, "1", ("root", SET, "warn")),
    configure(LOGGER, "1", ("root", SET, "INFO"), ("no.such", SET, "INFO")),
    configure(LOGGER, "1", ("no.such", DELETE, None)),
    configure(LOGGER, "1", ("root", DELETE, None)),
    configure(LOGGER, "1", ("root", APPEND, "INFO")),
    configure(LOGGER, "1", ("root", SUBTRACT, "INFO")),
    configure(LOGGER, "2", ("root", SET, "INFO")),
    configure(LOGGER, "x", ("root", SET, "INFO")),
    configure(LOGGER, "", ("root", SET, "INFO")),
    configure(LOGGER, "1", ("root", SET, "WARN"), twice=True),
]


def test_requests_for_loggers_are_answered_as_by_kafka(kafka: KafkaInstallation, tmp_path: Path) -> None:
    with both(kafka, tmp_path) as (theirs, ours):
        kafkas = told(side_of(theirs), SAME)
        assert {one["error_code"] for answer in kafkas for one in answer["responses"]} == {0, 40, 42}
        assert told(side_of(ours), SAME) == kafkas
        without_level = [configure(LOGGER, "1", ("root", SET, None))]
        errors = [told(side_of(one), without_level)[0]["responses"][0]["error_code"] for one in (theirs, ours)]
        assert errors == [Error.UNKNOWN_SERVER_ERROR, Error.INVALID_CONFIG]
        for layout in (theirs, ours):
            at = ("--bootstrap-controller", f"127.0.0.1:{layout.ports[1]}")
            printed("configs", "set", "broker-logger", "1", "root=ERROR", *at)
            shown = json.loads(printed("configs", "describe", "broker-logger", "1", "--json", *at))["configs"]
            assert {"ERROR"} == {one["value"] for one in shown if one["key"] == "root"}
        with KafkaTools(kafka) as tools:

            def configs(*words: str) -> str:
                at = f"127.0.0.1:{ours.ports[1]}"
                entity = ("--entity-type", "broker-loggers", "--entity-name", "1")
                done = tools.run(CONFIG_TOOL, "--bootstrap-controller", at, *entity, *words)
                assert done.returncode == 0, done.stderr + done.stdout
                return done.stdout

            assert "Completed updating config for broker-logger 1." in configs(
                "--alter", "--add-config", "kraft.node=DEBUG"
            )
            found = dict(re.findall(r"^ +([\w.]+)=([A-Z]+) sensitive=false", configs("--describe"), re.MULTILINE))
            assert (found["root"], found["kraft.node"]) == ("ERROR", "DEBUG")
            configs("--alter", "--delete-config", "kraft.node")
        written = [record for batch in log_of(ours) for _, record in batch]
        assert written
        assert LOGGER not in {record.resource_type for record in written if isinstance(record, ConfigRecord)}
