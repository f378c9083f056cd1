"""`kafka-streams-groups.sh` with each of its subcommands prints at a node of ours what it prints at one of Kafka's."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from one_node import one_node
from support import TESTS
from support.interop.kafka_or_skip import with_programs_or_skipped
from support.interop.kafka_tools import KafkaTools, printed
from support.interop.real_kafka import KafkaInstallation, Process, eventually

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
COMMAND: Final = "org.apache.kafka.tools.streams.StreamsGroupCommand"
SOURCE: Final = TESTS / "interop" / "JoinOrders.java"
SECONDS: Final = 120
RECORDS: Final = 30
"""How many orders there are of each of two times, with as many payments."""
MINUTE_MS: Final = 60_000
TOPICS: Final = {"orders": 2, "payments": 3, "paid": 2, "counts": 2}
RESET: Final = "--reset-offsets --group=joined"
RUNNING: Final = (
    "--list",
    "--list --state",
    "--list --state stable",
    "--list --state empty",
    "--list --state nonsense",
    "--describe --group=joined",
    "--describe --group=joined --verbose",
    "--describe --group=joined --offsets",
    "--describe --group=joined --offsets --verbose",
    "--describe --group=joined --members",
    "--describe --group=joined --members --verbose",
    "--describe --group=joined --state",
    "--describe --group=joined --state --verbose",
    "--describe --group=joined --topology",
    "--describe --all-groups --state",
    "--describe --all-groups --members",
    "--describe --group=nobody",
    "--describe --group=nobody --members",
    "--describe",
    "--delete --group=joined",
    "--delete --group=nobody",
    "--delete-offsets --group=joined --input-topic=orders",
    f"{RESET} --all-input-topics --to-earliest --dry-run",
    f"{RESET} --all-input-topics --to-earliest --execute",
)
"""While the program runs."""
ENDED: Final = (
    "--list --state",
    "--list --state empty",
    "--describe --group=joined",
    "--describe --group=joined --members",
    "--describe --group=joined --state",
    "--describe --group=joined --state --verbose",
    *(
        f"{RESET} {topics} {scenario} --dry-run"
        for topics in (
            "--all-input-topics",
            "--input-topic=orders:1",
            "--input-topic=orders --input-topic=payments:0,2",
        )
        for scenario in (
            "--to-earliest",
            "--to-latest",
            "--to-current",
            "--to-offset=4",
            "--to-offset=4000",
            "--shift-by=-3",
            "--shift-by=3",
            "--by-duration=PT20M",
            "--by-duration=PT0S",
            "--to-datetime={between}",
            "--to-datetime=2001-01-01T00:00:00.000",
            "--to-datetime=2101-01-01T00:00:00.000",
        )
    ),
    f"{RESET} --from-file={{file}} --dry-run",
    f"{RESET} --all-input-topics --to-offset=4 --dry-run --export",
    f"{RESET} --all-input-topics --to-offset=4",
    f"{RESET} --all-input-topics --to-offset=4 --execute --dry-run",
    f"{RESET} --all-input-topics --execute",
    f"{RESET} --to-offset=4 --execute",
    f"{RESET} --input-topic=nothing --to-latest --execute",
    f"{RESET} --input-topic=paid --to-latest --execute",
    f"{RESET} --input-topic=orders:9 --to-latest --execute",
    f"{RESET} --all-input-topics --by-duration=nonsense --execute",
    f"{RESET} --all-input-topics --to-datetime=nonsense --execute",
    "--reset-offsets --group=nobody --all-input-topics --to-earliest --execute",
    "--reset-offsets --all-groups --all-input-topics --to-current --dry-run",
    f"{RESET} --input-topic=orders:1 --to-offset=4 --execute",
    "--describe --group=joined --offsets",
    f"{RESET} --all-input-topics --by-duration=PT20M --execute",
    "--describe --group=joined --offsets",
    f"{RESET} --all-input-topics --to-datetime={{between}} --execute",
    f"{RESET} --from-file={{file}} --execute",
    "--describe --group=joined --offsets --verbose",
    f"{RESET} --all-input-topics --shift-by=1 --execute",
    f"{RESET} --input-topic=orders --to-latest --execute --delete-internal-topic=joined-nothing-repartition",
    f"{RESET} --input-topic=orders --to-latest --execute --delete-internal-topic={{internal}}",
    f"{RESET} --all-input-topics --to-earliest --execute --delete-all-internal-topics",
    "--describe --group=joined --offsets",
    "--delete-offsets --group=joined --input-topic=nothing",
    "--delete-offsets --group=joined --input-topic=orders:1",
    "--delete-offsets --group=joined --input-topic=payments",
    "--describe --group=joined --offsets",
    "--delete-offsets --group=joined --all-input-topics",
    "--delete-offsets --group=nobody --input-topic=orders",
    "--describe --group=joined --offsets",
    "--delete --group=joined",
    "--delete --group=joined",
    "--delete --all-groups",
    "--list",
)
"""Once it has ended. `{between}` is a time between those of the records, `{file}` a file of offsets, `{internal}` an
internal topic.
"""
NAMES: Final = re.compile(
    r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(_[0-9a-f]+)?\b|(?<= )[\w+/-]{22}(?= )|127\.0\.0\.1(:\d+)?"
)
"""Ids of members, and addresses, which differ."""


@pytest.fixture(scope="module")
def nodes(
    newer_kafka: KafkaInstallation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[KafkaTools, str, str]]:
    """The tools, and the addresses of a node of ours and of one of Kafka's."""
    root = tmp_path_factory.mktemp("command")
    with ExitStack() as stack:
        ports = [
            stack.enter_context(one_node(newer_kafka, root / make, make, "group.streams.initial.rebalance.delay.ms=0"))[
                1
            ]
            for make in ("ours", "theirs")
        ]
        tools = stack.enter_context(KafkaTools(newer_kafka))
        yield tools, f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}"


