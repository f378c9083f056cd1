"""The quotes of the page on ghost controllers, as tools and controllers of stock 4.3.1 and 4.4.0 print it."""

from __future__ import annotations

from pathlib import Path

import pytest

from metadata_log.types import Uuid
from support.interop.kafka_or_skip import found_or_skipped
from support.interop.one_controller import single
from support.interop.our_nodes import kraft, our_format, told
from support.interop.real_kafka import CLUSTER_TOOL, eventually, kafka_controller, running
from support.kafka_jars import KAFKA_VERSION, NEWER_VERSION
from support.wire import active_controller, ask
from transport.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "ghost-controllers.md"
FEATURES_TOOL = "org.apache.kafka.tools.FeatureCommand"
GHOST = ControllerRegistrationRequest(
    controller_id=99,
    incarnation_id=Uuid(bytes(15) + b"\x05"),
    listeners=[Listener(name="CONTROLLER", host="gone.example", port=9093)],
    features=[
        Feature(name="kraft.version", min_supported_version=0, max_supported_version=1),
        Feature(name="metadata.version", min_supported_version=1, max_supported_version=21),
    ],
)
"""The features that a controller of 3.9.2 registers."""


def quoted(*lines: str) -> None:
    """Each is a line of the page."""
    on_page = PAGE.read_text().splitlines()
    assert [line for line in lines if line not in on_page] == []


@pytest.mark.parametrize(("version", "level"), [(KAFKA_VERSION, 30), (NEWER_VERSION, 33)])
def test_the_page_quotes_stock_kafka(version: str, level: int, tmp_path: Path) -> None:
    kafka, newer = found_or_skipped(version), found_or_skipped(NEWER_VERSION)
    layout = single(tmp_path / "theirs")
    our_format(layout, release="3.9")
    with running(layout, kafka_controller(kafka, layout), name="kafka"):
        port = layout.ports[1]
        eventually(lambda: active_controller(port) == 1, "it is active")
        assert ask(port, GHOST, 0, ControllerRegistrationResponse).error_code == 0
        at = ("--bootstrap-controller", f"127.0.0.1:{port}")
        upgrade = ("upgrade", "--feature", f"metadata.version={level}")
        refused = kafka.run(FEATURES_TOOL, *at, *upgrade)
        [said] = [line for line in (refused.stdout + refused.stderr).splitlines() if line.startswith("Could not")]
        quoted(said.replace(str(level), "30"))
        early = newer.run(CLUSTER_TOOL, "unregister-controller", *at, "--id", "99")
        assert early.returncode == 0
        quoted(*early.stdout.splitlines())
        unblocked = told("recover", "unblock-ghost", "99", "--execute", *at)
        print(unblocked)
        done = kafka.tool(FEATURES_TOOL, *at, *upgrade)
        quoted(done.strip().replace(str(level), "33"))
        if version != NEWER_VERSION:
            return
        quoted(*unblocked.splitlines())
        quoted(*told("quorum", "unregister", "99", *at).splitlines())
        again = kraft("quorum", "unregister", "99", *at)
        assert again.returncode == 1
        quoted(*again.stderr.splitlines()[:1])
