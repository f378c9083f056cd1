"""Shows and changes the log levels of a served node by request (Kafka: `RuntimeLoggerManager`, KIP-412).

Such a request is about one process, so that the shell answers it: nothing enters the metadata log, and a controller
without a leader answers, too. The controller or broker below judges the permissions.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Final, Protocol

from msgspec import structs

from kraft.access.authorizer import AclOperation
from kraft.access.caller import Caller, host_of_peer
from kraft.access.errors import ApiError
from kraft.access.older_node import Audited
from kraft.node.logging import NodeLog
from metadata_log.image import ResourceType
from metadata_log.serde import Message
from transport.protocol.errors import Error
from transport.protocol.inbound import Request
from transport.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from transport.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

ROOT: Final = "root"
"""The name of the logger above all others, in Kafka and here."""
LEVELS: Final = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
"""Kafka's levels as numbers of Python's logging (Kafka: `LogLevelConfig`). No line of this software is below DEBUG."""
logging.addLevelName(LEVELS["TRACE"], "TRACE")
_SET: Final = 0
_DELETE: Final = 1
_JOINING: Final = {2: "APPEND", 3: "SUBTRACT"}
_LOGGER_TYPE: Final = int(ResourceType.BROKER_LOGGER)
_INT: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_OF_A_LOGGER: Final = 6
"""The source of the values (Kafka: `ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG`)."""


def levels() -> dict[str, str]:
    """The effective level of each logger of this process, by name; Kafka's levels, with the root logger first."""
    manager = logging.root.manager
    named = {name: one for name, one in manager.loggerDict.items() if isinstance(one, logging.Logger)}
    return {name: _level_name(one.getEffectiveLevel()) for name, one in [(ROOT, logging.root), *sorted(named.items())]}


def _level_name(number: int) -> str:
    """The most severe of Kafka's levels that is not above a number."""
    return next((name for name, own in reversed(LEVELS.items()) if own <= number), "TRACE")


_OF_CONFIGS: Final = (IncrementalAlterConfigsRequest, DescribeConfigsRequest)
"""The requests that may name loggers."""


class Judge(Protocol):
    """The judge of a caller's rights: the controller or the broker of the node."""

    def may(self, operation: AclOperation, caller: Caller) -> bool:
        """Whether a caller may perform an operation on the cluster."""

    @property
    def audited(self) -> list[Audited]:
        """The entries of the audit log that are not logged yet."""