def prepare(bootstrap: str, now_ms: int) -> AdminClient:
    """The topics of the program, with records of two times: 40 minutes and 5 minutes ago."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()]).values():
        made.result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(2 * RECORDS):
        at_ms = now_ms - (40 if number < RECORDS else 5) * MINUTE_MS + number
        producer.produce("orders", f"order-{number} user-{number % 4}", partition=number % 2, timestamp=at_ms)
        producer.produce("payments", f"order-{number} {number}", partition=number % 3, timestamp=at_ms)
        assert producer.flush(SECONDS) == 0
    return admin


def has_read_all(tools: KafkaTools, bootstrap: str) -> bool:
    """Whether the group has committed the ends of all that it reads."""
    ran = tools.run(COMMAND, f"--bootstrap-server={bootstrap}", "--describe", "--group=joined")
    lines = [line.split() for line in ran.stdout.splitlines() if line.startswith("joined")]
    return len(lines) > sum(TOPICS.values()) and all(line[-1] == "0" and line[3] != "-" for line in lines)


def story(tools: KafkaTools, program: KafkaInstallation, bootstrap: str, root: Path, now_ms: int) -> dict[str, object]:
    """What each command prints, how it ends, and which topics are left."""
    admin = prepare(bootstrap, now_ms)
    values = {
        "between": datetime.fromtimestamp(now_ms // 1000 - 20 * 60, UTC).strftime("%Y-%m-%dT%H:%M:%S.000"),
        "file": str(root / "offsets.csv"),
        "internal": "joined-KSTREAM-MAP-0000000001-repartition",
    }
    told: dict[str, object] = {}

    def tell(steps: tuple[str, ...]) -> None:
        for step in steps:
            ran = tools.run(COMMAND, f"--bootstrap-server={bootstrap}", *step.format(**values).split())
            told[f"{len(told)} {step}"] = printed(ran, NAMES)

    settings = ("processing.guarantee=at_least_once", "client.id=joins")
    command = program.command(str(SOURCE), bootstrap, "joined", *TOPICS, str(root / "state"), "1", *settings)
    process = Process(command, root / "joins.log")
    try:
        eventually(lambda: has_read_all(tools, bootstrap), "all is joined", SECONDS)
        tell(RUNNING)
        process.stop()
    finally:
        process.kill()
    tell(ENDED)
    told["topics"] = sorted(admin.list_topics(timeout=SECONDS).topics)
    return told


def test_each_subcommand_prints_what_it_prints_at_kafka(
    nodes: tuple[KafkaTools, str, str], newer_kafka: KafkaInstallation, tmp_path: Path
) -> None:
    tools, ours, theirs = nodes
    program, now_ms = with_programs_or_skipped(newer_kafka), time.time_ns() // 1_000_000
    told = {}
    for name, bootstrap in (("theirs", theirs), ("ours", ours)):
        root = tmp_path / name
        root.mkdir()
        (root / "offsets.csv").write_text("orders,0,7\norders,1,2\npayments,2,1\n")
        told[name] = story(tools, program, bootstrap, root, now_ms)
    wanted, found = told["theirs"], told["ours"]
    differences = [
        f"{step}\n  theirs {wanted[step]}\n  ours {found[step]}" for step in wanted if found[step] != wanted[step]
    ]
    assert not differences, "\n".join(differences)
    assert any("orders" in line for line in str(wanted["5 --describe --group=joined"]).split("'")), wanted
