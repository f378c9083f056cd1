"""`kraft top` over TLS, and by the addresses of servers that name the controllers."""

from __future__ import annotations

import json
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import trio

from kraft.config import Config
from kraft.node.embed import open_node
from kraft.process.hosting import host_controller
from support.interop.certificates import Stores, issue
from support.kraft.command_line import CLUSTER_ID, Done, run, write_config
from support.loopback import free_ports

SECONDS = 60


class Metrics(BaseHTTPRequestHandler):
    """A metrics listener of node 2."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'# TYPE kraft_node_info gauge\nkraft_node_info{node_id="2"} 1.0\n')

    def log_message(self, *_: object) -> None:
        """Nothing: what is printed is the command's."""


def test_metrics_listeners_are_read_without_a_leader(capsys: pytest.CaptureFixture[str]) -> None:
    with HTTPServer(("127.0.0.1", 0), Metrics) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        nowhere = f"127.0.0.1:{free_ports(1)[0]}"
        metrics = f"127.0.0.1:{server.server_port},{nowhere}"
        done = run(capsys, "top", "--json", "--timeout", "0.3", "--bootstrap-controller", nowhere, "--metrics", metrics)
        server.shutdown()
    assert (done.code, done.err) == (1, "")
    good, bad = json.loads(done.out)["metrics"]
    assert (good["nodeId"], bad["nodeId"]) == (2, None)


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


@pytest.mark.parametrize("words", [(), ("--bootstrap-server", "h:1", "--bootstrap-controller", "h:2")])
def test_exactly_one_address_is_needed(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    done = run(capsys, "top", "--once", *words)
    assert done.code == 2
    assert "give either --bootstrap-controller or --bootstrap-server" in done.err


def test_a_bad_address_names_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "top", "--once", "--bootstrap-server", "nowhere")
    assert done.code == 2
    assert "--bootstrap-server" in done.err
