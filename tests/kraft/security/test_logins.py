"""Logins in a configuration: what Kafka reads is read as by Kafka, and no error shows a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sasl_corpus import recorded

from kraft.config import Config, ConfigError
from kraft.config.jaas import parse_jaas
from kraft.config.sasl_settings import LoginSettings
from kraft.security.clients import load_client

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
MAPPED = "listener.security.protocol.map=CTL:SASL_PLAINTEXT\n"
NODE = f"""process.roles=controller
node.id=1
controller.quorum.voters=1@localhost:9093
controller.listener.names=CTL
listeners=CTL://localhost:9093
{MAPPED}"""
ENABLED = "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256\n"
OUTGOING = "sasl.mechanism.controller.protocol=PLAIN\n"
USERS = (
    f'listener.name.ctl.plain.sasl.jaas.config={PLAIN} required username="n" password="hush"'
    ' user_n="hush" user_a="b";\n'
)
STORED = f"listener.name.ctl.scram-sha-256.sasl.jaas.config={SCRAM} required;\n"
BROKER = f"""process.roles=broker
node.id=101
controller.quorum.voters=1@localhost:9093
controller.listener.names=CTL
listeners=PLAINTEXT://localhost:9101
listener.security.protocol.map=CTL:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT
sasl.mechanism.controller.protocol=SCRAM-SHA-256
listener.name.ctl.scram-sha-256.sasl.jaas.config={SCRAM} required username=b password="hush";
"""


def options_in(parsed: str) -> str:
    """What Java prints of an entry."""
    return parsed.split("{", 1)[1].rsplit("}", 1)[0]


@pytest.mark.parametrize("row", recorded()["jaas"], ids=lambda row: row["text"])
def test_a_jaas_string_is_read_as_by_kafka(row: dict[str, Any]) -> None:
    if "error" in row:
        with pytest.raises(ValueError, match=r"JAAS|login module"):
            parse_jaas(row["text"])
        return
    entry = parse_jaas(row["text"])
    assert row["parsed"].startswith(f"{entry.module} ")
    # Java prints the options in the order of a hash map.
    shown = {f"{key}={value}" for key, value in entry.options.items()}
    assert sorted(", ".join(shown)) == sorted(options_in(row["parsed"]))
    assert all(each in options_in(row["parsed"]) for each in shown)


def test_the_logins_of_a_controller() -> None:
    config = Config.parse(NODE + ENABLED + OUTGOING + USERS + STORED)
    found = config.sasl.listeners["CTL"]
    assert (found.mechanisms, found.passwords) == (("PLAIN", "SCRAM-SHA-256"), {"n": "hush", "a": "b"})
    assert config.sasl.outgoing == LoginSettings(mechanism="PLAIN", user="n", password="hush")
    assert found.max_reauth_ms == {"PLAIN": 0, "SCRAM-SHA-256": 0}
    assert "hush" not in repr(config)


@pytest.mark.parametrize(
    ("lines", "plain_ms", "scram_ms"),
    [
        ("connections.max.reauth.ms=7", 7, 7),
        ("connections.max.reauth.ms=7\nlistener.name.ctl.connections.max.reauth.ms=8", 8, 8),
        ("connections.max.reauth.ms=7\nlistener.name.ctl.plain.connections.max.reauth.ms=9", 9, 7),
    ],
)
def test_the_nearest_setting_of_a_session_counts(lines: str, plain_ms: int, scram_ms: int) -> None:
    config = Config.parse(NODE + ENABLED + OUTGOING + USERS + STORED + lines)
    assert config.sasl.listeners["CTL"].max_reauth_ms == {"PLAIN": plain_ms, "SCRAM-SHA-256": scram_ms}


def test_the_mechanisms_of_a_listener_have_precedence() -> None:
    config = Config.parse(NODE + ENABLED + OUTGOING + USERS + "listener.name.ctl.sasl.enabled.mechanisms=PLAIN\n")
    assert config.sasl.listeners["CTL"].mechanisms == ("PLAIN",)


def test_a_broker_logs_in_at_controllers_by_scram() -> None:
    config = Config.parse(BROKER)
    assert config.sasl.listeners == {}
    assert config.sasl.outgoing == LoginSettings(mechanism="SCRAM-SHA-256", user="b", password="hush")


@pytest.mark.parametrize(
    ("lines", "said", "hint"),
    [
        (USERS + OUTGOING, "listener CTL has a login, and sasl.enabled.mechanisms is not set", "PLAIN"),
        ("sasl.enabled.mechanisms=GSSAPI\n", "GSSAPI .Kerberos. is not supported", "SCRAM-SHA-512"),
        ("sasl.enabled.mechanisms=OAUTHBEARER\n", "OAUTHBEARER is not supported yet", "SCRAM-SHA-512"),
        ("sasl.enabled.mechanisms=plain\n", "there is no mechanism plain", "PLAIN"),
        ("sasl.enabled.mechanisms=PLAIN,PLAIN\n" + USERS, "or one twice", "PLAIN"),
        (ENABLED + USERS + OUTGOING, "listener.name.ctl.scram-sha-256.sasl.jaas.config is not set", "ScramLoginModule"),
        (
            f'{ENABLED}{OUTGOING}sasl.jaas.config={PLAIN} required user_a="hush";\n',
            "listener.name.ctl.plain.sasl.jaas.config is not set",
            "has no effect, as in Kafka",
        ),
        (ENABLED + USERS + STORED, "sasl.mechanism.controller.protocol is not set", "PLAIN"),
        (
            ENABLED + USERS + STORED + "sasl.mechanism.controller.protocol=SCRAM-SHA-256\n",
            "controllers cannot log in at each other by SCRAM-SHA-256",
            "Brokers and clients may",
        ),
        (
            f"{ENABLED}{STORED}{OUTGOING}listener.name.ctl.plain.sasl.jaas.config={SCRAM} required user_a=hush;\n",
            "the login module of PLAIN is",
            "",
        ),
        (
            f"{ENABLED}{STORED}{OUTGOING}listener.name.ctl.plain.sasl.jaas.config={PLAIN} required user_a=hush\n",
            "does not end with a semicolon",
            "",
        ),
        (
            f'{ENABLED}{STORED}{OUTGOING}listener.name.ctl.plain.sasl.jaas.config={PLAIN} required user_a="hush";\n',
            "username or password is missing",
            "their own entry",
        ),
        (
            ENABLED + USERS + STORED + OUTGOING + "sasl.server.callback.handler.class=a.B\n",
            "this software loads no classes",
            "Leave the setting out",
        ),
        (
            f"sasl.enabled.mechanisms=SCRAM-SHA-256\n{USERS}{STORED}{OUTGOING}",
            "PLAIN is missing, which sasl.mechanism.controller.protocol names",
            "Add PLAIN",
        ),
    ],
)
def test_an_incomplete_login_is_refused_with_a_hint_and_without_a_secret(lines: str, said: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        Config.parse(NODE + lines)
    assert hint in (caught.value.hint or "")
    assert "hush" not in f"{caught.value} {caught.value.hint}"


def client(tmp_path: Path, text: str) -> str:
    path = tmp_path / "client.properties"
    path.write_text(text)
    return str(path)


def test_the_login_of_a_client(tmp_path: Path) -> None:
    text = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={SCRAM} required \\\n"
    found = load_client(client(tmp_path, text + 'username="alice" password="hu\\\\"sh" tokenauth="true";\n'))
    assert found.protocol == "SASL_PLAINTEXT"
    assert found.tls is None
    assert found.login is not None
    assert (found.login.user, found.login.password, found.login.is_token) == ("alice", 'hu"sh', True)
    assert "sh" not in repr(found.login).replace("SHA", "")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("security.protocol=SASL_PLAINTEXT\n", "sasl.mechanism is not set"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\n", "Kerberos"),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n", "sasl.jaas.config is not set"),
        (
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} required password=hush;",
            "needs username and password",
        ),
        (
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} required password=hush",
            "semicolon",
        ),
    ],
)
def test_an_incomplete_login_of_a_client_is_refused(tmp_path: Path, lines: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        load_client(client(tmp_path, lines))
    assert "hush" not in f"{caught.value} {caught.value.hint}"


def test_a_login_without_its_protocol_is_a_warning(tmp_path: Path) -> None:
    (warning,) = load_client(client(tmp_path, "sasl.mechanism=PLAIN\n")).warnings
    assert "sasl.mechanism has no effect without security.protocol=SASL_SSL" in warning
