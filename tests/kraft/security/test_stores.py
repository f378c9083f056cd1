"""Key stores and trust stores: each form that Kafka reads becomes a context, and a bad one is a clear error."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from kraft.config import Config, ConfigError
from kraft.security.clients import load_client
from kraft.security.contexts import UNCHECKED_HOST, load_tls
from support.interop.certificates import PASSWORD, Stores, another_authority, leaf
from transport.interface import PEERS
from transport.tls import Tls, TlsSession

NODE = """
process.roles=controller
node.id=1
controller.listener.names=CTL,OLD
listeners=CTL://127.0.0.1:9093,OLD://127.0.0.1:9094
listener.security.protocol.map=CTL:SSL,OLD:PLAINTEXT
controller.quorum.voters=1@127.0.0.1:9093
"""


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path / "stores", leaf("c1"), "c1")


def one_line(pem: bytes) -> str:
    """A PEM text as a value of a properties file."""
    return pem.decode().strip().replace("\n", "\\n")


def trusting(stores: Stores) -> str:
    return f"ssl.truststore.type=PEM\nssl.truststore.location={stores.trust_pem}\n"


def loaded(*lines: str) -> Tls:
    found = load_tls(Config.parse(NODE + "\n".join(lines))).tls
    assert found is not None
    return found


def shakes_hands(tls: Tls) -> TlsSession:
    """The server's end after a handshake of the listener with the outgoing context of the same node."""
    context = tls.outgoing[PEERS]
    assert context is not None
    client, server = TlsSession(context, "127.0.0.1"), TlsSession(tls.listeners["CTL"].context)
    while not (client.is_secured and server.is_secured):
        for one, other in ((client, server), (server, client)):
            if not one.is_secured:
                one.advance()
            if sealed := one.take():
                other.receive(sealed)
    return server


def forms(stores: Stores) -> dict[str, str]:
    """The same key and authorities in each form."""
    return {
        "pem-files": f"ssl.keystore.type=PEM\nssl.keystore.location={stores.pem}\n{trusting(stores)}",
        "pem-file-with-encrypted-key": f"ssl.keystore.type=PEM\nssl.keystore.location={stores.sealed_pem}\n"
        f"ssl.key.password={PASSWORD}\n{trusting(stores)}",
        "pem-texts": f"ssl.keystore.type=PEM\nssl.keystore.key={one_line(stores.key)}\n"
        f"ssl.keystore.certificate.chain={one_line(stores.chain)}\nssl.truststore.type=PEM\n"
        f"ssl.truststore.certificates={one_line(stores.trusted)}\n",
        "pkcs12": f"ssl.keystore.type=PKCS12\nssl.keystore.location={stores.p12}\nssl.keystore.password={PASSWORD}\n"
        f"ssl.truststore.type=PKCS12\nssl.truststore.location={stores.trust_p12}\n"
        f"ssl.truststore.password={PASSWORD}\n",
        "pkcs12-under-the-default-type": f"ssl.keystore.location={stores.p12}\nssl.keystore.password={PASSWORD}\n"
        f"ssl.truststore.location={stores.trust_p12}\nssl.truststore.password={PASSWORD}\n",
    }


@pytest.mark.parametrize(
    "form", ["pem-files", "pem-file-with-encrypted-key", "pem-texts", "pkcs12", "pkcs12-under-the-default-type"]
)
@pytest.mark.parametrize("client_auth", ["none", "required"])
def test_a_node_speaks_tls_to_itself_with_stores_of_each_form(stores: Stores, form: str, client_auth: str) -> None:
    tls = loaded(forms(stores)[form], f"listener.name.ctl.ssl.client.auth={client_auth}")
    assert list(tls.listeners) == ["CTL"]
    server = shakes_hands(tls)
    certificate = server.peer_certificate
    if client_auth == "none":
        assert certificate is None
    else:
        principal_of = tls.listeners["CTL"].principal_of
        assert certificate is not None
        assert principal_of is not None
        assert principal_of(certificate).name.startswith("CN=c1,")


