"""`kraft users`: manages SCRAM credentials (Kafka: `ConfigCommand` with `--entity-type users`; KIP-554)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from kraft.admin import delete_credential, set_password
from kraft.admin.users import DEFAULT_ITERATIONS
from kraft.cli.cluster.administration import Cluster, image_of, on_a_cluster
from kraft.cli.text import table
from kraft.config import UsageError
from metadata_log.image.names import SCRAM_MECHANISMS
from metadata_log.image.persistent_map import in_key_order

_MECHANISMS: Final = tuple(SCRAM_MECHANISMS.values())
_mechanism_option = click.option(
    "--mechanism", type=click.Choice(_MECHANISMS), default=_MECHANISMS[0], show_default=True, help="The mechanism."
)


@click.group(
    "users",
    short_help="List, add and remove SCRAM credentials.",
    epilog="Example: kraft users set alice --bootstrap-controller 127.0.0.1:9093",
)
def users_command() -> None:
    """Manage the SCRAM credentials of users. `kraft configs` has their quotas, `kraft acls` their permissions."""


@users_command.command(
    "list",
    short_help="All credentials, one a line.",
    epilog="Example: kraft users list --bootstrap-controller 127.0.0.1:9093",
)
@on_a_cluster
def list_command(*, cluster: Cluster) -> None:
    """List the users with a password, and its mechanism."""
    image = cluster.ask(image_of)
    rows = [
        (user, SCRAM_MECHANISMS.get(mechanism, str(mechanism)), credential.iterations)
        for user, credentials in in_key_order(image.scram.by_user)
        for mechanism, credential in in_key_order(credentials)
    ]
    facts = [{"user": user, "mechanism": mechanism, "iterations": iterations} for user, mechanism, iterations in rows]
    cluster.say({"credentials": facts}, table(("USER", "MECHANISM", "ITERATIONS"), rows) if rows else ["No user."])


@users_command.command(
    "set",
    short_help="Let a user log in with a password.",
    epilog="Example: kraft users set alice --password-file alice.txt --bootstrap-controller 127.0.0.1:9093",
)
@click.argument("user")
@_mechanism_option
@click.option("--iterations", type=int, default=DEFAULT_ITERATIONS, show_default=True, help="4096 to 16384.")
@click.option("--password-file", type=click.Path(dir_okay=False), metavar="FILE", help="Its first line; - is stdin.")
@on_a_cluster
def set_command(user: str, *, mechanism: str, iterations: int, password_file: str | None, cluster: Cluster) -> None:
    """Set the password of USER. The command prompts for the password, or reads it from a file. It is never an argument,
    which others on this machine could see.
    """
    password = _password(user, password_file)
    cluster.ask(
        lambda admin: set_password(admin, user, password, mechanism=mechanism, iterations=iterations), is_forwarded=True
    )
    cluster.say({"user": user, "mechanism": mechanism}, [f"{user} can log in with {mechanism}"])


@users_command.command(
    "delete",
    short_help="Delete a user's password.",
    epilog="Example: kraft users delete alice --bootstrap-controller 127.0.0.1:9093",
)
@click.argument("user")
@_mechanism_option
@on_a_cluster
def delete_command(user: str, *, mechanism: str, cluster: Cluster) -> None:
    """Delete the password of USER for a mechanism."""
    cluster.ask(lambda admin: delete_credential(admin, user, mechanism=mechanism), is_forwarded=True)
    cluster.say({"user": user, "mechanism": mechanism}, [f"{user} can no longer log in with {mechanism}"])


def _password(user: str, file: str | None) -> str:
    if file is not None:
        lines = (sys.stdin.read() if file == "-" else Path(file).read_text()).splitlines()
        if not lines or not lines[0]:
            raise UsageError("there is no password", where="stdin" if file == "-" else file)
        return lines[0]
    if not sys.stdin.isatty():
        raise click.UsageError("Without a terminal the password comes from --password-file; - is stdin.")
    answer: str = click.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True)
    return answer
