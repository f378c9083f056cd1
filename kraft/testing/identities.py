"""The identities of clients and brokers of a test: accounts for SASL, and an authority for TLS with its certificates.

Nothing is made before somebody asks for it: keys and certificates would cost a start a tenth of a second, and most
tests need none.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.config.described import Secret
from kraft.config.tls_settings import PEM, ConfigTls, StoreSettings, TlsSettings
from kraft.security.contexts import load_tls
from transport.protocol.sasl.credentials import ScramKeys
from transport.protocol.sasl.scram import LEAST_ITERATIONS, keys_of
from transport.sasl import Sasl
from transport.tls import TlsListener

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

HOST: Final = "127.0.0.1"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LIFETIME: Final = timedelta(days=30)
_EARLIER: Final = timedelta(hours=1)
"""Certificates are valid from so long ago: the clocks of machines may differ."""


class Account(Struct, frozen=True):
    """A user who can log in at the listeners with SASL, by each of `MECHANISMS`."""

    user: str
    password: str


class Accounts:
    """The users that a test has asked for. They log in at every broker, whatever the metadata says of them."""

    def __init__(self) -> None:
        self._passwords: dict[str, str] = {}

    def account(self, user: str, password: str | None = None) -> Account:
        """The account of a user, which exists from now on."""
        known = self._passwords.setdefault(user, f"{user}-secret") if password is None else password
        self._passwords[user] = known
        return Account(user, known)

    def added_to(self, sasl: Sasl) -> Sasl:
        """The logins of a node, with these accounts besides those of its metadata."""
        listeners = {}
        for name, listener in sasl.listeners.items():
            users = {
                mechanism: replace(known, passwords=self._passwords, scram=self._scram_beside(known.scram))
                for mechanism, known in listener.users.items()
            }
            listeners[name] = replace(listener, users=users)
        return replace(sasl, listeners=listeners)

    def _scram_beside(self, stored: Callable[[str, str], ScramKeys | None]) -> Callable[[str, str], ScramKeys | None]:
        def scram(mechanism: str, user: str) -> ScramKeys | None:
            keys, password = stored(mechanism, user), self._passwords.get(user)
            return keys if keys is not None or password is None else _scram_keys(mechanism, password)

        return scram


@lru_cache(maxsize=128)
def _scram_keys(mechanism: str, password: str) -> ScramKeys:
    return keys_of(mechanism, password.encode(), b"the salt of a test", LEAST_ITERATIONS)


class Certificate(Struct, frozen=True):
    """A certificate with its key: texts in PEM form, and the path of a file with both."""

    certificate: str
    key: str
    file: str


class Authority:
    """An authority that clients of a test trust, and what it has signed.

    Args:
        directory: Returns the directory for files, and makes it.
    """

    def __init__(self, directory: Callable[[], Path]) -> None:
        self._directory = directory
        self._signed: dict[str, Certificate] = {}

    @cached_property
    def _made(self) -> tuple[EllipticCurvePrivateKey, x509.Certificate]:
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509 import BasicConstraints, KeyUsage

        key = ec.generate_private_key(ec.SECP256R1())
        signs = dict.fromkeys(
            (
                *("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
                *("encipher_only", "decipher_only"),
            ),
            False,
        )
        extensions = (
            BasicConstraints(ca=True, path_length=0),
            KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **signs),
        )
        return key, _signed("trio-kraft test authority", key, key, None, extensions)

    @cached_property
    def ca_pem(self) -> str:
        """The certificate of the authority in PEM form."""
        return _pem(self._made[1])

    @cached_property
    def ca_file(self) -> str:
        """The path of a file with that certificate."""
        path = self._directory() / "ca.pem"
        path.write_text(self.ca_pem)
        return str(path)

    @cached_property
    def context(self) -> ssl.SSLContext:
        """A context for a client that trusts the authority."""
        return ssl.create_default_context(cadata=self.ca_pem)

    def certificate(self, name: str) -> Certificate:
        """The certificate of a client, by which brokers know it as the principal `User:CN=name`."""
        if name not in self._signed:
            self._signed[name] = self._certificate(name)
        return self._signed[name]

    def _certificate(self, name: str) -> Certificate:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509 import BasicConstraints, DNSName, IPAddress, SubjectAlternativeName

        key = ec.generate_private_key(ec.SECP256R1())
        names = SubjectAlternativeName([DNSName("localhost"), IPAddress(ip_address(HOST))])
        certificate = _pem(_signed(name, key, *self._made, (BasicConstraints(ca=False, path_length=None), names)))
        key_pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
        path = self._directory() / f"{len(self._signed)}.pem"
        path.touch(mode=0o600)
        path.write_text(key_pem + certificate)
        return Certificate(certificate, key_pem, str(path))

    def server(self) -> TlsListener:
        """TLS of a listener of a broker. Clients with a certificate have its name, and others are anonymous."""
        own = self.certificate("localhost")
        store = StoreSettings(key="keystore", where="the test", type=PEM)
        settings = TlsSettings(
            keystore=replace(store, private_key=Secret(own.key), certificates=Secret(own.certificate)),
            truststore=replace(store, certificates=Secret(self.ca_pem)),
            client_auth="requested",
        )
        loaded = load_tls(ConfigTls((("SSL", settings),)))
        assert loaded.tls is not None
        return loaded.tls.listeners["SSL"]


class TlsWhenNeeded(Mapping[str, TlsListener]):
    """TLS by listener, which is made with the first connection."""

    def __init__(self, names: Collection[str], make: Callable[[], TlsListener]) -> None:
        self._names = frozenset(names)
        self._make = make
        self._made: TlsListener | None = None

    def __getitem__(self, name: str) -> TlsListener:
        if name not in self._names:
            raise KeyError(name)
        if self._made is None:
            self._made = self._make()
        return self._made

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _signed(
    name: str,
    key: EllipticCurvePrivateKey,
    signer: EllipticCurvePrivateKey,
    authority: x509.Certificate | None,
    extensions: Collection[x509.ExtensionType],
) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509 import (
        AuthorityKeyIdentifier,
        CertificateBuilder,
        Name,
        NameAttribute,
        NameOID,
        SubjectKeyIdentifier,
        random_serial_number,
    )

    now = datetime.now(UTC)
    subject = Name([NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        CertificateBuilder(
            issuer_name=subject if authority is None else authority.subject,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=random_serial_number(),
            not_valid_before=now - _EARLIER,
            not_valid_after=now + _LIFETIME,
        )
        .add_extension(SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=extension.oid.dotted_string in _CRITICAL)
    return builder.sign(signer, hashes.SHA256())


_CRITICAL: Final = ("2.5.29.15", "2.5.29.19")
"""Key usage and basic constraints."""


def _pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()
