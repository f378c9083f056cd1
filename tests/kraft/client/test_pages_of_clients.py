"""The commands and programs on the pages about records, groups, queues and transactions print what the pages show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.documented_programs import HOWTO, program, run_program
from support.kraft.command_line import run
from support.kraft.data_cluster import DataCluster, data_cluster

PAGE = "write-and-read-records.md"
ADDRESS = "127.0.0.1:19101"
BLOCK = re.compile(r"^```\n(?P<text>\$ .*?)^```$", re.MULTILINE | re.DOTALL)
VARIABLE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|in \d+\.\d\d s")
FILES = {
    "orders.txt": "customer-7:three apples\ncustomer-8:a pear\ncustomer-7:a plum\n",
    "quince.json": '{"key": "customer-9", "value": "a quince", "headers": {"source": "shop"}}\n',
}


def test_the_commands_and_the_program_print_what_the_page_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    text = (HOWTO / PAGE).read_text()
    assert FILES["quince.json"].strip() in text
    folder = tmp_path / "shell"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_text(content)
    monkeypatch.chdir(folder)
    steps = [
        (step.partition("\n")[0], step.partition("\n")[2])
        for block in BLOCK.finditer(text)
        for step in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]
    ]
    assert len(steps) == 5
    with data_cluster(tmp_path / "nodes") as cluster:
        for command, shown in steps:
            name, *words = shlex.split(command.replace(ADDRESS, cluster.bootstrap))
            assert name == "kraft"
            done = run(capsys, *words)
            assert (done.code, done.err) == (0, "")
            assert VARIABLE.sub("", done.out) == VARIABLE.sub("", shown)
        host, _, port = cluster.bootstrap.partition(":")
        printed = run_program(str(program(PAGE, "records.py", folder)), host, port, folder=folder)
    assert f"```\n{printed}```" in text


# The programs on the pages about groups and transactions print what the pages show.


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataCluster]:
    settings: dict[str, Any] = {
        "offsets_topic_replication_factor": "1",
        "transaction_state_log_replication_factor": "1",
        "transaction_state_log_min_isr": "1",
        "group_initial_rebalance_delay_ms": "0",
        "share_coordinator_state_topic_replication_factor": "1",
        "share_coordinator_state_topic_min_isr": "1",
        "share_coordinator_state_topic_num_partitions": "1",
    }
    with data_cluster(tmp_path_factory.mktemp("nodes"), **settings) as cluster:
        yield cluster


COMMANDS = {
    "work.py": (
        "topics create jobs --bootstrap-server BROKERS",
        "configs set group workers share.auto.offset.reset=earliest --bootstrap-server BROKERS",
    )
}
"""What a page has its readers do before they run the program."""


@pytest.mark.parametrize(
    ("page", "name"),
    [("consumer-groups.md", "members.py"), ("transactions.md", "copier.py"), ("work-queue.md", "work.py")],
)
def test_a_program_prints_what_its_page_shows(
    cluster: DataCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], page: str, name: str
):
    for command in COMMANDS.get(name, ()):
        assert f"\nkraft {command}\n" in (HOWTO / page).read_text()
        assert run(capsys, *command.replace("BROKERS", cluster.bootstrap).split()).code == 0
    host, _, port = cluster.bootstrap.partition(":")
    printed = run_program(str(program(page, name, tmp_path)), host, port, folder=tmp_path)
    assert f"```\n{printed}```" in (HOWTO / page).read_text()
