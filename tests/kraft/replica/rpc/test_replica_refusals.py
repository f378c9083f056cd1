"""Refusals that Apache Kafka 4.3.1's controllers gave on the wire, and ours to the same requests, byte for byte."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from kraft.process.hosting import host_controller
from kraft.wire import Answer, WireRequest
from support import DATA
from support.kraft.replica_net import Net, formatted_disk
from transport.protocol.headers import decode_request, encode_response
from transport.protocol.messages import IncrementalAlterConfigsResponse

CLUSTER_ID = "YVU7_irm6WKT5bBIjUZi2g"
"""The cluster that was asked."""
EXCHANGES: list[dict[str, Any]] = [
    json.loads(line) for line in gzip.decompress((DATA / "refusals.jsonl.gz").read_bytes()).splitlines()
]


@pytest.fixture(scope="module")
def net() -> Net:
    disks = {node: formatted_disk(node, cluster_id=CLUSTER_ID) for node in (1, 2, 3)}
    net = Net(3, application=host_controller, disks=disks, cluster_id=CLUSTER_ID)
    net.elect()
    net.advance(1000)
    return net


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda one: f"{one['api_key']}v{one['version']}")
def test_each_refusal_equals_kafkas(net: Net, exchange: dict[str, Any]) -> None:
    header, message = decode_request(bytes.fromhex(exchange["request"]))
    replica = net.processes[net.leader]
    request = WireRequest(
        request_id=5_000_000,
        api_key=exchange["api_key"],
        version=exchange["version"],
        message=message,
        listener="CONTROLLER",
        client_id=header.client_id,
    )
    answers = [output for output in replica.step(request, net.now_ms) if isinstance(output, Answer)]
    assert len(answers) == 1
    ours = encode_response(exchange["api_key"], exchange["version"], header.correlation_id, answers[0].message)
    assert ours.hex() == exchange["response"], (message, answers[0].message)


def test_client_metrics_settings_are_validated_as_by_kafka() -> None:
    """Some fifty changes, good and bad, one after the other, as a 4.3.1 controller answered them."""
    net = Net(1, application=host_controller, max_idle_interval_ms=0)
    net.elect()
    net.settle()
    for line in gzip.decompress((DATA / "client_metrics_answers.jsonl.gz").read_bytes()).splitlines():
        exchange = json.loads(line)
        _, message = decode_request(bytes.fromhex(exchange["request"]))
        answer = net.ask(1, message, 1)
        assert isinstance(answer, IncrementalAlterConfigsResponse)
        ours = sorted([one.resource_name, one.error_code, one.error_message] for one in answer.responses)
        assert ours == exchange["answers"], message
