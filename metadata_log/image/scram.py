"""SCRAM credentials of users (Kafka: `ScramImage`, `ScramDelta`; KIP-900)."""

from __future__ import annotations

from msgspec import Struct

from metadata_log.errors import ReplayError
from metadata_log.image.persistent_map import Map, with_changes, with_entry, without_key
from metadata_log.records.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord


class ScramCredential(Struct, frozen=True):
    """The data to verify a client's password, without the password itself."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class ScramImage(Struct, frozen=True):
    """Users with their credentials by mechanism: 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""

    by_user: Map[str, Map[int, ScramCredential]] = Map()


def replay_scram(image: ScramImage, record: UserScramCredentialRecord) -> ScramImage:
    """Set a credential."""
    credential = ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
    credentials = image.by_user.get(record.name, Map())
    credentials = with_entry(credentials, record.mechanism, credential)
    return ScramImage(with_entry(image.by_user, record.name, credentials))


def replay_remove_scram(image: ScramImage, record: RemoveUserScramCredentialRecord) -> ScramImage:
    """Remove a credential; raises `ReplayError` for a missing one."""
    credentials = image.by_user.get(record.name, Map())
    if record.mechanism not in credentials:
        raise ReplayError(f"user {record.name} has no credential of mechanism {record.mechanism}")
    left = without_key(credentials, record.mechanism)
    return ScramImage(with_changes(image.by_user, {record.name: left or None}))
