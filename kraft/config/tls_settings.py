"""The settings of TLS: of one listener, or of a client (Kafka: `SslConfigs`, `BrokerSecurityConfigs`).

This module checks what the texts alone can show. `kraft.security` reads the files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from kraft.config.addresses import split_list
from kraft.config.described import Secret
from kraft.config.principal_rules import PrincipalRules
from kraft.config.properties import Setting
from kraft.config.settings_reader import SettingsReader

SSL: Final = "SSL"
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
CLIENT_AUTH: Final = ("none", "requested", "required")
PEM: Final = "PEM"
_STORE_TYPES: Final = (PEM, "PKCS12", "JKS")

TLS_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ssl.keystore.type": "JKS",
        "ssl.truststore.type": "JKS",
        "ssl.client.auth": "none",
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
        "ssl.protocol": "TLSv1.3",
        "ssl.principal.mapping.rules": "DEFAULT",
        "ssl.allow.dn.changes": "false",
        "ssl.allow.san.changes": "false",
    }
)
"""Kafka's defaults; every other key of TLS is empty."""
_OF_JAVA: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "ssl.provider": (),
        "ssl.secure.random.implementation": (),
        "ssl.engine.factory.class": (),
        "ssl.keymanager.algorithm": ("SunX509", "NewSunX509", "PKIX"),
        "ssl.trustmanager.algorithm": ("PKIX", "SunX509"),
    }
)
"""Settings that choose parts of Java, with the values that change nothing here."""


class StoreSettings(Struct, frozen=True, kw_only=True):
    """A key store or a trust store: a file, or texts of the configuration."""

    key: str
    """The key of the setting that an error names."""
    where: str
    type: str
    location: str = ""
    password: Secret | None = None
    certificates: Secret | None = None
    """The chain of the key, or the trusted authorities, in PEM form."""
    private_key: Secret | None = None
    key_password: Secret | None = None


class TlsSettings(Struct, frozen=True, kw_only=True):
    """TLS of one listener or of a client."""

    keystore: StoreSettings | None = None
    truststore: StoreSettings | None = None
    client_auth: str = "none"
    checks_host: bool = True
    """Whether a client checks that the certificate of the server names its host."""
    versions: tuple[str, ...] = TLS_VERSIONS
    cipher_suites: tuple[str, ...] = ()
    cipher_suites_at: str = ""
    """The place of `ssl.cipher.suites` in the configuration."""
    rules: PrincipalRules = PrincipalRules()
    allows_dn_changes: bool = False
    """Whether a certificate of another subject may replace the one in use."""
    allows_san_changes: bool = False
    """Whether a certificate without a name of the one in use may replace it."""

    @property
    def stores(self) -> tuple[StoreSettings, ...]:
        """The key store and the trust store, if there are any."""
        return tuple(one for one in (self.keystore, self.truststore) if one is not None)


class ConfigTls(Struct, frozen=True):
    """TLS of a node: of its listeners by name, and of its connections by the kind of peers; None is in the clear."""

    listeners: tuple[tuple[str, TlsSettings], ...] = ()
    outgoing: Mapping[str, TlsSettings | None] = {}
    altered: Callable[[Mapping[str, str]], ConfigTls] | None = None
    """Returns these settings with the values of other settings, by key; raises `ConfigError`. None for a client."""

    @property
    def every(self) -> tuple[TlsSettings, ...]:
        """The settings of the listeners, and those of the connections to peers."""
        return (*(one for _, one in self.listeners), *(one for one in self.outgoing.values() if one is not None))


RELOADABLE: Final = (
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
)
"""The settings that a running node takes from its dynamic configuration (`SslConfigs.RECONFIGURABLE_CONFIGS`)."""
_OF_LISTENER: Final = rf"listener\.name\.[^.]+\.({'|'.join(map(re.escape, RELOADABLE))})"


def is_reloadable(key: str) -> bool:
    """Whether a running node takes this setting from its dynamic configuration: a store of one listener.

    Kafka: `SslConfigs.RECONFIGURABLE_CONFIGS`, which take effect only with the prefix of a listener.
    """
    return re.fullmatch(_OF_LISTENER, key) is not None


def read_tls(reader: SettingsReader, listener: str | None = None, *, needs_key: bool = False) -> TlsSettings:
    """The settings of a listener, or of a client without the name of a listener; raises `ConfigError`.

    As in Kafka, `listener.name.<listener>.KEY` has precedence over `KEY`. A server needs a key.
    """
    scope = _Scope(reader, listener)
    for key, allowed in _OF_JAVA.items():
        if (value := scope.text(key)) and value not in allowed:
            raise scope.bad(key, "this software cannot load parts of Java", "Leave the setting out.")
    if (client_auth := scope.text("ssl.client.auth").lower()) not in CLIENT_AUTH:
        raise scope.bad("ssl.client.auth", f"allowed is {', '.join(CLIENT_AUTH)}")
    if (algorithm := scope.text("ssl.endpoint.identification.algorithm").lower()) not in ("https", ""):
        raise scope.bad("ssl.endpoint.identification.algorithm", "allowed is https, or an empty value")
    try:
        rules = PrincipalRules.parse(scope.text("ssl.principal.mapping.rules"))
    except ValueError as bad:
        raise scope.bad("ssl.principal.mapping.rules", str(bad)) from bad
    keystore = _keystore(scope)
    if needs_key and keystore is None:
        raise scope.bad(
            "ssl.keystore.location",
            f"listener {listener} has the protocol SSL, and no certificate",
            "Name a file with ssl.keystore.location, or add ssl.keystore.key and ssl.keystore.certificate.chain.",
        )
    return TlsSettings(
        keystore=keystore,
        truststore=_truststore(scope),
        client_auth=client_auth,
        checks_host=algorithm == "https",
        versions=_versions(scope),
        cipher_suites=split_list(scope.text("ssl.cipher.suites")),
        cipher_suites_at=scope.where("ssl.cipher.suites"),
        rules=rules,
        allows_dn_changes=scope.text("ssl.allow.dn.changes").lower() == "true",
        allows_san_changes=scope.text("ssl.allow.san.changes").lower() == "true",
    )


