"""`kraft doctor` on the directories of a broker whose internal topics were changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.kraft.command_line import run
from support.kraft.data_cluster import CONTROLLER, FIRST_BROKER, DataCluster, data_cluster

SETTINGS: dict[str, Any] = {
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "4",
    "transaction_state_log_num_partitions": "3",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "group_initial_rebalance_delay_ms": "0",
}


def doctor(capsys: pytest.CaptureFixture[str], cluster: DataCluster, root: Path, partitions: int) -> dict[str, str]:
    """The evidence of each finding about the internal topics, by its id and its topic."""
    files = {}
    for node_id, role in ((CONTROLLER, "controller"), (FIRST_BROKER, "broker")):
        files[role] = root / f"{role}.properties"
        lines = [
            f"process.roles={role}",
            f"node.id={node_id}",
            "controller.listener.names=CONTROLLER",
            f"controller.quorum.voters={CONTROLLER}@127.0.0.1:{cluster.controller.port}",
            f"listeners={'CONTROLLER' if role == 'controller' else 'PLAINTEXT'}://127.0.0.1:{cluster.ports[node_id]}",
            f"log.dirs={root / str(node_id)}",
            f"offsets.topic.num.partitions={partitions}",
            "transaction.state.log.num.partitions=3",
        ]
        files[role].write_text("".join(f"{line}\n" for line in lines))
    done = run(capsys, "doctor", "-c", str(files["controller"]), "-c", str(files["broker"]), "--json")
    assert done.out, done.err
    return {
        f"{one['id']} {one['subjects'][0]}": f"{one['evidence']} => {one['remedy']}"
        for one in json.loads(done.out)["findings"]
        if one["id"].startswith("internal-")
    }


def test_changed_internal_topics_are_found_with_their_cure(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    topic = "__consumer_offsets"
    with data_cluster(tmp_path, **SETTINGS) as cluster:
        server, controller = f"--bootstrap-server={cluster.bootstrap}", f"--bootstrap-controller={cluster.controller}"
        lines = tmp_path / "lines"
        lines.write_text("one\n")
        assert run(capsys, "produce", "lines", str(lines), server).code == 0
        assert run(capsys, "consume", "lines", server, "--group=g").out == "one\n"
        cluster.until(lambda image: topic in image.topics)
        assert doctor(capsys, cluster, tmp_path, 4) == {}
        assert list(doctor(capsys, cluster, tmp_path, 50)) == [f"internal-partitions {topic}"]
        done = run(capsys, "configs", "set", "topic", topic, "cleanup.policy=compact,delete", controller)
        assert done.code == 0, done
        done = run(capsys, "topics", "grow", topic, "--partitions=6", controller)
        assert done.code == 0, done
        cluster.until(lambda image: len(image.topics[topic].partitions) == 6)
    found = doctor(capsys, cluster, tmp_path, 4)
    assert set(found) == {f"internal-cleanup {topic}", f"internal-partitions {topic}"}
    assert "has cleanup.policy compact,delete" in found[f"internal-cleanup {topic}"]
    assert f"kraft configs set topic {topic} cleanup.policy=compact" in found[f"internal-cleanup {topic}"]
    assert "has 6 partitions, and the brokers are told 4" in found[f"internal-partitions {topic}"]
    assert "kraft groups reset GROUP --from-file" in found[f"internal-partitions {topic}"]
