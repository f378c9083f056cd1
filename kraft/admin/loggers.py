"""Shows and changes the log levels of one running controller (Kafka: `Admin.describeConfigs` and
`incrementalAlterConfigs` of BROKER_LOGGER, KIP-412).

The requests go to the controller itself, so that no leader is necessary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from kraft.access.endpoint_types import CONTROLLERS
from kraft.admin.client import AdminClient, ConfigChange, ResourceType, alteration_of
from kraft.admin.errors import AdminError, CannotConnect, RequestRefused
from metadata_log.serde import Message
from transport.interface import Endpoint, Failed
from transport.protocol.errors import Error
from transport.protocol.inbound import LASTING, lasting_failure
from transport.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from transport.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from transport.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse

M = TypeVar("M", DescribeConfigsResponse, IncrementalAlterConfigsResponse)


async def describe_loggers(admin: AdminClient, node_id: int) -> dict[str, str]:
    """The effective level of each logger of a controller, by name.

    Args:
        admin: The client.
        node_id: The id of the controller.

    Raises:
        RequestRefused: The controller refused the request.
        AdminError: No controller has this id, or the controller did not answer.
    """
    resource = DescribeConfigsResource(
        resource_type=ResourceType.BROKER_LOGGER, resource_name=str(node_id), configuration_keys=None
    )
    answer = await _ask(admin, node_id, DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
    for result in answer.results:
        _check(node_id, result.error_code, result.error_message)
    return {each.name: each.value or "" for result in answer.results for each in result.configs}


async def alter_loggers(
    admin: AdminClient, node_id: int, changes: Sequence[ConfigChange], *, validate_only: bool = False
) -> None:
    """Change levels of a controller's loggers, all or none. A restart of the controller ends the changes.

    Args:
        admin: The client.
        node_id: The id of the controller.
        changes: SET with one of Kafka's levels (`DEBUG`), or DELETE for the level of the parent.
        validate_only: Whether the controller only checks the changes.

    Raises:
        RequestRefused: The controller refused the changes.
        AdminError: No controller has this id, or the controller did not answer.
    """
    request = alteration_of(changes, validate_only=validate_only)
    answer = await _ask(admin, node_id, request, IncrementalAlterConfigsResponse)
    for result in answer.responses:
        _check(node_id, result.error_code, result.error_message)


def _check(node_id: int, code: int, text: str | None) -> None:
    if code:
        raise RequestRefused(Error.of(code), text, name=f"controller {node_id}")


async def _ask(admin: AdminClient, node_id: int, request: Message, answer: type[M]) -> M:
    """The answer of the controller with this id. The address of that controller is known to the other controllers.

    A controller that has never had a leader describes no cluster. Then each of the given addresses gets the request,
    and only the right node accepts the id in the request.
    """
    endpoints = await _endpoints(admin, node_id)
    last: M | Failed | None = None
    for endpoint in endpoints:
        last = await admin.ask(endpoint, request, answer)
        if not isinstance(last, Failed) and (len(endpoints) == 1 or _is_addressee(last)):
            return last
    if isinstance(last, Failed):
        if last.cause in LASTING:
            raise CannotConnect(last)
        raise AdminError(f"controller {node_id} did not answer: {last.reason}", hint="Does that node run?")
    assert last is not None
    return last


def _is_addressee(answer: DescribeConfigsResponse | IncrementalAlterConfigsResponse) -> bool:
    """Whether no part of the answer says that the request was invalid, as another node does."""
    parts = answer.results if isinstance(answer, DescribeConfigsResponse) else answer.responses
    return all(one.error_code != Error.INVALID_REQUEST for one in parts)


async def _endpoints(admin: AdminClient, node_id: int) -> list[Endpoint]:
    """The address of a controller, from the first controller that knows this id; else the addresses that answer."""
    failures, known, answering = list[Failed](), set[int](), []
    for endpoint in admin.addresses:
        outcome = await admin.ask(endpoint, DescribeClusterRequest(endpoint_type=CONTROLLERS), DescribeClusterResponse)
        if isinstance(outcome, Failed):
            failures.append(outcome)
            continue
        answering.append(endpoint)
        known.update(node.broker_id for node in outcome.brokers)
        for node in outcome.brokers:
            if node.broker_id == node_id:
                return [Endpoint(node.host, node.port)]
    if known:
        there = ", ".join(map(str, sorted(known)))
        raise AdminError(
            f"there is no controller {node_id}",
            hint=f"The controllers are {there}. Kafka's kafka-configs.sh --bootstrap-server asks a broker.",
        )
    if not answering:
        if (lasting := lasting_failure(failures)) is not None:
            raise CannotConnect(lasting)
        told = "; ".join(one.reason for one in failures)
        raise AdminError(f"no controller answered: {told}", hint="Do the controllers run?")
    return answering
