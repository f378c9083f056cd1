"""`kraft recover unblock-ghost`: a registration with old ranges blocks an upgrade, and then does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from kraft.admin import AdminError, QuorumDescription, ReplicaDescription
from kraft.config import Config
from kraft.node.embed import open_node
from kraft.operate.recover.live.ghost import FETCHED_MS, ghost_of
from kraft.process.hosting import host_controller
from metadata_log.image import MetadataImage
from metadata_log.image.controllers import ControllerRegistration, ControllersImage
from metadata_log.image.persistent_map import with_entry
from metadata_log.types import Uuid
from support.eventually import eventually
from support.kraft.command_line import CLUSTER_ID, Done, run, write_config
from support.loopback import free_ports
from support.wire import ask
from transport.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)

OLD = Feature(name="metadata.version", min_supported_version=7, max_supported_version=27)
GHOST = ControllerRegistrationRequest(
    controller_id=99,
    incarnation_id=Uuid(bytes(15) + b"\x05"),
    listeners=[Listener(name="CONTROLLER", host="gone.example", port=9093)],
    features=[OLD],
)
SECONDS = 60


async def test_the_registration_of_a_vanished_controller_blocks_no_upgrade_any_more(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    path = write_config(tmp_path, port=port, controller_quorum_election_timeout_ms="150")
    assert run(capsys, "format", "-c", str(path), "-t", CLUSTER_ID, "--release-version", "4.0").code == 0

    async def kraft(*words: str) -> Done:
        command = (*words, "--bootstrap-controller", f"127.0.0.1:{port}")
        return await trio.to_thread.run_sync(run, capsys, *command)

    async def upgrade() -> Done:
        return await kraft("features", "upgrade", "--release-version", "4.3")

    with trio.fail_after(SECONDS):
        async with open_node(Config.load(str(path)), application=host_controller) as node:
            await node.wait_for_leader()

            def is_registered() -> bool:
                return ask(port, GHOST, 0, ControllerRegistrationResponse).error_code == 0

            await trio.to_thread.run_sync(eventually, is_registered, "the ghost is registered")
            refused = await upgrade()
            assert refused.code == 1
            assert "Controller 99 only supports versions 7-27" in refused.err

            planned = await kraft("recover", "unblock-ghost", "99")
            assert "metadata.version: controller 99 supports 7 to 27, the leader (controller 1) 7 to " in planned.out
            assert planned.out.endswith("Nothing was changed: add --execute.\n")
            assert (await upgrade()).code == 1
            done = await kraft("recover", "unblock-ghost", "99", "--execute", "--json")
            assert (done.code, json.loads(done.out)["changed"]) == (0, True)
            again = await kraft("recover", "unblock-ghost", "99", "--execute")
            assert "nothing to do" in again.out
            assert (await upgrade()).code == 0

            voter = await kraft("recover", "unblock-ghost", "1")
            assert (voter.code, "controller 1 is a voter, and no ghost" in voter.err) == (1, True)
            unknown = await kraft("recover", "unblock-ghost", "5", "--execute")
            assert (unknown.code, "controller 5 is not registered" in unknown.err) == (1, True)
            assert "Registered are: 1, 99." in unknown.err


@pytest.mark.parametrize(("ago_ms", "is_refused"), [(FETCHED_MS - 1, True), (FETCHED_MS, False)])
def test_a_controller_that_fetched_lately_is_no_ghost(ago_ms: int, is_refused: bool) -> None:
    now_ms = 1_800_000_000_000
    common: dict[str, Any] = {"directory_id": Uuid.ZERO, "log_end_offset": 5, "last_caught_up_ms": now_ms}
    quorum = QuorumDescription(
        leader_id=1,
        leader_epoch=1,
        high_watermark=5,
        voters=(ReplicaDescription(id=1, last_fetch_ms=now_ms, **common),),
        observers=(ReplicaDescription(id=99, last_fetch_ms=now_ms - ago_ms, **common),),
    )
    controllers = ControllersImage()
    for node_id, highest in ((1, 30), (99, 27)):
        one = ControllerRegistration(node_id, Uuid.ZERO, (), (("metadata.version", 7, highest),))
        controllers = ControllersImage(with_entry(controllers.by_id, node_id, one))
    image = MetadataImage(controllers=controllers)
    if is_refused:
        with pytest.raises(AdminError, match="within the last five minutes"):
            ghost_of(quorum, image, 99)
    else:
        assert ghost_of(quorum, image, 99).features == (("metadata.version", (7, 27), (7, 30)),)
