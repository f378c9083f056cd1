"""The shared options, errors and output of the commands that administer a cluster through its controllers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import partial, wraps
from itertools import pairwise
from typing import Any, Final, TypeVar

import click
from msgspec import Struct

from kraft.admin import AdminClient, AdminError, RequestRefused, SomeRefused, TopicPartition, open_admin
from kraft.admin.discovery import controllers_of
from kraft.admin.errors import CannotConnect
from kraft.cli.cluster.quorum_why import NoLeaderReport
from kraft.cli.near import did_you_mean, registered_brokers
from kraft.cli.progress import LongJob
from kraft.cli.text import echo, say
from kraft.config import PROTECTED_PROTOCOLS, UsageError, join_host_port, parse_host_port, parse_listener
from kraft.config.errors import CommandFailed
from kraft.observer import read_image
from kraft.operate.interrupts import run_tasks
from kraft.security.clients import ClientSecurity, load_client
from metadata_log.errors import MetadataLogError
from metadata_log.image import MetadataImage
from transport.interface import Endpoint
from transport.protocol.errors import Error
from transport.protocol.inbound import LASTING_OF_A_NODE, Cause

T = TypeVar("T")

CONTROLLERS: Final = "--bootstrap-controller"
SERVERS: Final = "--bootstrap-server"
bootstrap_option: Final = click.option(
    CONTROLLERS,
    "bootstrap",
    envvar="KRAFT_BOOTSTRAP_CONTROLLER",
    show_envvar=True,
    metavar="H:P[,H:P]",
    help="The addresses of some controllers.",
)
servers_option: Final = click.option(
    SERVERS,
    "servers",
    metavar="H:P[,H:P]",
    help="The addresses of some brokers, which name the controllers. These must be reachable, too.",
)
command_config_option: Final = click.option(
    "--command-config",
    "command_config",
    envvar="KRAFT_COMMAND_CONFIG",
    show_envvar=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="A properties file of Kafka's tools: security.protocol, ssl.truststore.location, sasl.jaas.config and so on.",
)
LONGEST_RETRY_MS: Final = 200
"""Short enough for a waiting user, and long enough not to flood a controller that answers "not now"."""
MOST_FAILURES: Final = 10
_HINT_OF_NAMED: Final = (
    "A broker named this controller, which speaks another security protocol. Give its address by "
    "--bootstrap-controller, and what its listener needs by --command-config."
)
NOT_PERMITTED: Final = (
    "The access rules do not permit that to this user: see `kraft acls list`, or log in with --command-config."
)
_HINTS: Final = {
    Error.TOPIC_ALREADY_EXISTS: "See `kraft topics describe`.",
    Error.UNKNOWN_TOPIC_OR_PARTITION: "See `kraft topics list`.",
    Error.INVALID_TOPIC_EXCEPTION: "A name has at most 249 letters, digits, '.', '_' and '-'.",
    Error.INVALID_REPLICATION_FACTOR: "See `kraft brokers list` for the brokers that are there.",
    Error.INVALID_REPLICA_ASSIGNMENT: "See `kraft brokers list` for the brokers that are there.",
    Error.BROKER_ID_NOT_REGISTERED: "See `kraft brokers list`.",
    Error.SECURITY_DISABLED: "The controllers have no rules: authorizer.class.name is not in their configuration.",
    Error.NO_REASSIGNMENT_IN_PROGRESS: "See `kraft reassign list`.",
    Error.PREFERRED_LEADER_NOT_AVAILABLE: "The first replica is not in sync or not alive: see `kraft topics describe`.",
    Error.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No replica in sync is alive; `kraft elect unclean` may lose records.",
    Error.CLUSTER_AUTHORIZATION_FAILED: NOT_PERMITTED,
    Error.TOPIC_AUTHORIZATION_FAILED: NOT_PERMITTED,
    Error.GROUP_AUTHORIZATION_FAILED: NOT_PERMITTED,
    Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: NOT_PERMITTED,
    Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED: NOT_PERMITTED,
    Error.MISMATCHED_ENDPOINT_TYPE: "That is a broker: give the address of a controller.",
}
"""A hint for the user, by error."""


class Cluster(Struct, frozen=True):
    """The cluster that a command addresses, and the output format."""

    bootstrap: tuple[Endpoint, ...]
    timeout_ms: int
    as_json: bool
    security: ClientSecurity = ClientSecurity()
    brokers: tuple[Endpoint, ...] = ()
    """Those that have named the controllers."""

    def ask(
        self,
        work: Callable[[AdminClient], Awaitable[T]],
        *,
        report: NoLeaderReport | None = None,
        shows_states: bool = False,
        is_forwarded: bool = False,
    ) -> T:
        """Run some work with the cluster; raises `CommandFailed`, in a group if several parts failed.

        Without an active controller, stderr gets the state of each controller, as soon as that is known, and again if
        the work fails and the states have changed. `report` is that of work that reports its own failure, and
        `shows_states` is True for work that shows the states itself. `is_forwarded` is True for work of requests that a
        broker passes on: then controllers that the brokers have named may have no listener for this client.
        """
        report = None if shows_states else report or NoLeaderReport()
        with told_by(self.security):
            try:
                return run_tasks(self._ask, work, report)
            except CannotConnect as failed:
                if not self.brokers or failed.cause not in LASTING_OF_A_NODE:
                    raise
                if not is_forwarded:
                    failed.hint = _HINT_OF_NAMED
                    raise
            return run_tasks(self._ask_brokers, work)

    async def _ask_brokers(self, work: Callable[[AdminClient], Awaitable[T]]) -> T:
        async with self._client(self.brokers, forwarded=True) as admin:
            return await work(admin)

    async def _ask(self, work: Callable[[AdminClient], Awaitable[T]], report: NoLeaderReport | None) -> T:
        async with self._client(self.bootstrap, report) as admin:
            try:
                return await work(admin)
            except SomeRefused as failed:
                await add_near_names(admin, failed.refused.values())
                raise
            except RequestRefused as failed:
                await add_near_names(admin, [failed])
                raise

    def _client(
        self, addresses: Sequence[Endpoint], report: NoLeaderReport | None = None, *, forwarded: bool = False
    ) -> AbstractAsyncContextManager[AdminClient]:
        return open_admin(
            addresses,
            transport=self.security.transport(),
            timeout_ms=self.timeout_ms,
            longest_retry_ms=LONGEST_RETRY_MS,
            delays=report,
            forwarded=forwarded,
        )

    def say(self, facts: Mapping[str, Any], lines: Iterable[str]) -> None:
        """Print the facts as one JSON object, or the lines otherwise."""
        say(facts, lines, as_json=self.as_json)


async def add_near_names(admin: AdminClient, refused: Collection[RequestRefused]) -> None:
    """Add a hint with the names that there are, if the controller does not know a topic, partition, broker or user."""
    unknown = [one for one in refused if one.error in _UNKNOWN_NAMES and one.hint is None]
    if unknown:
        with suppress(AdminError, MetadataLogError):  # the refusal is what matters
            image = await read_image(admin)
            for one in unknown[:MOST_FAILURES]:
                one.hint = _UNKNOWN_NAMES[one.error](one.name, image)


def _near_topic(name: str, image: MetadataImage) -> str | None:
    """Similar topics; the partitions of a topic for a number that it does not have."""
    topic, dash, number = name.rpartition("-")
    if name not in image.topics and dash and number.isdecimal() and topic in image.topics:
        return f"{topic} has partitions 0 to {len(image.topics[topic].partitions) - 1}."
    return did_you_mean(name, image.topics)


def _near_user(name: str, image: MetadataImage) -> str | None:
    return did_you_mean(name, [user for user, _ in image.scram.by_user.items()])


_UNKNOWN_NAMES: Final[Mapping[Error, Callable[[str, MetadataImage], str | None]]] = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: _near_topic,
    Error.BROKER_ID_NOT_REGISTERED: lambda _, image: registered_brokers(
        [each for each, _ in image.brokers.by_id.items()]
    ),
    Error.RESOURCE_NOT_FOUND: _near_user,
}


def as_failure(refused: Iterable[RequestRefused]) -> Exception:
    """The exception for these refusals: the first ones get a line each, and no hint is repeated."""
    failures = [_failure(one) for one in refused]
    if len(failures) > MOST_FAILURES:
        rest = CommandFailed(f"{len(failures) - MOST_FAILURES:,} more were refused")
        failures = [*failures[:MOST_FAILURES], rest]
    for one, following in pairwise(failures):
        if one.hint == following.hint:
            one.hint = None
    return failures[0] if len(failures) == 1 else ExceptionGroup("several things were refused", failures)


def _failure(failed: AdminError, security: ClientSecurity | None = None) -> CommandFailed:
    error = failed.error if isinstance(failed, RequestRefused) else None
    return CommandFailed(str(failed), hint=failed.hint or hint_for(error, failed.cause, security))


def hint_for(error: Error | None, cause: Cause | None, security: ClientSecurity | None) -> str | None:
    """A hint for the user about an error of a node, or about a connection that a retry does not cure."""
    if error is not None:
        return _HINTS.get(error)
    return None if cause is None or security is None else security.hint_for(cause)


@contextmanager
def told_by(security: ClientSecurity) -> Iterator[None]:
    """Turn the errors of a client for administration into `CommandFailed`."""
    try:
        yield
    except SomeRefused as failed:
        raise as_failure(failed.refused.values()) from failed
    except AdminError as failed:
        raise _failure(failed, security) from failed


def on_a_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that select the cluster; the command gets them as `cluster`.

    With `--bootstrap-server` brokers name the controllers, which are asked then.
    """

    @wraps(command)
    def with_cluster(
        *args: Any,
        bootstrap: str | None,
        servers: str | None,
        command_config: str | None,
        timeout: float,
        as_json: bool,
        **more: Any,
    ) -> None:
        security, timeout_ms = client_security(command_config), int(timeout * 1000)
        addresses = find_controllers(bootstrap, servers, security, timeout_ms)
        brokers = parse_bootstrap(servers, security, SERVERS) if servers else ()
        command(*args, cluster=Cluster(addresses, timeout_ms, as_json, security, brokers), **more)

    for option in (
        click.option(
            "--timeout",
            default=10.0,
            show_default=True,
            type=click.FloatRange(min=0.1),
            help="Seconds that a request to the controllers may take, with its retries.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        command_config_option,
        servers_option,
        bootstrap_option,
    ):
        with_cluster = option(with_cluster)
    return with_cluster


def find_controllers(
    bootstrap: str | None, servers: str | None, security: ClientSecurity, timeout_ms: int
) -> tuple[Endpoint, ...]:
    """The addresses of controllers that a command has got; brokers are asked for them. Raises `UsageError`.

    An address on the command line is stronger than one of the environment.
    """
    source = click.get_current_context().get_parameter_source
    if bootstrap and servers and source("bootstrap") is click.core.ParameterSource.ENVIRONMENT:
        bootstrap = None
    if bool(bootstrap) is bool(servers):
        raise UsageError("give either --bootstrap-controller or --bootstrap-server", hint="For example 127.0.0.1:9093.")
    if not servers:
        return parse_bootstrap(bootstrap or "", security)
    ask = partial(
        controllers_of,
        parse_bootstrap(servers, security, SERVERS),
        protocol=security.protocol,
        timeout_ms=timeout_ms,
        transport=security.transport(),
    )
    with told_by(security):
        return run_tasks(ask)


def client_security(command_config: str | None) -> ClientSecurity:
    """The security of a client by its `--command-config`; warnings go to stderr. Raises `ConfigError`."""
    # A command prints the cause of a failure itself.
    logging.getLogger("transport").addHandler(logging.NullHandler())
    if command_config is None:
        return ClientSecurity()
    security = load_client(command_config)
    for warning in security.warnings:
        echo(f"kraft: warning: {warning}", err=True)
    return security


def parse_bootstrap(
    text: str, security: ClientSecurity = ClientSecurity(), option: str = CONTROLLERS
) -> tuple[Endpoint, ...]:
    """Parse a list of addresses for `--bootstrap-controller` or another option; raises `UsageError`."""
    try:
        endpoints = tuple(_bootstrap_address(part, security.protocol) for part in text.split(",") if part.strip())
    except ValueError as bad:
        raise UsageError(str(bad), where=option, hint="For example 127.0.0.1:9093.") from bad
    if not endpoints:
        raise UsageError("no address is given", where=option, hint="For example 127.0.0.1:9093.")
    return endpoints


def _bootstrap_address(text: str, protocol: str) -> Endpoint:
    """Parse `host:port`, or `NAME://host:port` of a listener with this protocol; raises `ValueError`."""
    if "://" not in text:
        return Endpoint(*parse_host_port(text))
    listener = parse_listener(text)
    if listener.name in PROTECTED_PROTOCOLS and listener.name != protocol:
        raise ValueError(f"{listener.name} needs security.protocol={listener.name} in the file of --command-config")
    return Endpoint(*parse_host_port(join_host_port(listener.host, listener.port)))


async def image_of(admin: AdminClient) -> MetadataImage:
    """The current metadata of the cluster; shows a progress bar if the download takes long."""
    reached = 0

    def on_progress(offset: int, end: int) -> None:
        nonlocal reached
        job.expect(end)
        job.advance(offset - reached)
        reached = offset

    with LongJob("Reading the metadata log", None) as job:
        return await read_image(admin, on_progress)


def parse_settings(words: Sequence[str], option: str) -> dict[str, str]:
    """Parse `key=value` words; a usage error for a word without a key, and for a repeated key."""
    settings: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{word!r} is no KEY=VALUE", param_hint=option)
        if key in settings:
            raise click.BadParameter(f"{key} is given twice", param_hint=option)
        settings[key] = value
    return settings


def parse_assignment(text: str | None) -> tuple[tuple[int, ...], ...]:
    """Parse the brokers of each partition like kafka-topics: `1:2,2:3` are two partitions of two replicas."""
    if text is None:
        return ()
    try:
        return tuple(tuple(int(broker) for broker in part.split(":")) for part in text.split(","))
    except ValueError as bad:
        raise click.BadParameter(f"{text!r} is no list such as 1:2,2:3", param_hint="--assignment") from bad


def parse_brokers(text: str) -> tuple[int, ...]:
    """Parse `1,2,3`."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as bad:
        raise click.BadParameter(f"{text!r} is no list of broker ids such as 1,2,3", param_hint="--to") from bad


def parse_partition(text: str) -> TopicPartition:
    """Parse `orders:0`; a usage error for another form."""
    topic, colon, number = text.rpartition(":")
    if not topic or not colon or not number.isdecimal():
        raise click.BadParameter(f"{text!r} is no TOPIC:PARTITION such as orders:0", param_hint="--topic-partition")
    return TopicPartition(topic, int(number))
