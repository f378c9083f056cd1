"""The metrics of a served node with TLS: the ends of its certificates, their change, and failed handshakes."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from ssl import PEM_cert_to_DER_cert

from trustme import LeafCert

from kraft.security.certificates import Certificate
from scraped_metrics import Scrape, get
from support.eventually import eventually
from support.interop.certificates import Stores, authority, issue
from support.kraft.command_line import CLUSTER_ID, write_config
from support.loopback import free_ports

END = "kraft_tls_certificate_not_after_timestamp_seconds"
FAILED = "kafka_server_socket_server_metrics_failed_authentication_total"


def parsed(pem: bytes) -> Certificate:
    return Certificate.parse(PEM_cert_to_DER_cert(pem.decode()))


def shown(certificate: LeafCert) -> Certificate:
    return parsed(certificate.cert_chain_pems[0].bytes())


@contextmanager
def served(config: Path, metrics: int) -> Iterator[subprocess.Popen[bytes]]:
    """A node as a process, once it is ready."""
    command = [sys.executable, "-m", "kraft", "serve", "-c", str(config), "--metrics", f"127.0.0.1:{metrics}"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: is_ready(metrics), "the node is ready")
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def is_ready(port: int) -> bool:
    try:
        return get(port, "/readyz").status == 200
    except OSError:
        return False


def test_certificates_and_failed_handshakes_of_a_node_are_metrics(tmp_path: Path) -> None:
    port, metrics = free_ports(2)
    first, second = issue("c1", days=20), issue("c1", days=50)
    stores = Stores(tmp_path / "stores", first, "c1")
    config = write_config(
        tmp_path,
        port=port,
        listener_security_protocol_map="CONTROLLER:SSL",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(stores.pem),
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(stores.trust_pem),
    )
    done = subprocess.run(
        [sys.executable, "-m", "kraft", "format", "-c", str(config), "-t", CLUSTER_ID], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr

    def scrape() -> Scrape:
        return Scrape(get(metrics, "/metrics").body)

    with served(config, metrics) as process:
        before, wanted = scrape(), shown(first)
        for listener in ("CONTROLLER", "outgoing"):
            labels = {"listener": listener, "subject": wanted.subject, "serial": wanted.serial}
            assert before.value(END, **labels) == wanted.ends.timestamp()
        trusted = parsed(authority().cert_pem.bytes())
        of_authority = before.value("kraft_tls_ca_not_after_timestamp_seconds", serial=trusted.serial)
        assert of_authority == trusted.ends.timestamp()
        assert before.value(FAILED, listener="CONTROLLER") == 0

        with socket.create_connection(("127.0.0.1", port), timeout=60) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while stranger.recv(1024):
                pass
        eventually(lambda: scrape().value(FAILED, listener="CONTROLLER") == 1, "the failed handshake is counted")
        assert scrape().value("kraft_authentication_total", result="tls-plain-bytes", mechanism="TLS") == 1

        Stores(tmp_path / "stores", second, "c1")
        process.send_signal(signal.SIGHUP)
        renewed = shown(second)
        eventually(lambda: scrape().has(END, serial=renewed.serial), "the new certificate is in the metrics")
        after = scrape()
        assert after.value(END, listener="CONTROLLER") == renewed.ends.timestamp() > wanted.ends.timestamp()
        assert after.value("kraft_tls_reload_total", result="replaced") == 1
