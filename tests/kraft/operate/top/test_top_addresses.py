"""`kraft top` over TLS, and by the addresses of servers that name the controllers."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import trio

from kraft.config import Config
from kraft.node.embed import open_node
from kraft.process.hosting import host_controller
from support.interop.certificates import Stores, issue
from support.kraft.command_line import CLUSTER_ID, Done, run, write_config
from support.loopback import free_ports

SECONDS = 60


async def test_a_screen_over_tls_has_the_quorum_by_either_address(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller answers DescribeQuorum, as Kafka's brokers do; `tests/interop/recover` asks such a broker."""
    stores = {name: Stores(tmp_path / "stores", issue(name), name) for name in ("c1", "admin")}
    trust = tmp_path / "stores" / "c1.trust.pem"
    (port,) = free_ports(1)
    path = write_config(
        tmp_path,
        port=port,
        controller_quorum_election_timeout_ms="150",
        listener_security_protocol_map="CONTROLLER:SSL",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(stores["c1"].pem),
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(trust),
        listener_name_controller_ssl_client_auth="required",
    )
    assert run(capsys, "format", "-c", str(path), "-t", CLUSTER_ID).code == 0
    config = Config.load(str(path))
    client = tmp_path / "admin.properties"
    client.write_text(
        "security.protocol=SSL\nssl.keystore.type=PEM\nssl.truststore.type=PEM\n"
        f"ssl.keystore.location={stores['admin'].pem}\nssl.truststore.location={trust}\n"
    )
    at = f"127.0.0.1:{port}"

    async def top(*words: str) -> Done:
        return await trio.to_thread.run_sync(partial(run, capsys, "top", "--once", *words))

    with trio.fail_after(SECONDS):
        async with open_node(config, application=host_controller) as node:
            await node.wait_for_leader()
            for option in ("--bootstrap-controller", "--bootstrap-server"):
                done = await top("--json", option, at, "--command-config", str(client))
                assert done.code == 0, done.err
                found = json.loads(done.out)
                assert found["leaderId"] == 1
            monkeypatch.setenv("KRAFT_BOOTSTRAP_CONTROLLER", "127.0.0.1:1")
            done = await top("--bootstrap-server", at, "--command-config", str(client))
            assert done.code == 0, done.err
            in_the_clear = await top("--bootstrap-server", at)
    assert in_the_clear.code == 1
    assert "--command-config FILE" in in_the_clear.err.splitlines()[-1]
