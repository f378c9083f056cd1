"""Logins in a configuration: what Kafka reads is read as by Kafka, and no error shows a secret."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from kraft.config import Config, ConfigError
from kraft.config.jaas import parse_jaas
from kraft.config.listener_settings import TO_CONTROLLERS
from kraft.config.sasl_settings import LoginSettings
from kraft.security.clients import load_client
from support.interop.sasl_corpus import recorded

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
    """The options of an entry, as Java prints them."""
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
    assert config.sasl.outgoing[TO_CONTROLLERS] == LoginSettings(mechanism="PLAIN", user="n", password="hush")
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
    assert config.sasl.outgoing[TO_CONTROLLERS] == LoginSettings(mechanism="SCRAM-SHA-256", user="b", password="hush")


@pytest.mark.parametrize(
    ("lines", "said", "hint"),
    [
        (USERS + OUTGOING, "listener CTL has a login, and sasl.enabled.mechanisms is not set", "PLAIN"),
        ("sasl.enabled.mechanisms=GSSAPI\n", "GSSAPI .Kerberos. is not supported", "SCRAM-SHA-512"),
        ("sasl.enabled.mechanisms=OAUTHBEARER\n", "oauthbearer.sasl.jaas.config is not set", "OAuthBearerLoginModule"),
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


OAUTH = "org.apache.kafka.common.security.oauthbearer"
MODULE = f"{OAUTH}.OAuthBearerLoginModule"
HANDLER = "listener.name.ctl.oauthbearer.sasl.server.callback.handler.class"
BEARER = (
    "sasl.enabled.mechanisms=PLAIN,OAUTHBEARER\n"
    f"{OUTGOING}{USERS}listener.name.ctl.oauthbearer.sasl.jaas.config={MODULE} required;\n"
)
SIGNED = f"{HANDLER}={OAUTH}.OAuthBearerValidatorCallbackHandler\n"
ANY_TOKEN = "".join(f"sasl.oauthbearer.allow.unverified.{one}=true\n" for one in ("audience", "issuer"))
UNSECURED = f"{HANDLER}={OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler\n"


def test_the_rules_for_tokens_of_a_listener() -> None:
    lines = (
        "sasl.oauthbearer.jwks.endpoint.url=https://idp/keys\n"
        "listener.name.ctl.sasl.oauthbearer.expected.audience=kafka,metadata\n"
        "sasl.oauthbearer.expected.audience=else\n"
        "listener.name.ctl.oauthbearer.sasl.oauthbearer.expected.issuer=idp\n"
        "sasl.oauthbearer.clock.skew.seconds=5\n"
        "sasl.oauthbearer.sub.claim.name=client_id\n"
    )
    found = Config.parse(NODE + BEARER + SIGNED + lines).sasl.listeners["CTL"].tokens
    assert found is not None
    assert (found.keys_url, found.audiences, found.issuer) == ("https://idp/keys", ("kafka", "metadata"), "idp")
    assert (found.skew_ms, found.subject_claim, found.scope_claim) == (5000, "client_id", "scope")
    assert found.refresh_ms == 3_600_000


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        ("", "audience"),
        ("expected.audience=", "audience"),
        ("expected.audience=kafka", "issuer"),
        ("expected.issuer=idp", "audience"),
        ("expected.issuer=idp allow.unverified.audience=false", "audience"),
        ("allow.unverified.audience=true expected.issuer=", "issuer"),
        ("allow.unverified.audience=yes", "allowed is true or false"),
        ("expected.audience=kafka expected.issuer=idp", None),
        ("expected.audience=kafka allow.unverified.issuer=true", None),
        ("allow.unverified.audience=TRUE allow.unverified.issuer=true", None),
    ],
)
@pytest.mark.parametrize("prefix", ["", "listener.name.ctl.", "listener.name.ctl.oauthbearer."])
def test_a_listener_for_signed_tokens_says_whose_tokens_it_takes(prefix: str, lines: str, missing: str | None) -> None:
    """As Kafka 4.4: each of audience and issuer is expected, or any is allowed."""
    wanted = "".join(f"{prefix}sasl.oauthbearer.{line}\n" for line in lines.split())
    text = f"{NODE}{BEARER}{SIGNED}sasl.oauthbearer.jwks.endpoint.url=https://idp/keys\n{wanted}"
    if missing is None:
        found = Config.parse(text).sasl.listeners["CTL"].tokens
        assert found is not None
        assert (bool(found.audiences), bool(found.issuer)) == ("audience=kafka" in lines, "issuer=idp" in lines)
        return
    with pytest.raises(ConfigError, match=missing) as caught:
        Config.parse(text)
    assert "allow" in f"{caught.value.what} {caught.value.hint}"


def test_the_rules_for_tokens_without_signature() -> None:
    options = 'unsecuredValidatorRequiredScope="a b" unsecuredValidatorAllowableClockSkewMs="7"'
    text = NODE + BEARER.replace(f"{MODULE} required;", f"{MODULE} required {options};") + UNSECURED
    found = Config.parse(text).sasl.listeners["CTL"].tokens
    assert found is not None
    assert (found.keys_url, found.required_scope, found.skew_ms) == (None, ("a", "b"), 7)


def test_controllers_log_in_at_each_other_by_token() -> None:
    text = (
        f"sasl.enabled.mechanisms=OAUTHBEARER\nsasl.mechanism.controller.protocol=OAUTHBEARER\n{SIGNED}"
        f'listener.name.ctl.oauthbearer.sasl.jaas.config={MODULE} required clientId="n" clientSecret="hush";\n'
        f"listener.name.ctl.oauthbearer.sasl.login.callback.handler.class={OAUTH}.OAuthBearerLoginCallbackHandler\n"
        "sasl.oauthbearer.jwks.endpoint.url=file:///keys.json\nsasl.oauthbearer.token.endpoint.url=https://idp/token\n"
        f"{ANY_TOKEN}"
    )
    config = Config.parse(NODE + text)
    login = config.sasl.outgoing[TO_CONTROLLERS]
    assert login is not None
    assert login.bearer is not None
    assert (login.bearer.url, login.bearer.client_id) == ("https://idp/token", "n")
    assert "hush" not in repr(config)


@pytest.mark.parametrize(
    ("lines", "said", "hint"),
    [
        ("", f"OAUTHBEARER needs {HANDLER}", "jwks.endpoint.url"),
        (SIGNED, "jwks.endpoint.url is not set", "file:///"),
        (f"{HANDLER}=a.B\n", "loads no classes", "OAuthBearerValidatorCallbackHandler"),
        (f"{SIGNED}sasl.oauthbearer.jwks.endpoint.url=http://idp/keys\n", "allowed is a URL with https", "loopback"),
        (f"{SIGNED}sasl.oauthbearer.jwks.endpoint.url=https://a:hush@idp/\n", "has a user or a password", ""),
        (
            f"{SIGNED}sasl.oauthbearer.jwks.endpoint.url=file:///k\nsasl.oauthbearer.jwt.validator.class=a.B\n",
            "loads no classes",
            "BrokerJwtValidator",
        ),
        (f"{SIGNED}sasl.server.callback.handler.class=a.B\n", "loads no classes", f"the key is {HANDLER}"),
        (
            f"{UNSECURED}listener.name.ctl.plain.sasl.server.callback.handler.class=a.B\n",
            "loads no classes",
            "Leave the setting out",
        ),
        (
            f"{UNSECURED}sasl.mechanism.controller.protocol=OAUTHBEARER\n",
            "unsecuredLoginStringClaim_sub is missing",
            "so that an issuer makes the token",
        ),
    ],
)
def test_an_incomplete_login_by_token_is_refused_with_a_hint(lines: str, said: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        Config.parse(NODE + BEARER + lines)
    assert hint in (caught.value.hint or "")
    assert "hush" not in f"{caught.value} {caught.value.hint}"


def test_a_client_makes_a_token_as_kafkas_client_does(tmp_path: Path) -> None:
    options = (
        'unsecuredLoginStringClaim_sub="alice" unsecuredLoginListClaim_scope=",a,b" unsecuredLoginNumberClaim_n="5"'
        ' unsecuredLoginLifetimeSeconds="60" unsecuredLoginExtension_traceId="x"'
    )
    text = (
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.jaas.config={MODULE} required {options};"
    )
    found = load_client(client(tmp_path, text)).login
    assert found is not None
    assert found.bearer is not None
    header, claims, signature = found.bearer().split(".")
    assert (json.loads(base64.urlsafe_b64decode(header + "==")), signature) == ({"alg": "none"}, "")
    shown = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert (shown["sub"], shown["scope"], shown["n"]) == ("alice", ["a", "b"], 5)
    assert shown["exp"] - shown["iat"] == pytest.approx(60)
    assert found.extensions == {"traceId": "x"}


def test_a_client_without_a_token_says_why(tmp_path: Path) -> None:
    text = (
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.jaas.config={MODULE} required;\n"
        f"sasl.login.callback.handler.class={OAUTH}.OAuthBearerLoginCallbackHandler\n"
    )
    with pytest.raises(ConfigError, match=r"token\.endpoint\.url is not set"):
        load_client(client(tmp_path, text))
    missing = f"sasl.oauthbearer.token.endpoint.url={(tmp_path / 'none').as_uri()}\n"
    with pytest.raises(ConfigError, match="no token: No such file or directory"):
        load_client(client(tmp_path, text + missing))
    needs = "sasl.oauthbearer.token.endpoint.url=https://idp/token\n"
    with pytest.raises(ConfigError, match=r"client\.id is not set"):
        load_client(client(tmp_path, text + needs))
