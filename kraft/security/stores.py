"""Key stores and trust stores as PEM texts, whatever their form (Kafka: `DefaultSslEngineFactory`)."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
from msgspec import Struct

from kraft.config.errors import ConfigError
from kraft.config.tls_settings import PEM, StoreSettings
from kraft.security.certificates import Certificate

_JKS: Final = b"\xfe\xed\xfe\xed"
_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)
_OTHERS_MAY_READ: Final = stat.S_IRWXG | stat.S_IRWXO


class KeyStore(Struct, frozen=True):
    """A private key with its chain of certificates, the node's own first, in PEM form."""

    key: bytes
    chain: bytes
    certificate: Certificate
    """The content of the node's own certificate."""
    password: str = ""
    """The password of the key, if the key is encrypted."""
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "KeyStore([hidden])"


def read_keystore(settings: StoreSettings) -> KeyStore:
    """The key of a key store. Raises `ConfigError`, which does not repeat any secret."""
    warnings: list[str] = []
    if settings.private_key is not None and settings.certificates is not None:
        key, chain = _text(settings.private_key.value), _text(settings.certificates.value)
    else:
        data = _read(settings)
        if (path := Path(settings.location)).stat().st_mode & _OTHERS_MAY_READ:
            warnings.append(f"{settings.key}: other users of this machine may read or change {path}")
        if settings.type != PEM:
            return _keystore_of_pkcs12(settings, data, warnings)
        key = chain = data
    keys = [block[0] for block in _BLOCK.finditer(key) if block[1].endswith(b"PRIVATE KEY")]
    certificates = [block[0] for block in _BLOCK.finditer(chain) if block[1] == b"CERTIFICATE"]
    if not keys:
        raise _bad(settings, "there is no private key in PEM form", "It begins with -----BEGIN PRIVATE KEY-----.")
    if not certificates:
        raise _bad(settings, "there is no certificate in PEM form", "It begins with -----BEGIN CERTIFICATE-----.")
    password = "" if settings.key_password is None else settings.key_password.value
    if b"ENCRYPTED" in keys[0].splitlines()[0] and not password:
        raise _bad(settings, "the private key is encrypted", "Add ssl.key.password.")
    own = _own(settings, certificates[0])
    return KeyStore(keys[0] + b"\n", b"\n".join(certificates) + b"\n", own, password, tuple(warnings))


def read_truststore(settings: StoreSettings) -> str:
    """The trusted certificates in PEM form. Raises `ConfigError`."""
    data = _text(settings.certificates.value) if settings.certificates is not None else _read(settings)
    if settings.type != PEM:
        _, own, others = _load_pkcs12(settings, data)
        data = b"\n".join(_pem(one) for one in ([] if own is None else [own]) + others)
    blocks = [block[0] for block in _BLOCK.finditer(data) if block[1] in (b"CERTIFICATE", b"TRUSTED CERTIFICATE")]
    if not blocks:
        hint = None if settings.type == PEM else "Without ssl.truststore.password no certificate can be read."
        raise _bad(settings, "the trust store has no certificate", hint)
    return b"\n".join(blocks).decode("ascii") + "\n"


def _keystore_of_pkcs12(settings: StoreSettings, data: bytes, warnings: list[str]) -> KeyStore:
    key, own, others = _load_pkcs12(settings, data)
    if key is None or own is None:
        raise _bad(settings, "the key store has no private key with a certificate")
    chain = [own]
    while issuer := next((one for one in others if one.subject == chain[-1].issuer and one not in chain), None):
        chain.append(issuer)
    return KeyStore(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        b"".join(map(_pem, chain)),
        _own(settings, _pem(own)),
        warnings=tuple(warnings),
    )


def _load_pkcs12(
    settings: StoreSettings, data: bytes
) -> tuple[PrivateKeyTypes | None, x509.Certificate | None, list[x509.Certificate]]:
    if data.startswith(_JKS):
        path = settings.location
        raise _bad(
            settings,
            "a store of Java's old form JKS cannot be read",
            f"Convert it: keytool -importkeystore -srckeystore {path} -srcstoretype JKS -destkeystore {path}.p12"
            f" -deststoretype PKCS12; then set {settings.key}={path}.p12 and the type to PKCS12.",
        )
    if data.lstrip().startswith(b"-----BEGIN"):
        kind = settings.key.removesuffix("location") + "type"
        raise _bad(settings, f"the file is in PEM form, and {kind} is {settings.type}", f"Add {kind}=PEM.")
    password = None if settings.password is None else settings.password.value.encode()
    try:
        store = pkcs12.load_pkcs12(data, password)
    except ValueError as bad:
        if settings.type == "JKS":
            hint = f"The file is neither JKS nor PKCS12. {settings.key.removesuffix('location')}type=PEM reads PEM."
        else:
            hint = f"Check {settings.key.removesuffix('location')}password."
        raise _bad(settings, "the file is no PKCS12 store, or its password is another one", hint) from bad
    own = None if store.cert is None else store.cert.certificate
    return store.key, own, [one.certificate for one in store.additional_certs]


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _own(settings: StoreSettings, certificate: bytes) -> Certificate:
    try:
        return Certificate.of(x509.load_pem_x509_certificate(certificate))
    except ValueError as bad:
        raise _bad(settings, "the certificate is not sound") from bad


def _read(settings: StoreSettings) -> bytes:
    try:
        return Path(settings.location).read_bytes()
    except OSError as failed:
        raise _bad(settings, f"cannot read {settings.location}: {failed.strerror or failed}") from failed


def _text(value: str) -> bytes:
    return value.encode("utf-8", "replace")


def _bad(settings: StoreSettings, why: str, hint: str | None = None) -> ConfigError:
    return ConfigError(f"{settings.key}: {why}", where=settings.where, hint=hint)