def test_the_prefix_of_a_listener_has_precedence(stores: Stores) -> None:
    tls = loaded(
        "ssl.keystore.location=/nowhere",
        "ssl.keystore.type=PEM",
        f"listener.name.ctl.ssl.keystore.location={stores.pem}",
        "listener.name.ctl.ssl.client.auth=required",
        "listener.name.ctl.ssl.principal.mapping.rules=RULE:^CN=(.*?),.*$/$1/U",
        trusting(stores),
    )
    server = shakes_hands(tls)
    certificate, principal_of = server.peer_certificate, tls.listeners["CTL"].principal_of
    assert certificate is not None
    assert principal_of is not None
    assert principal_of(certificate).name == "C1"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("", "listener CTL has the protocol SSL, and no certificate"),
        ("ssl.keystore.type=PEM\nssl.keystore.location=/nowhere/key.pem", "cannot read /nowhere/key.pem"),
        ("ssl.keystore.location={jks}\nssl.keystore.password=geheim1", "JKS cannot be read"),
        ("ssl.keystore.location={pem}", "the file is in PEM form"),
        ("ssl.keystore.type=PKCS12\nssl.keystore.location={p12}\nssl.keystore.password=geheim1", "password is another"),
        ("ssl.keystore.type=PEM\nssl.keystore.location={sealed}", "the private key is encrypted"),
        ("ssl.keystore.type=PEM\nssl.keystore.location={sealed}\nssl.key.password=geheim1", "cannot be used"),
        ("ssl.keystore.type=PEM\nssl.keystore.location={pem}\nssl.keystore.password=geheim1", "PEM has no password"),
        ("ssl.keystore.type=PEM\nssl.keystore.location={trust}", "there is no private key in PEM form"),
        ("ssl.keystore.type=PEM\nssl.keystore.key=geheim1", "a key and its chain of certificates belong together"),
        ("ssl.keystore.key=geheim1\nssl.keystore.certificate.chain=x", "ssl.keystore.key is for the type PEM"),
        (
            "ssl.keystore.type=PEM\nssl.keystore.key=geheim1\nssl.keystore.certificate.chain=geheim1",
            "there is no private key in PEM form",
        ),
        ("ssl.keystore.type=PEM\nssl.keystore.location={other}", "the key is not the one of the certificate"),
        ("ssl.keystore.type=BKS", "allowed is PEM, PKCS12, JKS"),
        ("{good}\nssl.truststore.password=geheim1", "a trust store of the type PEM has no password"),
        ("{good}\nssl.truststore.location={key}", "the trust store has no certificate"),
        ("{good}\nssl.enabled.protocols=TLSv1.1,TLSv1.2", "TLSv1.1 is not safe, or unknown"),
        ("{good}\nssl.protocol=TLSv1.2\nssl.enabled.protocols=TLSv1.3", "no version of TLS is left"),
        ("{good}\nssl.client.auth=maybe", "allowed is required or requested or none"),
        ("{good}\nssl.endpoint.identification.algorithm=ldaps", "allowed is https, or an empty value"),
        ("{good}\nssl.engine.factory.class=org.example.Engine", "cannot load parts of Java"),
        ("{good}\nssl.cipher.suites=TLS_AES_256_GCM_SHA384", "suites of TLS 1.3 cannot be chosen here"),
        ("{good}\nssl.cipher.suites=TLS_NO_SUCH_SUITE", "there is no cipher suite TLS_NO_SUCH_SUITE"),
        ("{good}\nssl.principal.mapping.rules=RULE:[/x/", "cannot be matched here"),
        ("{good}\nssl.principal.mapping.rules=default", "is invalid at 'default'"),
    ],
)
def test_a_bad_setting_is_an_error_without_any_secret(stores: Stores, tmp_path: Path, lines: str, told: str) -> None:
    jks, key, other = tmp_path / "c1.jks", tmp_path / "key.pem", tmp_path / "other.pem"
    jks.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    key.write_bytes(stores.key)
    other.write_bytes(stores.key + Stores(tmp_path / "more", leaf("c2"), "c2").chain)
    good = f"ssl.keystore.type=PEM\nssl.keystore.location={stores.pem}\n{trusting(stores)}"
    places = {"jks": jks, "key": key, "other": other, "good": good, "pem": stores.pem, "p12": stores.p12}
    text = lines.format(**places, sealed=stores.sealed_pem, trust=stores.trust_pem)
    with pytest.raises(ConfigError) as caught:
        loaded(text)
    shown = f"{caught.value} {caught.value.hint} {caught.value!r} {caught.value.__cause__!r}"
    assert told in shown
    assert "geheim1" not in shown
    assert "PRIVATE" not in shown.replace("BEGIN PRIVATE KEY-----.", "")


