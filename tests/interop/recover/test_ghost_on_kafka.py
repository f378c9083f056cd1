"""`kraft recover unblock-ghost` on a controller of Apache Kafka: the upgrade that Kafka refuses goes through."""

from __future__ import annotations

from pathlib import Path

import pytest

from metadata_log.types import Uuid
from support.interop.one_controller import single
from support.interop.our_nodes import kraft as run_ours
from support.interop.our_nodes import our_format, told
from support.interop.real_kafka import KafkaInstallation, eventually, kafka_controller, running
from support.wire import active_controller, ask
from transport.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)

pytestmark = pytest.mark.kafka

GHOST = ControllerRegistrationRequest(
    controller_id=99,
    incarnation_id=Uuid(bytes(15) + b"\x05"),
    listeners=[Listener(name="CONTROLLER", host="gone.example", port=9093)],
    features=[Feature(name="metadata.version", min_supported_version=7, max_supported_version=27)],
)


def test_an_upgrade_that_a_ghost_blocks_goes_through(kafka: KafkaInstallation, tmp_path: Path) -> None:
    layout = single(tmp_path / "theirs")
    our_format(layout, release="4.0")
    with running(layout, kafka_controller(kafka, layout), name="kafka"):
        port = layout.ports[1]
        eventually(lambda: active_controller(port) == 1, "it is active")
        assert ask(port, GHOST, 0, ControllerRegistrationResponse).error_code == 0
        at = ("--bootstrap-controller", f"127.0.0.1:{port}")
        upgrade = ("features", "upgrade", "--release-version", "4.3", *at)
        refused = run_ours(*upgrade)
        assert refused.returncode == 1
        # Which feature Kafka names first depends on a hash map.
        assert "INVALID_UPDATE_VERSION" in refused.stderr
        assert "Controller 99 " in refused.stderr
        told("recover", "unblock-ghost", "99", "--execute", *at)
        told(*upgrade)
