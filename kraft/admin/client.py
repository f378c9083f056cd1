"""The client for administration: finds the active controller, sends requests, follows a change of leadership.

Kafka: `KafkaAdminClient` with `bootstrap.controllers`, KIP-919.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from enum import IntEnum
from itertools import count
from operator import itemgetter
from typing import Final, Protocol, TypeVar

import trio
from msgspec import Struct

from kraft.access.endpoint_types import CONTROLLERS
from kraft.admin.descriptions import ClusterDescription, QuorumDescription, quorum_description, quorum_error
from kraft.admin.errors import AdminError, CannotConnect, NoController, RequestRefused, SomeRefused
from metadata_log.serde import Message
from metadata_log.types import METADATA_PARTITION, METADATA_TOPIC
from transport.interface import Cause, Endpoint, Failed, Gone, Inbound, Reply, Request, Transport
from transport.protocol.errors import Error
from transport.protocol.inbound import LASTING_OF_A_NODE, lasting_failure
from transport.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from transport.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from transport.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from transport.tcp import TcpTransport
from transport.wire import WireTransport

T = TypeVar("T")
M = TypeVar("M", bound=Message)
Refusal = tuple[Error, str | None]
Verdict = tuple[str, int, str | None]
"""The outcome for one item of a request: its name, the error code, and Kafka's message."""

DEFAULT_TIMEOUT_MS: Final = 30_000
DELAY_MS: Final = 1_000
"""The time in milliseconds after which an operation without an answer counts as delayed: longer than an election."""
REQUEST_TIMEOUT_MS: Final = 5_000
REQUEST_RETRY_MS: Final = 20
"""The pause in milliseconds before a request is repeated after an answer that may change."""
_SENT_BEFORE: Final = "The request was sent before, and its answer was lost: it may have been done then."
_MOVED: Final = frozenset(
    {
        Error.NOT_CONTROLLER,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.LEADER_NOT_AVAILABLE,
        Error.BROKER_NOT_AVAILABLE,
        Error.REQUEST_TIMED_OUT,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_LEADER_EPOCH,
    }
)
"""The errors that mean "not here" or "not now"."""
_FINAL: Final = frozenset({Error.CLUSTER_AUTHORIZATION_FAILED, Error.MISMATCHED_ENDPOINT_TYPE})
"""The answers to DescribeCluster that no other controller and no later time changes."""


class Operation(IntEnum):
    """The change to a setting (Kafka: `AlterConfigOp.OpType`)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ResourceType(IntEnum):
    """The type of a resource with settings (Kafka: `ConfigResource.Type`)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigChange(Struct, frozen=True, kw_only=True):
    """One change of one setting (Kafka: `AlterConfigOp`)."""

    resource_type: ResourceType
    resource_name: str
    """The topic, group or subscription; a broker's or a controller's id, or empty for the default of all brokers."""
    key: str
    value: str | None
    """None only for `DELETE`."""
    operation: Operation = Operation.SET


class Delays(Protocol):
    """Hears of operations that no active controller answers."""

    async def on_delay(self, admin: AdminClient) -> None:
        """Called once for each operation that takes longer than `DELAY_MS`; the end of the operation cancels this."""

    async def on_timeout(self, admin: AdminClient) -> None:
        """Called for each operation that ended without an answer, before the operation raises `NoController`."""

    def on_answer(self) -> None:
        """Called for each operation that an active controller has answered."""


