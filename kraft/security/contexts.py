"""From settings to contexts of TLS (Kafka: `SslFactory`, `DefaultSslEngineFactory`)."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.config import Config
from kraft.config.errors import ConfigError
from kraft.config.principal_rules import PrincipalRules
from kraft.config.tls_settings import TLS_VERSIONS, ConfigTls, TlsSettings
from kraft.security.subjects import subject_of
from transport.protocol.inbound import Principal
from transport.tls import Tls, TlsListener

if TYPE_CHECKING:
    from kraft.security.certificates import Certificate
    from kraft.security.stores import KeyStore

_MODES: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_OF_TLS_1_3: Final = ("TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256")
UNCHECKED_HOST: Final = (
    "ssl.endpoint.identification.algorithm is empty: any certificate of a trusted authority passes for any host"
)


class OwnCertificate(Struct, frozen=True, kw_only=True):
    """A certificate that this side shows."""

    key: str
    """The key of the setting that names its store."""
    certificate: Certificate


class LoadedTls(Struct, frozen=True):
    """TLS of a transport, with warnings for the user."""

    tls: Tls | None
    warnings: tuple[str, ...] = ()
    """A certificate that ends soon is among these."""
    listeners: Mapping[str, OwnCertificate] = {}
    """The certificates of the listeners, by name."""
    outgoing: Mapping[str, OwnCertificate] = {}
    """The certificates of this side as a client, by the kind of peers."""
    authorities: tuple[Certificate, ...] = ()
    """The authorities in the trust stores of the settings, each once; not those that the machine trusts."""

    @property
    def own(self) -> tuple[OwnCertificate, ...]:
        """Every certificate of this side, each once."""
        return tuple({one.key: one for one in (*self.listeners.values(), *self.outgoing.values())}.values())


class TlsFacts(Struct, frozen=True):
    """The certificates of a node with TLS, and what became of changed stores since the start."""

    loaded: LoadedTls
    replaced: int = 0
    """How often changed stores have replaced those in use."""
    kept: int = 0
    """How often changed stores could not be used."""


def load_tls(config: Config | ConfigTls) -> LoadedTls:
    """Read the stores of a node's configuration. Raises `ConfigError`, which does not repeat any secret."""
    settings = config.tls if isinstance(config, Config) else config
    if not settings.every:
        return LoadedTls(None)
    warnings: list[str] = []
    served = {name: _server(one, warnings) for name, one in settings.listeners}
    clients = {kind: None if one is None else _client(one, warnings) for kind, one in settings.outgoing.items()}
    known = {kind: one for kind, one in clients.items() if one is not None}
    loaded = LoadedTls(
        Tls(
            listeners={name: TlsListener(served[name].context, _Mapper(one.rules)) for name, one in settings.listeners},
            outgoing={kind: None if one is None else one.context for kind, one in clients.items()},
        ),
        listeners={name: one.own for name, one in served.items() if one.own is not None},
        outgoing={kind: one.own for kind, one in known.items() if one.own is not None},
        authorities=_authorities([*served.values(), *known.values()]),
    )
    return replace(loaded, warnings=tuple(dict.fromkeys((*warnings, *validity_warnings(loaded)))))


def validity_warnings(loaded: LoadedTls) -> tuple[str, ...]:
    """The texts about certificates of this side that peers refuse now or soon."""
    if not loaded.own:
        return ()
    # As in `_configured`: no library of certificates without certificates.
    from kraft.security.certificates import validity_warning

    found = ((one.key, validity_warning(one.certificate)) for one in loaded.own)
    return tuple(f"{key}: {text}" for key, text in found if text is not None)


class _Mapper:
    """From the certificate of a peer to its principal."""

    def __init__(self, rules: PrincipalRules) -> None:
        self._rules = rules

    def __call__(self, certificate: bytes) -> Principal:
        """The principal of a certificate in DER form; raises `ValueError`."""
        return Principal(name=self._rules.principal_of(subject_of(certificate)))


class _Context(Struct, frozen=True):
    context: ssl.SSLContext
    own: OwnCertificate | None
    has_truststore: bool


def _server(settings: TlsSettings, warnings: list[str]) -> _Context:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own = _configured(context, settings, warnings)
    context.verify_mode = _MODES[settings.client_auth]
    return _Context(context, own, settings.truststore is not None)


def _client(settings: TlsSettings, warnings: list[str]) -> _Context:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host
    if not settings.checks_host:
        warnings.append(UNCHECKED_HOST)
    return _Context(context, _configured(context, settings, warnings), settings.truststore is not None)