class _Scope:
    """The settings of one listener, or of a client."""

    def __init__(self, reader: SettingsReader, listener: str | None) -> None:
        self._reader = reader
        self._prefix = "" if listener is None else f"listener.name.{listener.lower()}."

    def key(self, key: str) -> str:
        """The key that counts: the one with the prefix if it is set."""
        prefixed = self._prefix + key
        return prefixed if prefixed in self._reader.settings else key

    def setting(self, key: str) -> Setting | None:
        return self._reader.settings.get(self.key(key))

    def text(self, key: str) -> str:
        setting = self.setting(key)
        return TLS_DEFAULTS.get(key, "") if setting is None else setting.value

    def secret(self, key: str) -> Secret | None:
        text = self.text(key)
        return Secret(text) if text else None

    def where(self, key: str) -> str:
        setting = self.setting(key)
        return self._reader.source if setting is None else setting.where

    def bad(self, key: str, why: str, hint: str | None = None) -> Exception:
        return self._reader.bad(self.key(key), why, hint=hint)


def _type(scope: _Scope, key: str) -> str:
    kind = scope.text(key).upper()
    if kind not in _STORE_TYPES:
        raise scope.bad(key, f"allowed is {', '.join(_STORE_TYPES)}")
    return kind


def _keystore(scope: _Scope) -> StoreSettings | None:
    location, private_key = scope.text("ssl.keystore.location"), scope.secret("ssl.keystore.key")
    chain, password = scope.secret("ssl.keystore.certificate.chain"), scope.secret("ssl.keystore.password")
    kind = _type(scope, "ssl.keystore.type")
    if private_key is None and chain is None and not location:
        return None
    if kind == PEM:
        if password is not None:
            raise scope.bad(
                "ssl.keystore.password",
                "a key store of the type PEM has no password",
                "The password of an encrypted key is ssl.key.password.",
            )
        if location and (private_key is not None or chain is not None):
            raise scope.bad("ssl.keystore.location", "the key is given twice: as a file and as ssl.keystore.key")
        if not location and (private_key is None or chain is None):
            missing = "ssl.keystore.key" if private_key is None else "ssl.keystore.certificate.chain"
            raise scope.bad(missing, "a key and its chain of certificates belong together")
    elif private_key is not None or chain is not None:
        raise scope.bad("ssl.keystore.type", "ssl.keystore.key is for the type PEM", "Add ssl.keystore.type=PEM.")
    key = "ssl.keystore.location" if location else "ssl.keystore.key"
    return StoreSettings(
        key=scope.key(key),
        where=scope.where(key),
        type=kind,
        location=location,
        password=password,
        certificates=chain,
        private_key=private_key,
        key_password=scope.secret("ssl.key.password"),
    )


def _truststore(scope: _Scope) -> StoreSettings | None:
    location, certificates = scope.text("ssl.truststore.location"), scope.secret("ssl.truststore.certificates")
    password, kind = scope.secret("ssl.truststore.password"), _type(scope, "ssl.truststore.type")
    if certificates is None and not location:
        return None
    if kind == PEM:
        if password is not None:
            raise scope.bad("ssl.truststore.password", "a trust store of the type PEM has no password")
        if location and certificates is not None:
            raise scope.bad("ssl.truststore.location", "the authorities are given twice: as a file and as a text")
    elif certificates is not None:
        raise scope.bad(
            "ssl.truststore.type", "ssl.truststore.certificates is for the type PEM", "Add ssl.truststore.type=PEM."
        )
    key = "ssl.truststore.location" if location else "ssl.truststore.certificates"
    return StoreSettings(
        key=scope.key(key),
        where=scope.where(key),
        type=kind,
        location=location,
        password=password,
        certificates=certificates,
    )


def _versions(scope: _Scope) -> tuple[str, ...]:
    """The versions of TLS. As in Kafka, `ssl.protocol=TLSv1.2` hides TLS 1.3."""
    key, versions = "ssl.enabled.protocols", split_list(scope.text("ssl.enabled.protocols"))
    for version in versions:
        if version not in TLS_VERSIONS:
            raise scope.bad(key, f"{version} is not safe, or unknown; allowed is {', '.join(TLS_VERSIONS)}")
    highest = scope.text("ssl.protocol")
    if highest not in (*TLS_VERSIONS, "TLS"):
        raise scope.bad("ssl.protocol", f"allowed is {', '.join(TLS_VERSIONS)}")
    if highest == TLS_VERSIONS[0]:
        versions = tuple(version for version in versions if version != TLS_VERSIONS[1])
    if not versions:
        raise scope.bad(key, "no version of TLS is left", f"Add {key}=TLSv1.2,TLSv1.3.")
    return versions
