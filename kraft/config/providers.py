"""References such as `${env:NAME}` in a configuration, and the providers that resolve them (KIP-297, KIP-421; Kafka:
`AbstractConfig.resolveConfigVariables`, `ConfigTransformer`).

Kafka keeps an unresolved reference as text, and makes a directory with the name `${env:LOGD}`. Here such a reference is
a `ConfigError`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import PurePath
from typing import Final, Protocol

from kraft.config.addresses import split_list
from kraft.config.errors import ConfigError
from kraft.config.properties import Setting, trim
from metadata_log.java_properties import BadEscape, entries

PROVIDERS: Final = "config.providers"
_PREFIX: Final = PROVIDERS + "."
_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_REFERENCE: Final = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
"""Provider, path (optional) and key."""


class _Unanswered(Exception):
    """A provider has no value for a path and a key; the text states the cause."""


class _Provider(Protocol):
    def value(self, path: str, key: str) -> str:
        """The value; raises `_Unanswered`."""


class _Environment:
    """`${env:NAME}` (Kafka: `EnvVarConfigProvider`)."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        try:
            self._allowed = re.compile(parameters.get("allowlist.pattern", ".*"), re.ASCII)
        except re.error as bad:
            raise _Unanswered(f"allowlist.pattern: this is no regular expression: {bad}") from bad

    def value(self, path: str, key: str) -> str:
        if path:
            raise _Unanswered("a variable of the environment has no path; write ${env:NAME}")
        if key not in os.environ:
            raise _Unanswered(f"the environment has no variable {key}")
        if self._allowed.fullmatch(key) is None:
            raise _Unanswered(f"allowlist.pattern does not allow the variable {key}")
        return os.environ[key]


class _Files:
    """The common part of both file providers: only paths in `allowed.paths` are allowed; by default every path."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._allowed = tuple(map(os.path.normpath, split_list(parameters.get("allowed.paths", ""))))
        self._read: dict[str, str] = {}
        for path in self._allowed:
            if not (os.path.isabs(path) and os.path.exists(path)):
                raise _Unanswered(f"allowed.paths: {path} is not an absolute path that exists")

    def _check(self, path: str) -> None:
        """Raise `_Unanswered` for a path that is not allowed. As in Kafka, the name of a symbolic link counts."""
        if not path:
            raise _Unanswered("the path is missing; write ${PROVIDER:PATH:KEY}")
        wanted = PurePath(os.path.normpath(path))
        if self._allowed and not any(wanted.is_relative_to(allowed) for allowed in self._allowed):
            raise _Unanswered(f"{path} is outside of allowed.paths")

    def _text(self, path: str) -> str:
        """The text of a file, read once, so that all its values are of one version."""
        if path not in self._read:
            try:
                with open(path, encoding="utf-8", newline="") as file:
                    self._read[path] = file.read()
            except OSError as failed:
                raise _Unanswered(f"cannot read {path}: {failed.strerror or failed}") from failed
            except ValueError as failed:
                raise _Unanswered(f"{path} is not a text in UTF-8") from failed
        return self._read[path]


class _PropertiesFile(_Files):
    """`${file:PATH:KEY}` (Kafka: `FileConfigProvider`)."""

    def value(self, path: str, key: str) -> str:
        self._check(path)
        try:
            values = {key: value for key, value, _ in entries(self._text(path))}
        except BadEscape as bad:
            raise _Unanswered(f"{path} is not a properties file: it has an invalid \\u escape") from bad
        if key not in values:
            raise _Unanswered(f"{path} has no key {key}")
        return values[key]


class _Directory(_Files):
    """`${dir:PATH:FILE}` (Kafka: `DirectoryConfigProvider`)."""

    def value(self, path: str, key: str) -> str:
        self._check(path)
        file = os.path.join(path, key)
        try:
            is_file = key not in ("", ".", "..") and os.sep not in key and stat.S_ISREG(os.stat(file).st_mode)
        except (OSError, ValueError):
            is_file = False
        if not is_file:
            raise _Unanswered(f"the directory {path} has no regular file {key}")
        return self._text(file)


_CLASSES: Final[dict[str, type[_Environment | _PropertiesFile | _Directory]]] = {
    _PACKAGE + "EnvVarConfigProvider": _Environment,
    _PACKAGE + "FileConfigProvider": _PropertiesFile,
    _PACKAGE + "DirectoryConfigProvider": _Directory,
}
_DECLARE: Final = f"Declare it, for example: {PROVIDERS}=env and {_PREFIX}env.class={_PACKAGE}EnvVarConfigProvider."


def resolve_references(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """The settings with references replaced by the values of providers.

    A resolved setting keeps its reference, which is shown instead of the value. As in Kafka, references inside a
    provider's value are not resolved. Raises `ConfigError` for an unresolved reference, and for any provider except
    Kafka's providers of the environment, of files and of directories.
    """
    providers = _declared(settings)
    return {key: _resolved(key, setting, providers) for key, setting in settings.items()}


def _declared(settings: Mapping[str, Setting]) -> dict[str, _Provider]:
    for key, setting in settings.items():
        if (key == PROVIDERS or key.startswith(_PREFIX)) and _REFERENCE.search(setting.value):
            raise _bad(key, setting, "a reference is not resolved in the declaration of a provider", "Write the value.")
    declared = settings.get(PROVIDERS)
    return {} if declared is None else {name: _provider(name, settings) for name in split_list(declared.value)}


def _provider(name: str, settings: Mapping[str, Setting]) -> _Provider:
    key = f"{_PREFIX}{name}.class"
    setting = settings.get(key)
    if setting is None:
        raise _bad(PROVIDERS, settings[PROVIDERS], f"{key} is not set", f"Add {key}={_PACKAGE}EnvVarConfigProvider.")
    if setting.value not in _CLASSES:
        known = ", ".join(_CLASSES)
        raise _bad(key, setting, "this software cannot load a config provider of this class", f"There are {known}.")
    prefix = f"{_PREFIX}{name}.param."
    parameters = {key.removeprefix(prefix): one for key, one in settings.items() if key.startswith(prefix)}
    try:
        return _CLASSES[setting.value]({parameter: one.value for parameter, one in parameters.items()})
    except _Unanswered as bad:
        at = next(iter(parameters.values()))
        raise ConfigError(
            f"{PROVIDERS}.{name}: {bad}", where=at.where, hint=f"Correct the settings that begin with {prefix}"
        ) from bad


def _resolved(key: str, setting: Setting, providers: Mapping[str, _Provider]) -> Setting:
    def value_of(match: re.Match[str]) -> str:
        provider = providers.get(match[1])
        if provider is None:
            declared = f"has only {', '.join(providers)}" if providers else "is not set"
            raise _bad(key, setting, f"there is no config provider {match[1]!r}: {PROVIDERS} {declared}", _DECLARE)
        try:
            return provider.value(match[3] or "", match[4])
        except _Unanswered as bad:
            raise _bad(
                key, setting, f"{match[0]} cannot be resolved: {bad}", "An unresolved reference is an error here."
            ) from bad

    resolved, references = _REFERENCE.subn(value_of, setting.value)
    return Setting(trim(resolved), setting.where, setting.value) if references else setting


def _bad(key: str, setting: Setting, why: str, hint: str) -> ConfigError:
    return ConfigError(f"{key}={setting.value}: {why}", where=setting.where, hint=hint)
