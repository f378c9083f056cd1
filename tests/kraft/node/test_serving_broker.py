"""The configuration of a broker with data: what it cannot enforce, the node refuses at its start."""

from __future__ import annotations

import pytest

from kraft.config import Config, ConfigError
from kraft.config.data_settings import RACK_AWARE
from kraft.config.keys import STANDARD_AUTHORIZER
from kraft.process.hosting import broker_with_data
from metadata_log.memory_disk import MemoryDisk


def config(*settings: str) -> Config:
    lines = (
        "process.roles=broker",
        "node.id=101",
        "listeners=PLAINTEXT://h:9092",
        "controller.listener.names=CONTROLLER",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "controller.quorum.voters=1@h:9093",
        "log.dirs=d",
        *settings,
    )
    return Config.parse("".join(f"{line}\n" for line in lines))


def test_a_setting_that_the_broker_would_not_enforce_refuses_the_start():
    with pytest.raises(ConfigError, match=r"com\.example\.Selector is not known"):
        broker_with_data(config("replica.selector.class=com.example.Selector"), MemoryDisk())


def test_the_settings_of_kafka_are_accepted():
    authorizer = (f"authorizer.class.name={STANDARD_AUTHORIZER}", "super.users=User:admin")
    more = (*authorizer, "log.segment.bytes=1048576", "log.retention.ms=1000", f"replica.selector.class={RACK_AWARE}")
    assert callable(broker_with_data(config(*more), MemoryDisk()))
