"""The options of commands that talk to brokers, and the run of their work (Kafka: `--bootstrap-server`)."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import click
import trio
from msgspec import Struct

from kraft.cli.cluster.administration import (
    SERVERS,
    client_security,
    command_config_option,
    hint_for,
    parse_bootstrap,
)
from kraft.client import Client, ClientError, open_client
from kraft.config.errors import CommandFailed
from kraft.operate.interrupts import run_tasks
from kraft.security.clients import ClientSecurity
from transport.interface import PEERS, Endpoint
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.broker_listener import broker_answer_limit
from transport.sasl import Sasl
from transport.tcp import TcpTransport

servers_option: Final = click.option(
    SERVERS,
    "servers",
    required=True,
    envvar="KRAFT_BOOTSTRAP_SERVER",
    show_envvar=True,
    metavar="H:P[,H:P]",
    help="The addresses of some brokers.",
)
timeout_option: Final = click.option(
    "--timeout",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Seconds for which no broker may serve a partition, with all repetitions.",
)
CLIENT_ID: Final = "kraft-cli"


class Interrupted(Struct):
    """Whether Ctrl-C or SIGTERM has come."""

    is_set: bool = False


class Brokers(Struct, frozen=True):
    """The brokers that a command talks to."""

    addresses: tuple[Endpoint, ...]
    security: ClientSecurity

    @classmethod
    def of(cls, servers: str, command_config: str | None) -> Brokers:
        """Read the options; raises `UsageError` or `ConfigError`."""
        security = client_security(command_config)
        return cls(parse_bootstrap(servers, security, SERVERS), security)

    def run(self, work: Callable[[Client, trio.CancelScope, Interrupted], Awaitable[int]]) -> int:
        """Run some work with the brokers; returns its exit code, and raises `CommandFailed`.

        The first Ctrl-C cancels the scope of the work, which then cleans up; the second one ends the cleanup, too.
        """
        try:
            return run_tasks(self._run, work)
        except ClientError as failed:
            raise CommandFailed(str(failed), hint=self.hint_for(failed)) from failed

    def hint_for(self, failed: ClientError) -> str | None:
        """A hint for the user about an error."""
        return failed.hint or hint_for(failed.error, failed.cause, self.security)

    async def _run(self, work: Callable[[Client, trio.CancelScope, Interrupted], Awaitable[int]]) -> int:
        scope, everything, interrupted = trio.CancelScope(), trio.CancelScope(), Interrupted()
        transport = TcpTransport(
            tls=self.security.tls,
            sasl=Sasl(outgoing={PEERS: self.security.login}),
            requested=ALL_APIS,
            answer_limits=broker_answer_limit,
        )
        code = 130
        with everything:
            async with (
                open_client(self.addresses, transport=transport, client_id=CLIENT_ID) as client,
                trio.open_nursery() as nursery,
            ):
                await nursery.start(partial(_watch_signals, scope, everything, interrupted))
                code = await work(client, scope, interrupted)
                nursery.cancel_scope.cancel()
        return code


async def _watch_signals(
    scope: trio.CancelScope,
    everything: trio.CancelScope,
    interrupted: Interrupted,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            if interrupted.is_set:
                everything.cancel()
            interrupted.is_set = True
            scope.cancel()


__all__ = ["Brokers", "Interrupted", "command_config_option", "servers_option", "timeout_option"]
