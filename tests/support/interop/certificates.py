"""Certificates of a test: authorities, good and bad leaves, contexts and files in each form that Kafka reads."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate

from transport.interface import PEERS
from transport.protocol.inbound import Principal
from transport.tls import Tls, TlsListener

HOSTS = ("localhost", "127.0.0.1", "::1")
PASSWORD = "changeit"


@cache
def authority() -> trustme.CA:
    """The authority that every side of a test trusts."""
    return trustme.CA()


@cache
def another_authority() -> trustme.CA:
    """An authority that no side trusts."""
    return trustme.CA()


def issue(
    name: str = "node", *hosts: str, days: int = 60, by: trustme.CA | None = None, is_early: bool = False
) -> trustme.LeafCert:
    """A new certificate for these hosts, by default for this machine; `name` is its common name.

    The certificate ends in so many days; one that is early begins tomorrow.
    """
    now = datetime.now(UTC)
    return (by or authority()).issue_cert(
        *(hosts or HOSTS),
        common_name=name,
        organization_unit_name="tests",
        not_before=now + timedelta(days=1) if is_early else now - timedelta(days=30),
        not_after=now + timedelta(days=days, hours=1),
    )


@cache
def leaf(name: str = "node", *hosts: str, is_expired: bool = False, is_trusted: bool = True) -> trustme.LeafCert:
    """The certificate of a test with these properties."""
    by = authority() if is_trusted else another_authority()
    return issue(name, *hosts, days=-1 if is_expired else 60, by=by)


def server_context(
    certificate: trustme.LeafCert | None = None, client_auth: ssl.VerifyMode = ssl.CERT_NONE
) -> ssl.SSLContext:
    """The context of a listener."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    (leaf() if certificate is None else certificate).configure_cert(context)
    authority().configure_trust(context)
    context.verify_mode = client_auth
    return context


def client_context(
    certificate: trustme.LeafCert | None = None, version: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    """The context of a client that checks the name of the host."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority().configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    if version is not None:
        context.maximum_version = version
    return context


def tls(
    *,
    server: ssl.SSLContext | None = None,
    client: ssl.SSLContext | None = None,
    principal_of: Callable[[bytes], Principal] | None = None,
    handshake_timeout_ms: int = 10_000,
) -> Tls:
    """TLS on the listeners CONTROLLER and OTHER and towards peers."""
    listener = TlsListener(server or server_context(), principal_of)
    return Tls(
        listeners={"CONTROLLER": listener, "OTHER": listener},
        outgoing={PEERS: client or client_context()},
        handshake_timeout_ms=handshake_timeout_ms,
    )


class Stores:
    """The files of one certificate in a directory, in each form."""

    def __init__(self, root: Path, certificate: trustme.LeafCert, name: str = "node") -> None:
        self.root, self.name = root, name
        root.mkdir(exist_ok=True)
        chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
        key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
        assert isinstance(key, EllipticCurvePrivateKey | RSAPrivateKey)
        self.key = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.sealed_key = key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode())
        )
        self.chain = chain
        self.trusted = authority().cert_pem.bytes()
        self.pem = self._write("pem", self.key + chain)
        self.sealed_pem = self._write("sealed.pem", self.sealed_key + chain)
        self.trust_pem = self._write("trust.pem", self.trusted)
        certificates = [load_pem_x509_certificate(blob.bytes()) for blob in certificate.cert_chain_pems]
        sealed = BestAvailableEncryption(PASSWORD.encode())
        self.p12 = self._write(
            "p12",
            pkcs12.serialize_key_and_certificates(b"node", key, certificates[0], certificates[1:] or None, sealed),
        )
        ca = pkcs12.PKCS12Certificate(load_pem_x509_certificate(self.trusted), b"ca")
        self.trust_p12 = self._write("trust.p12", pkcs12.serialize_java_truststore([ca], sealed))

    def _write(self, ending: str, data: bytes) -> Path:
        path = self.root / f"{self.name}.{ending}"
        path.touch(mode=0o600)
        path.write_bytes(data)
        return path