def _authorities(contexts: Iterable[_Context]) -> tuple[Certificate, ...]:
    """The authorities of these contexts that are readable. OpenSSL accepts some certificates that nothing else does."""
    # Loaded here, because a node without TLS needs no library of certificates.
    from kraft.security.certificates import Certificate

    found: dict[bytes, Certificate] = {}
    for one in contexts:
        for der in one.context.get_ca_certs(binary_form=True) if one.has_truststore else ():
            with suppress(ValueError):
                found[der] = Certificate.parse(der)
    return tuple(found.values())


def _configured(context: ssl.SSLContext, settings: TlsSettings, warnings: list[str]) -> OwnCertificate | None:
    """Apply the settings to the context; returns the certificate of this side, if it has one."""
    # Loaded here, because a node without TLS needs no library of certificates.
    from kraft.security.stores import read_keystore, read_truststore

    context.minimum_version = _VERSIONS[min(settings.versions)]
    context.maximum_version = _VERSIONS[max(settings.versions)]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _choose_ciphers(context, settings)
    own = None
    if settings.keystore is not None:
        store = read_keystore(settings.keystore)
        warnings += store.warnings
        _load_chain(context, settings, store)
        own = OwnCertificate(key=settings.keystore.key, certificate=store.certificate)
    if settings.truststore is None:
        # As in Java, the authorities that this machine trusts.
        context.load_default_certs(
            ssl.Purpose.CLIENT_AUTH if context.protocol == ssl.PROTOCOL_TLS_SERVER else ssl.Purpose.SERVER_AUTH
        )
        return own
    trusted = read_truststore(settings.truststore)
    try:
        context.load_verify_locations(cadata=trusted)
    except ssl.SSLError as bad:
        at = settings.truststore
        raise ConfigError(f"{at.key}: a trusted certificate is not sound", where=at.where) from bad
    return own


def _load_chain(context: ssl.SSLContext, settings: TlsSettings, store: KeyStore) -> None:
    at = settings.keystore
    assert at is not None
    try:
        with _file(store.key + store.chain) as path:
            context.load_cert_chain(path, password=lambda: store.password)
    except ssl.SSLError as bad:
        if bad.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"{at.key}: the key is not the one of the certificate", where=at.where) from None
        why = "the key or its certificate cannot be used"
        hint = "Check ssl.key.password." if store.password else None
        raise ConfigError(f"{at.key}: {why}: {_words(bad)}", where=at.where, hint=hint) from None


def _words(bad: ssl.SSLError) -> str:
    return (bad.reason or "no reason is known").replace("_", " ").lower()


@contextmanager
def _file(data: bytes) -> Iterator[str]:
    """A path for these bytes, which `ssl` reads from files only. On Linux they never reach a disk."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("kraft-key", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
    else:
        with tempfile.NamedTemporaryFile() as file:  # private to its owner, and removed at the end of the block
            file.write(data)
            file.flush()
            yield file.name


def _choose_ciphers(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Allow only the listed suites of TLS 1.2. Python cannot choose among those of TLS 1.3."""
    suites = settings.cipher_suites
    if not suites:
        return
    wanted = [suite for suite in suites if suite not in _OF_TLS_1_3]
    if not wanted:
        if set(suites) >= set(_OF_TLS_1_3) and settings.versions == TLS_VERSIONS[1:]:
            return
        raise ConfigError(
            "ssl.cipher.suites: suites of TLS 1.3 cannot be chosen here, and no other one is listed",
            where=settings.cipher_suites_at,
            hint="Leave the setting out, or list the suites of TLS 1.2 that are allowed, too.",
        )
    known = {cipher["name"] for cipher in _all_ciphers()}
    names = {suite: _name_of_openssl(suite) for suite in wanted}
    unknown = [suite for suite, name in names.items() if name not in known]
    if unknown:
        raise ConfigError(
            f"ssl.cipher.suites: there is no cipher suite {', '.join(unknown)} here",
            where=settings.cipher_suites_at,
            hint="For example TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384.",
        )
    context.set_ciphers(":".join(names.values()))


def _all_ciphers() -> list[dict[str, str]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL")
    return [{"name": str(cipher["name"])} for cipher in context.get_ciphers()]


def _name_of_openssl(suite: str) -> str:
    """`TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384` is `ECDHE-RSA-AES256-GCM-SHA384` in OpenSSL."""
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    return f"{'' if exchange == 'RSA' else exchange + '_'}{cipher}".replace("_", "-")