class _Waiting:
    """A pending request."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.outcome: Reply | Failed | None = None


class AdminClient:
    """A client of a cluster's controllers, made by `open_admin`.

    Any number of tasks may send requests at the same time: their requests are pipelined on one connection.
    """

    def __init__(
        self,
        transport: Transport,
        bootstrap: Sequence[Endpoint],
        *,
        client_id: str,
        timeout_ms: int,
        longest_retry_ms: int = REQUEST_RETRY_MS,
        delays: Delays | None = None,
        forwarded: bool = False,
        tokens: Iterator[int] | None = None,
    ) -> None:
        self._transport = transport
        self._bootstrap = tuple(bootstrap)
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._longest_retry_ms = longest_retry_ms
        self._delays = delays
        self._forwarded = forwarded
        self._tasks: trio.Nursery | None = None
        self._tokens = count(1) if tokens is None else tokens
        self._waiting: dict[int, _Waiting] = {}
        self._finding = trio.Lock()
        self._active: Endpoint | None = None
        self._known: tuple[Endpoint, ...] = ()
        self._failed: Endpoint | None = None
        self.last_failure = "no controller is active"
        """The cause of the latest failed attempt."""
        self.requests_sent = 0
        """The requests to controllers so far, with their repetitions."""
        self.was_lost = False
        """Whether an operation found no active controller for `DELAY_MS`, or in time, since this was set False."""

    def certificate_of(self, endpoint: Endpoint) -> bytes | None:
        """The certificate in DER form that this peer showed; None without TLS, or before an answer of the peer."""
        return self._transport.certificates.get(endpoint) if isinstance(self._transport, WireTransport) else None

    def deliver(self, thing: Inbound) -> None:
        """The transport's callback."""
        if isinstance(thing, Request):
            self._transport.drop(thing)
            return
        if isinstance(thing, Gone):
            return
        waiting = self._waiting.pop(thing.token, None)
        if waiting is not None:
            waiting.outcome = thing
            waiting.done.set()

    async def describe_cluster(self) -> ClusterDescription:
        """The cluster's id and controllers, from the first controller that knows the active one (KIP-919).

        Raises:
            NoController: No controller knew the active one in time.
            RequestRefused: The caller has no permission.
            AdminError: A server is no controller of Kafka 3.7 or later.
        """
        return await self._in_time(self._find_cluster)

    async def describe_quorum(self) -> QuorumDescription:
        """The quorum, from its leader (Kafka: `Admin.describeMetadataQuorum`, KIP-595).

        Raises:
            RequestRefused: The caller has no permission.
            NoController: No leader answered in time.
        """
        partition = DescribeQuorumRequestPartitionData(partition_index=METADATA_PARTITION)
        topic = DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        request = DescribeQuorumRequest(topics=[topic])
        return quorum_description(await self.ask_active(request, DescribeQuorumResponse, quorum_error))

    async def alter_configs(self, changes: Sequence[ConfigChange], *, validate_only: bool = False) -> None:
        """Change settings, all or none of each resource; returns once the changes are committed.

        Kafka: `Admin.incrementalAlterConfigs`, KIP-339. If the leadership moves meanwhile, the client repeats the
        request, so an APPEND may happen twice.

        Args:
            changes: The changes, of one or several resources.
            validate_only: Whether the controller only checks the changes.

        Raises:
            RequestRefused: The controller refused a resource: the first one, by name. Others may have been changed.
            NoController: No controller answered in time.
        """
        request = alteration_of(changes, validate_only=validate_only)
        _, refused = await self.ask_for_verdicts(request, IncrementalAlterConfigsResponse, _altered)
        for first in refused.values():
            raise first

    async def ask_active(self, message: Message, answer: type[M], refusal: Callable[[M], Refusal]) -> M:
        """Send a request to the active controller, again and again while the leadership moves or no controller answers.

        Args:
            message: The request.
            answer: The class of the response.
            refusal: Returns the error code and the message of a response.

        Returns:
            The response, which has no error.

        Raises:
            RequestRefused: The controller refused the request.
            NoController: No controller answered in time.
        """
        reply, hint = await self._settled(message, answer, lambda reply: (refusal(reply),))
        error, text = refusal(reply)
        if error is not Error.NONE:
            raise RequestRefused(error, text, hint=hint)
        return reply

    async def ask_about_each(self, message: Message, answer: type[M], verdicts: Callable[[M], Iterable[Verdict]]) -> M:
        """As `ask_active`, for a request with several items, each of which is granted or refused separately.

        Args:
            message: The request.
            answer: The class of the response.
            verdicts: Returns the outcome of each item of a response.

        Returns:
            The response.

        Raises:
            SomeRefused: The controller refused some items.
            NoController: No controller answered in time.
        """
        reply, refused = await self.ask_for_verdicts(message, answer, verdicts)
        if refused:
            raise SomeRefused(refused)
        return reply

    async def ask_for_verdicts(
        self, message: Message, answer: type[M], verdicts: Callable[[M], Iterable[Verdict]]
    ) -> tuple[M, dict[str, RequestRefused]]:
        """As `ask_about_each`; returns the refused items, ordered by name, with the response."""
        reply, hint = await self._settled(
            message, answer, lambda reply: ((Error.of(code), text) for _, code, text in verdicts(reply))
        )
        refused = {
            name: RequestRefused(Error.of(code), text, name=name, hint=hint)
            for name, code, text in sorted(
                verdicts(reply), key=itemgetter(0)
            )  # Kafka answers in the order of a hash map
            if code
        }
        return reply, refused

    async def _settled(
        self, message: Message, answer: type[M], refusals: Callable[[M], Iterable[Refusal]]
    ) -> tuple[M, str | None]:
        """The first response that is not "not here" or "not now", and a hint for a refusal in it."""
        is_lost = False

        async def attempt() -> M | None:
            nonlocal is_lost
            endpoint = await self._find_active()
            if endpoint is None:
                return None
            outcome = await self.ask(endpoint, message, answer)
            if isinstance(outcome, Failed):
                is_lost = is_lost or outcome.cause is not Cause.REFUSED
                self._forget(endpoint, outcome.detail)
                if outcome.cause in LASTING_OF_A_NODE:
                    raise CannotConnect(outcome)
                return None
            for error, text in refusals(outcome):
                if error in _MOVED:
                    self._forget(endpoint, f"{endpoint} answered {RequestRefused(error, text)}")
                    return None
            return outcome

        reply = await self._in_time(attempt)
        return reply, _SENT_BEFORE if is_lost else None

    async def ask(
        self, endpoint: Endpoint, message: Message, answer: type[M], *, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> M | Failed:
        """Send one request to one controller, once.

        Args:
            endpoint: The address of the controller.
            message: The request.
            answer: The class of the response.
            timeout_ms: Milliseconds until the request fails.

        Returns:
            The response, or the cause of the failure.

        Raises:
            AdminError: That controller supports no common version of the request. A retry cannot change this.
        """
        token = next(self._tokens)
        self.requests_sent += 1
        waiting = self._waiting[token] = _Waiting()
        self._transport.request(endpoint, token, message, timeout_ms=timeout_ms, client_id=self._client_id)
        try:
            await waiting.done.wait()
        finally:
            self._waiting.pop(token, None)
        outcome = waiting.outcome
        if isinstance(outcome, Reply):
            assert isinstance(outcome.message, answer), outcome.message
            return outcome.message
        assert outcome is not None
        if outcome.cause is Cause.UNSUPPORTED_VERSION:
            hint = "Is that a controller's listener, of Kafka 3.7 or later?"
            raise AdminError(outcome.detail, hint=hint, cause=outcome.cause)
        return outcome

    async def _in_time(self, attempt: Callable[[], Awaitable[T | None]]) -> T:
        """The first result that is not None; raises `NoController` after the timeout."""
        pause_ms = REQUEST_RETRY_MS
        with self._reporting_delay(), trio.move_on_after(self._timeout_ms / 1000):
            while (result := await attempt()) is None:
                await trio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, self._longest_retry_ms)
            if self._delays is not None:
                self._delays.on_answer()
            return result
        self.was_lost = True
        last_failure = self.last_failure
        if self._delays is not None:
            await self._delays.on_timeout(self)
        raise NoController(
            f"no active controller answered within {self._timeout_ms / 1000:g} s: {last_failure}",
            hint=f"Asked: {', '.join(map(str, self.addresses))}. Do a majority of the voters run?",
        )

    @property
    def tells_of_delays(self) -> bool:
        """Whether somebody hears of operations that no active controller answers."""
        return self._delays is not None

    def run_in(self, tasks: trio.Nursery) -> None:
        """Use this nursery for reports of delays."""
        self._tasks = tasks

    @contextmanager
    def _reporting_delay(self) -> Iterator[None]:
        """Report a delay if the block takes longer than `DELAY_MS`; the end of the block cancels the report."""
        if self._delays is None or self._tasks is None:
            yield
            return
        scope = trio.CancelScope()
        self._tasks.start_soon(self._report_delay, self._delays, scope)
        try:
            yield
        finally:
            scope.cancel()

    async def _report_delay(self, delays: Delays, scope: trio.CancelScope) -> None:
        with scope:
            await trio.sleep(DELAY_MS / 1000)
            self.was_lost = True
            await delays.on_delay(self)

    # Discovery

    def assume_active(self, endpoint: Endpoint | None) -> None:
        """Send the next requests to the controller at this address; None: to the one that the controllers name then.

        This is for a caller that has cancelled a request to a silent controller. A client that waits for a failure
        finds the next active controller itself.
        """
        if self._active is not None and self._active != endpoint:
            self._failed = self._active
        self._active = endpoint

    async def _find_active(self) -> Endpoint | None:
        """The endpoint of the active controller. One task searches, the others wait for its result."""
        async with self._finding:
            if self._active is None and self._forwarded:
                self._active = self.addresses[0]
            if self._active is None:
                cluster = await self._find_cluster()
                if cluster is not None:
                    self._active = dict(cluster.controllers)[cluster.controller_id]
            return self._active

    async def _find_cluster(self) -> ClusterDescription | None:
        """The cluster as described by the first controller that knows the active one; None if there is none now."""
        request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
        before = self.last_failure
        failures: list[Failed] = []
        addresses = self.addresses
        for endpoint in addresses:
            outcome = await self.ask(endpoint, request, DescribeClusterResponse)
            if isinstance(outcome, Failed):
                self.last_failure = outcome.detail
                failures.append(outcome)
                continue
            error = Error.of(outcome.error_code)
            if error is not Error.NONE:
                refusal = RequestRefused(error, outcome.error_message)
                if error in _FINAL:
                    raise refusal
                # A controller that has just started knows no metadata.version yet, and says so with an error.
                self.last_failure = f"{endpoint} answered {refusal}"
                continue
            controllers = tuple(
                (node.broker_id, Endpoint(node.host, node.port))
                for node in sorted(outcome.brokers, key=lambda node: node.broker_id)
            )
            self._known = tuple(address for _, address in controllers)
            if outcome.controller_id in dict(controllers):
                # The failures of other controllers no longer matter; the last answer of the active one may.
                self.last_failure = before
                return ClusterDescription(
                    cluster_id=outcome.cluster_id, controller_id=outcome.controller_id, controllers=controllers
                )
            self.last_failure = f"{endpoint} knows of no active controller"
        if len(failures) == len(addresses) and (lasting := lasting_failure(failures)) is not None:
            raise CannotConnect(lasting)
        return None

    @property
    def addresses(self) -> tuple[Endpoint, ...]:
        """The addresses to try: the given ones, then the discovered ones; the latest failed address comes last."""
        candidates = dict.fromkeys((*self._bootstrap, *self._known))
        return tuple(sorted(candidates, key=lambda endpoint: endpoint == self._failed))

    def look_at(self, bootstrap: Sequence[Endpoint]) -> None:
        """Search at these addresses from now on, and for the active controller anew."""
        self._bootstrap, self._active = tuple(bootstrap), None

    def _forget(self, endpoint: Endpoint, why: str) -> None:
        """Note that this endpoint is unreachable or not the active controller's."""
        self.last_failure = why
        if self._active == endpoint:
            self._active = None
            self._failed = endpoint


