"""The stand-in for Kafka's scripts in `bench/suites/shims` starts a node of ours as kafka-python's fixtures want it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from support.interop.real_kafka import CLUSTER_ID, Process
from support.loopback import free_ports

STAND_IN: Final = Path(__file__).parents[3] / "bench" / "suites" / "shims" / "kafka_root.py"
MECHANISM: Final = "SCRAM-SHA-256"
LOGIN: Final = (
    'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="alice-secret";'
)


@pytest.mark.soak
def test_a_node_with_logins_is_formatted_before_its_mechanism_is_set_and_ends_at_a_signal(tmp_path: Path) -> None:
    port, controller = free_ports(2)
    own = f"SASL_PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller}"
    lines = (
        "process.roles=broker,controller",
        "node.id=0",
        f"controller.quorum.bootstrap.servers=localhost:{controller}",
        f"listeners={own}",
        "inter.broker.listener.name=SASL_PLAINTEXT",
        f"advertised.listeners={own}",
        "controller.listener.names=CONTROLLER",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        f"log.dirs={tmp_path / 'log'}",
    )
    properties, jaas = tmp_path / "kafka.properties", tmp_path / "jaas.conf"
    properties.write_text("".join(f"{line}\n" for line in lines))
    jaas.write_text(f"KafkaServer {{\n  {LOGIN}\n}};\n")
    environment = {"SUITE_MAKE": "ours", "KAFKA_OPTS": f"-Djava.security.auth.login.config={jaas}"}
    user = f"{MECHANISM}=[name=alice,password=alice-secret]"
    command = (sys.executable, str(STAND_IN))
    formatting = ("kafka-storage.sh", "format", "--standalone", "-t", CLUSTER_ID, "-c", str(properties))
    subprocess.run([*command, *formatting, "--add-scram", user], env=os.environ | environment, check=True)
    with properties.open("a") as more:
        more.write(f"sasl.enabled.mechanisms={MECHANISM}\nsasl.mechanism.inter.broker.protocol={MECHANISM}\n")
    serving = (*command, "kafka-run-class.sh", "kafka.Kafka", str(properties))
    process = Process(serving, tmp_path / "node.log", env=environment)
    try:
        process.wait_for(r"\[KafkaRaftServer nodeId=0\] Kafka Server started")
        assert process.stop() == 0
    finally:
        process.kill()
