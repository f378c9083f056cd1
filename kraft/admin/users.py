"""Alters the SCRAM credentials of users (Kafka: `Admin.alterUserScramCredentials`; KIP-554). The image lists them.

A password never leaves this process: the cluster receives and stores only values derived from the password.
"""

from __future__ import annotations

from collections.abc import Iterator
from secrets import token_bytes
from typing import Final

from kraft.admin.client import AdminClient, Verdict
from kraft.admin.errors import AdminError
from metadata_log.image.names import SCRAM_MECHANISMS
from metadata_log.pbkdf2 import pbkdf2_hmac
from metadata_log.records.scram import MECHANISMS
from metadata_log.serde import Message
from transport.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

DEFAULT_ITERATIONS: Final = 4096
_SALT_BYTES: Final = 32


async def set_password(
    admin: AdminClient, user: str, password: str, *, mechanism: str, iterations: int = DEFAULT_ITERATIONS
) -> None:
    """Set a user's password (Kafka: `UserScramCredentialUpsertion`, KIP-554).

    Args:
        admin: The client.
        user: The name of the user.
        password: The password, which stays in this process.
        mechanism: `SCRAM-SHA-256` or `SCRAM-SHA-512`.
        iterations: The iterations of the key derivation; Kafka accepts 4,096 to 16,384.

    Raises:
        AdminError: There is no such mechanism.
        SomeRefused: The controller refused the credential, by the name of the user.
        NoController: No controller answered in time.
    """
    number = _number(mechanism)
    salt = token_bytes(_SALT_BYTES)
    upsertion = ScramCredentialUpsertion(
        name=user,
        mechanism=number,
        iterations=iterations,
        salt=salt,
        salted_password=pbkdf2_hmac(MECHANISMS[number], password.encode(), salt, iterations),
    )
    await _alter(admin, AlterUserScramCredentialsRequest(upsertions=[upsertion]))


async def delete_credential(admin: AdminClient, user: str, *, mechanism: str) -> None:
    """Delete a user's credential (Kafka: `UserScramCredentialDeletion`, KIP-554).

    Args:
        admin: The client.
        user: The name of the user.
        mechanism: `SCRAM-SHA-256` or `SCRAM-SHA-512`.

    Raises:
        AdminError: There is no such mechanism.
        SomeRefused: The user has no such credential, or the caller has no permission.
        NoController: No controller answered in time.
    """
    deletion = ScramCredentialDeletion(name=user, mechanism=_number(mechanism))
    await _alter(admin, AlterUserScramCredentialsRequest(deletions=[deletion]))


async def _alter(admin: AdminClient, request: Message) -> None:
    await admin.ask_about_each(request, AlterUserScramCredentialsResponse, _verdicts)


def _number(mechanism: str) -> int:
    for number, name in SCRAM_MECHANISMS.items():
        if name == mechanism:
            return number
    raise AdminError(f"there is no mechanism {mechanism}", hint=f"There are {', '.join(SCRAM_MECHANISMS.values())}.")


def _verdicts(answer: AlterUserScramCredentialsResponse) -> Iterator[Verdict]:
    return ((each.user, each.error_code, each.error_message) for each in answer.results)