class LoggerRequests:
    """Answers for the resources of type BROKER_LOGGER in requests to a controller or a broker.

    The node below answers the other resources of the same request. Its answer passes through `answer`.

    Args:
        node_id: This node.
        judge: What judges the rights of callers.
        log: The log of the node.
        needed: The operation on the cluster that a change needs: as in Kafka, CLUSTER_ACTION at a controller, where
            ALTER_CONFIGS is not enough, and ALTER_CONFIGS at a broker.
    """

    def __init__(
        self, node_id: int, judge: Judge, log: NodeLog, needed: AclOperation = AclOperation.CLUSTER_ACTION
    ) -> None:
        self._node_id = node_id
        self._judge = judge
        self._log = log
        self._needed = needed

    @staticmethod
    def are_in(message: Message) -> bool:
        """Whether a request about configurations has a logger among its resources. Nearly none has."""
        assert isinstance(message, _OF_CONFIGS), message
        for one in message.resources:  # noqa: SIM110 -- a generator would cost as much as the decision on a resource
            if one.resource_type == _LOGGER_TYPE:
                return True
        return False

    def rest_of(self, message: Message) -> Message:
        """A request to change configurations without its loggers, for the controller or broker.

        A controller that does not lead refuses any other change, and answers an empty request. So does a broker.
        """
        if not isinstance(message, IncrementalAlterConfigsRequest):
            return message
        others = [one for one in message.resources if one.resource_type != ResourceType.BROKER_LOGGER]
        return structs.replace(message, resources=others)

    def answer(self, request: Request, response: Message) -> Message:
        """The response of the node, completed; changes the levels that the request names."""
        match request.message, response:
            case IncrementalAlterConfigsRequest() as asked, IncrementalAlterConfigsResponse():
                others = [one for one in response.responses if one.resource_type != ResourceType.BROKER_LOGGER]
                known = frozenset(levels())
                own = [self._altered(request, one, known, asked.validate_only) for one in _of_loggers(asked)]
                return structs.replace(response, responses=[*others, *own])
            case DescribeConfigsRequest() as asked, DescribeConfigsResponse():
                wanted = [one for one in asked.resources if one.resource_type == ResourceType.BROKER_LOGGER]
                return _described(wanted, response)
        return response

    def _altered(
        self, request: Request, resource: AlterConfigsResource, known: frozenset[str], validate_only: bool
    ) -> AlterConfigsResourceResponse:
        error, text = Error.NONE, None
        try:
            self._check_permission(request)
            self._check_own_id(resource.resource_name)
            for change in resource.configs:
                _check(change, known)
            if not validate_only:
                # The last change of a logger wins. A line for each change would let a caller fill the log.
                for change in {each.name: each for each in resource.configs}.values():
                    self._apply(change, f"{request.principal.type}:{request.principal.name}")
        except ApiError as refused:
            error, text = refused.error, refused.text
        return AlterConfigsResourceResponse(
            error_code=error,
            error_message=text,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    def _check_permission(self, request: Request) -> None:
        asked_by, host = request.principal, host_of_peer(request.peer)
        caller = Caller(asked_by.type, asked_by.name, asked_by.is_token, host, request.listener)
        is_allowed = self._judge.may(self._needed, caller)
        for denial in self._judge.audited:
            self._log.trace(denial)
        self._judge.audited.clear()
        if not is_allowed:
            raise ApiError(Error.CLUSTER_AUTHORIZATION_FAILED, Error.CLUSTER_AUTHORIZATION_FAILED.message)

    def _check_own_id(self, name: str) -> None:
        if not _INT.fullmatch(name):
            raise ApiError(Error.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
        if int(name) != self._node_id:
            raise ApiError(Error.INVALID_REQUEST, f"Unexpected node id. Expected {self._node_id}, but received {name}")

    def _apply(self, change: AlterableConfig, principal: str) -> None:
        """Change the level of one logger, and log that. A logger without a level has that of its parent."""
        logger = logging.getLogger(None if change.name == ROOT else change.name)
        is_unset = change.value is None or change.config_operation == _DELETE
        logger.setLevel(logging.NOTSET if is_unset else LEVELS[str(change.value)])
        to = logging.getLevelName(logger.getEffectiveLevel()).lower()
        facts: dict[str, object] = {"name": change.name, "to": to, "by": repr(principal)}
        self._log.write("log-level", facts, logging.WARNING)


def _of_loggers(request: IncrementalAlterConfigsRequest) -> Iterator[AlterConfigsResource]:
    return (one for one in request.resources if one.resource_type == ResourceType.BROKER_LOGGER)


def _check(change: AlterableConfig, known: frozenset[str]) -> None:
    """Refuse a change as Kafka does; `known` are the names of all loggers."""
    name, operation = change.name, change.config_operation
    if operation in (_SET, _DELETE):
        if name not in known:
            raise ApiError(Error.INVALID_CONFIG, f"Logger {name} does not exist!")
        if operation == _DELETE and name == ROOT:
            raise ApiError(Error.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed")
        if operation == _SET and change.value not in LEVELS:
            value = "null" if change.value is None else change.value
            text = f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
            raise ApiError(Error.INVALID_CONFIG, f"{text}Valid log levels are {', '.join(sorted(LEVELS))}")
        return
    what = f"{_JOINING[operation]} operation" if operation in _JOINING else f"Unknown operation type {operation}"
    raise ApiError(Error.INVALID_REQUEST, f"{what} is not allowed for the BROKER_LOGGER resource")


def _described(wanted: list[DescribeConfigsResource], response: DescribeConfigsResponse) -> DescribeConfigsResponse:
    """The response with the loggers of this node, where the controller has found the caller and the id right.

    The controller keeps the order of the resources with loggers, since a caller may describe all of them or none.
    """
    asked = iter(wanted)
    every = [
        DescribeConfigsResourceResult(
            name=name, value=level, read_only=False, config_source=_OF_A_LOGGER, is_sensitive=False
        )
        for name, level in levels().items()
    ]

    def completed(result: DescribeConfigsResult) -> DescribeConfigsResult:
        if result.resource_type != ResourceType.BROKER_LOGGER:
            return result
        keys = frozenset(next(asked).configuration_keys or ())
        if result.error_code != Error.NONE:
            return result
        return structs.replace(result, configs=[one for one in every if one.name in keys] if keys else every)

    return structs.replace(response, results=[completed(one) for one in response.results])