@asynccontextmanager
async def open_admin(
    bootstrap: Iterable[Endpoint],
    *,
    transport: Transport | None = None,
    client_id: str = "kraft-admin",
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
    longest_retry_ms: int = REQUEST_RETRY_MS,
    delays: Delays | None = None,
    forwarded: bool = False,
) -> AsyncIterator[AdminClient]:
    """A client for the cluster of these controllers, for the duration of the block (Kafka: `Admin.create`, KIP-919).

    Args:
        bootstrap: The addresses of some controllers. The client finds the other controllers itself.
        transport: The transport that the client runs; None for TCP.
        client_id: The client id of all requests.
        timeout_ms: The limit of each operation with its retries, in milliseconds.
        longest_retry_ms: The longest pause before a retry in milliseconds. The first pause is 20 ms, and each further
            one is twice as long.
        delays: Hears of operations that no active controller answers; None if the error at the end is enough.
        forwarded: Whether the addresses are those of brokers, which pass requests on to the controller (KIP-590).
    """
    carrier = TcpTransport() if transport is None else transport
    client = AdminClient(
        carrier,
        tuple(bootstrap),
        client_id=client_id,
        timeout_ms=timeout_ms,
        longest_retry_ms=longest_retry_ms,
        delays=delays,
        forwarded=forwarded,
    )
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(carrier.run, client.deliver)
            client.run_in(nursery)
            yield client
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # A nursery wraps the single error of the block; the caller should see that error itself.
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None


def alteration_of(changes: Sequence[ConfigChange], *, validate_only: bool) -> IncrementalAlterConfigsRequest:
    """The request for some changes, by resource, in order of each resource's first change."""
    grouped: dict[tuple[ResourceType, str], list[AlterableConfig]] = {}
    for change in changes:
        configs = grouped.setdefault((change.resource_type, change.resource_name), [])
        configs.append(AlterableConfig(name=change.key, config_operation=change.operation, value=change.value))
    resources = [
        AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        for (kind, name), configs in grouped.items()
    ]
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)


def _altered(answer: IncrementalAlterConfigsResponse) -> Iterator[Verdict]:
    return ((each.resource_name, each.error_code, each.error_message) for each in answer.responses)