def test_the_refusal_of_jks_has_the_command_that_converts_it(stores: Stores, tmp_path: Path) -> None:
    jks = tmp_path / "c1.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(ConfigError) as caught:
        loaded(f"ssl.keystore.location={jks}")
    assert f"keytool -importkeystore -srckeystore {jks} -srcstoretype JKS" in (caught.value.hint or "")


def test_secrets_are_hidden_where_settings_are_printed(stores: Stores) -> None:
    for form in ("pkcs12", "pem-texts", "pem-file-with-encrypted-key"):
        prefixed = "".join(f"listener.name.ctl.{line}\n" for line in forms(stores)[form].splitlines())
        for text in (forms(stores)[form], prefixed):
            config = Config.parse(NODE + text)
            assert PASSWORD not in repr(config)
            assert "PRIVATE KEY" not in repr(config)


def test_cipher_suites_and_versions_limit_the_context(stores: Stores) -> None:
    tls = loaded(
        forms(stores)["pem-files"],
        "ssl.cipher.suites=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_AES_256_GCM_SHA384",
        "ssl.enabled.protocols=TLSv1.2",
    )
    context = tls.listeners["CTL"].context
    old = [cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"]
    assert old == ["ECDHE-ECDSA-AES256-GCM-SHA384"]
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2
    assert shakes_hands(tls).version == "TLSv1.2"


def test_warnings_name_what_makes_tls_weaker(tmp_path: Path) -> None:
    expired = Stores(tmp_path, leaf("old", is_expired=True), "old")
    expired.pem.chmod(0o644)
    text = forms(expired)["pem-files"] + "ssl.endpoint.identification.algorithm=\n"
    warnings = load_tls(Config.parse(NODE + text)).warnings
    assert UNCHECKED_HOST in warnings
    assert any("the certificate has expired at" in line for line in warnings)
    assert any("other users of this machine may read" in line for line in warnings)


def test_a_node_without_tls_loads_nothing() -> None:
    config = Config.parse(NODE.replace("CTL:SSL", "CTL:PLAINTEXT"))
    assert load_tls(config).tls is None


def test_the_file_of_a_client_is_the_one_of_kafkas_tools(stores: Stores, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SSL\n" + trusting(stores))
    security = load_client(str(path))
    assert (security.protocol, security.warnings) == ("SSL", ())
    assert security.tls is not None
    assert security.tls.outgoing[PEERS] is not None
    path.write_text("ssl.truststore.location=/nowhere\n")
    assert "has no effect without security.protocol=SSL" in load_client(str(path)).warnings[0]
    path.write_text("security.protocol=TLS\n")
    with pytest.raises(ConfigError, match="allowed is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"):
        load_client(str(path))


def test_a_wrong_letter_in_the_file_of_a_client_does_not_leave_it_without_tls_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("client.id=a\nsecurity.protocl=SSL\nmetadata.max.age.ms=3\nbootstrap.servers=a:1\n")
    told = f"unknown setting security.protocl; did you mean security.protocol? ({path}:2)"
    assert load_client(str(path)).warnings == (told,)


def test_an_unknown_authority_is_unknown(stores: Stores, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(another_authority().cert_pem.bytes())
    tls = loaded(forms(stores)["pem-files"] + f"ssl.truststore.location={other}\n")
    with pytest.raises(Exception, match="unable to get local issuer certificate"):
        shakes_hands(tls)
