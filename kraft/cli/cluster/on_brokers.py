"""The options and the run of commands that ask brokers single questions: groups and transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Final, TypeVar

import click
import trio
from msgspec import Struct

from kraft.cli.cluster.brokers_of import Brokers, Interrupted, command_config_option, servers_option
from kraft.cli.text import say
from kraft.client import Client
from kraft.client.questions import Questions
from kraft.config import UsageError
from kraft.config.errors import INTERRUPTED, CommandFailed

EXAMPLE: Final = "--bootstrap-server 127.0.0.1:9092"
"""The end of the example of such a command."""
T = TypeVar("T")


class BrokerCluster(Struct, frozen=True):
    """The brokers that a command asks, and the form of its output."""

    brokers: Brokers
    timeout_ms: int
    as_json: bool

    def ask(self, work: Callable[[Questions], Awaitable[T]]) -> T:
        """Run some work with the brokers; raises `CommandFailed`."""
        results: list[T] = []

        async def run(client: Client, scope: trio.CancelScope, interrupted: Interrupted) -> int:
            with scope:
                results.append(await work(Questions(client, self.timeout_ms)))
            return INTERRUPTED if interrupted.is_set else 0

        code = self.brokers.run(run)
        if code or not results:
            raise CommandFailed(exit_code=code or INTERRUPTED)
        return results[0]

    def say(self, facts: Mapping[str, Any], lines: Iterable[str]) -> None:
        """Print the facts as one JSON object, or the lines otherwise."""
        say(facts, lines, as_json=self.as_json)


class AnyCase(click.Choice[str]):
    """One of some words in any case; the error has them as the answers have them."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(words, case_sensitive=False)

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """The error for another word."""
        return f"{value!r} is not one of {', '.join(self.choices)}"


def on_brokers(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that select the brokers; the command gets them as `cluster`."""

    @wraps(command)
    def with_cluster(
        *args: Any, servers: str, command_config: str | None, timeout: float, as_json: bool, **more: Any
    ) -> None:
        cluster = BrokerCluster(Brokers.of(servers, command_config), int(timeout * 1000), as_json)
        command(*args, cluster=cluster, **more)

    for option in (
        click.option(
            "--timeout",
            default=30.0,
            show_default=True,
            type=click.FloatRange(min=0.1),
            help="Seconds that a question to the brokers may take, with its retries.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        command_config_option,
        servers_option,
    ):
        with_cluster = option(with_cluster)
    return with_cluster


def partitions_of(words: Iterable[str], where: str) -> dict[str, tuple[int, ...] | None]:
    """The topics of `orders` or `orders:0,2`, each with its partitions or None for all. Raises `UsageError`."""
    partitions: dict[str, tuple[int, ...] | None] = {}
    for word in words:
        topic, colon, numbers = word.rpartition(":")
        if not colon:
            partitions[word] = None
            continue
        parts = numbers.split(",")
        if not topic or not all(one.isascii() and one.isdigit() for one in parts):
            raise UsageError(f"{word!r} names no partitions", where=where, hint="For example orders, or orders:0,2.")
        partitions[topic] = tuple(dict.fromkeys((*(partitions.get(topic) or ()), *map(int, parts))))
    return partitions
