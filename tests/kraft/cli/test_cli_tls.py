"""Commands with TLS: bad stores and files end them with one clear error, and no error has a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.interop.certificates import Stores, leaf
from support.kraft.command_line import CLUSTER_ID, run, write_config
from support.loopback import free_ports

SECRET = "geheim1"


def bad_store(tmp_path: Path, *, password: str = SECRET) -> Path:
    """A configuration with a key store in Java's old form."""
    store = tmp_path / "c1.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    return write_config(
        tmp_path,
        port=free_ports(1)[0],
        listener_security_protocol_map="CONTROLLER:SSL",
        ssl_keystore_location=str(store),
        ssl_keystore_password=password,
    )


def test_format_refuses_what_a_start_would_refuse(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = bad_store(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    done = run(capsys, "format", "-c", str(config), "--cluster-id", CLUSTER_ID)
    assert done.code == 1
    assert "ssl.keystore.location: a store of Java's old form JKS cannot be read" in done.err
    assert "hint: Convert it: keytool -importkeystore" in done.err
    assert SECRET not in done.err
    assert sorted(tmp_path.rglob("*")) == before


def test_serve_refuses_a_bad_store_before_it_listens(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    done = run(capsys, "serve", "-c", str(bad_store(tmp_path)))
    assert done.code == 1
    assert "JKS cannot be read" in done.err
    assert SECRET not in done.err


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("security.protocol=SASL_SSL\n", "sasl.mechanism is not set"),
        ("security.protocol=SSL\nssl.truststore.location=/nowhere/ca.p12\n", "cannot read /nowhere/ca.p12"),
        (f"security.protocol=SSL\nssl.truststore.password={SECRET}\nssl.truststore.type=X\n", "allowed is PEM"),
    ],
)
def test_a_bad_command_config_is_one_clear_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, lines: str, told: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(lines)
    done = run(capsys, "quorum", "status", "--bootstrap-controller", "127.0.0.1:1", "--command-config", str(file))
    assert done.code == 1
    assert done.err.count("error:") == 1
    assert told in done.err
    assert SECRET not in done.err


def test_the_environment_names_the_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = Stores(tmp_path / "stores", leaf("admin"), "admin")
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={stores.trust_pem}\n")
    monkeypatch.setenv("KRAFT_COMMAND_CONFIG", str(file))
    done = run(
        capsys, "quorum", "status", "--bootstrap-controller", f"SSL://127.0.0.1:{free_ports(1)[0]}", "--timeout", "0.2"
    )
    assert done.code == 1
    assert "no active controller answered" in done.err
