"""Kafka's tools against one process of ours with both roles: topics, records, the quorum, a graceful end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from test_clients_on_our_broker import CONSOLE_PRODUCER, GET_OFFSETS

from support.interop.broker_cluster import CONSOLE_CONSUMER, TOPIC_TOOL
from support.interop.kafka_tools import KafkaTools
from support.interop.our_brokers import SERVING
from support.interop.our_nodes import told
from support.interop.real_kafka import QUORUM_TOOL, KafkaInstallation, Process, free_ports

pytestmark = pytest.mark.kafka
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
MESSAGES = 100


def test_kafkas_tools_use_both_roles_of_one_process_which_ends_in_kafkas_order(
    kafka: KafkaInstallation, tmp_path: Path
):
    controller, port = free_ports(2)
    path = tmp_path / "node.properties"
    lines = (
        "process.roles=broker,controller",
        "node.id=1",
        f"controller.quorum.voters=1@127.0.0.1:{controller}",
        "controller.listener.names=CONTROLLER",
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        f"log.dirs={tmp_path / 'node'}",
    )
    path.write_text("".join(f"{line}\n" for line in lines))
    told("format", "-c", str(path), "--cluster-id", CLUSTER_ID)
    process = Process([sys.executable, "-m", "kraft", "serve", "-c", str(path)], tmp_path / "node.log")
    try:
        process.wait_for(SERVING)
        server = f"--bootstrap-server=127.0.0.1:{port}"
        with KafkaTools(kafka) as tools:
            made = tools.run(TOPIC_TOOL, server, "--create", "--topic=t", "--partitions=1", "--replication-factor=1")
            assert made.returncode == 0, made.stderr
            text = "".join(f"line {number}\n" for number in range(MESSAGES))
            sent = tools.run(CONSOLE_PRODUCER, server, "--topic=t", stdin=text)
            assert sent.returncode == 0, sent.stderr
            offsets = tools.run(GET_OFFSETS, server, "--topic=t")
            assert offsets.stdout.split() == [f"t:0:{MESSAGES}"], offsets.stderr
            read = tools.run(
                CONSOLE_CONSUMER,
                server,
                "--topic=t",
                "--partition=0",
                "--offset=earliest",
                f"--max-messages={MESSAGES}",
                "--timeout-ms=30000",
            )
            assert read.stdout == text, read.stderr
            for way in (server, f"--bootstrap-controller=127.0.0.1:{controller}"):
                quorum = tools.run(QUORUM_TOOL, way, "describe", "--status")
                assert f"ClusterId:              {CLUSTER_ID}" in quorum.stdout, quorum.stderr
                assert "LeaderId:               1" in quorum.stdout
        code = process.stop()
        assert code == 0, process.text
        assert 0 < process.text.index(" left ") < process.text.index(" stopped ")
        assert (tmp_path / "node" / ".kafka_cleanshutdown").exists()
    finally:
        process.kill()
