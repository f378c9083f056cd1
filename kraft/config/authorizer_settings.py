"""Access rules in a configuration: the authorizer and the super users (Kafka: `StandardAuthorizer`)."""

from __future__ import annotations

from kraft.config.addresses import split_list
from kraft.config.keys import STANDARD_AUTHORIZER, TEXTS
from kraft.config.settings_reader import SettingsReader


def check_authorizer(reader: SettingsReader, listener: str | None) -> None:
    """Raise `ConfigError` for an authorizer that this software does not have.

    Args:
        reader: The settings.
        listener: The one for requests between controllers; None at a broker.
    """
    key = "authorizer.class.name"
    if not reader.text(key):
        return
    if reader.text(key) != STANDARD_AUTHORIZER:
        raise reader.bad(
            key,
            "this software cannot load another authorizer",
            hint=f"Use {STANDARD_AUTHORIZER}, or leave the setting out and listen only in a trusted network.",
        )
    key = "early.start.listeners"
    early = {name.upper() for name in split_list(reader.text(key))}
    if listener is not None and key in reader.settings and listener not in early:
        raise reader.bad(
            key,
            f"{listener} is missing: controllers would wait for access rules that no controller has",
            hint=f"Add {listener}, or leave the setting out.",
        )


def read_super_users(reader: SettingsReader) -> frozenset[str]:
    """The principals, as type and name, that need no access rule."""
    key = "super.users"
    users = frozenset(user for entry in reader.text(key).split(";") if (user := entry.strip()))
    for user in sorted(users):
        if ":" not in user:
            raise reader.bad(key, f"{user!r} is not Type:name", hint=f"Allowed: {TEXTS[key].allowed}.")
    return users


def read_allows_without_acl(reader: SettingsReader) -> bool:
    """Whether resources without access rules are open; as in Java, any other word than true means false."""
    return reader.text("allow.everyone.if.no.acl.found").lower() == "true"
