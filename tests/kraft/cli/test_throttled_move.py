"""A throttled move of a partition between real brokers takes the time that its rate says, and then goes free."""

from __future__ import annotations

import time

import pytest

from kraft.testing.kafka import Kafka
from support.kraft.command_line import run

RATE = 400_000
"""Bytes a second. A fetch of 1 MiB is let through at once."""
SIZE = 2_400_000


def test_a_throttled_move_takes_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    with Kafka(brokers=2, controllers=1, settings={"replica.fetch.max.bytes": "100000"}) as kafka:
        kafka.create_topic("heavy", partitions=1, replication_factor=1)
        kafka.produce("heavy", ["x" * 20_000] * (SIZE // 20_000), partition=0)
        first = kafka.leader("heavy", 0)
        [other] = [one for one in kafka.broker_ids if one != first]
        server = f"--bootstrap-server={kafka.bootstrap_servers}"
        words = ("reassign", "--topic-partition=heavy:0", f"--to={other}", f"--throttle={RATE}", "--wait")
        began = time.monotonic()
        done = run(capsys, *words, server)
        took = time.monotonic() - began
        assert (done.code, done.out.splitlines()[-1]) == (0, "no longer throttled: topic heavy, broker 101, broker 102")
        assert took >= 0.8 * SIZE / RATE
        assert kafka.leader("heavy", 0) == other
        assert len(kafka.consume("heavy", count=SIZE // 20_000)) == SIZE // 20_000
        assert run(capsys, "reassign", "unthrottle", server).out == "Nothing is throttled.\n"
