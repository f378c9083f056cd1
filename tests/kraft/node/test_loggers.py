"""Log levels of a controller by request: the fields and refusals of Kafka's answers, permissions, and no records."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kraft.access.authorizer import AclOperation, AclResource, AuthorizerSettings
from kraft.handling.rights import Rights
from kraft.node.loggers import LoggerRequests, levels
from kraft.node.logging import NodeLog
from metadata_log.image import MetadataDelta, MetadataImage, ResourceType
from metadata_log.records.metadata import AccessControlEntryRecord
from metadata_log.serde import Message, schema_of
from metadata_log.types import OffsetAndEpoch, Uuid
from support.differential.admin_answers import SECURED, exchanges, plain
from support.differential.controller_sides import InProcess
from transport.protocol.errors import Error
from transport.protocol.inbound import Principal, Request
from transport.protocol.messages import (
    CreateAclsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from transport.protocol.messages.create_acls import AclCreation
from transport.protocol.messages.describe_configs import DescribeConfigsResource
from transport.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
LOGGER, METRICS = ResourceType.BROKER_LOGGER, ResourceType.CLIENT_METRICS
PARENT, CHILD = "kraft.test_loggers", "kraft.test_loggers.child"
OF_KAFKA_ONE_LOGGER = 16
"""The number of the recorded request for the logger `root`."""
ALL, LITERAL, ALLOW = "*", 3, 3


@pytest.fixture(autouse=True)
def _restored_levels() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in (None, PARENT, CHILD)]
    before = [one.level for one in loggers]
    yield
    for one, level in zip(loggers, before, strict=True):
        one.setLevel(level)


def asked_by(name: str, message: Message) -> Request:
    """A request of a user."""
    api_key = schema_of(type(message)).api_key
    assert api_key is not None
    return Request(
        handle=None,
        sequence=0,
        api_key=api_key,
        version=4 if isinstance(message, DescribeConfigsRequest) else 1,
        correlation_id=1,
        client_id=None,
        message=message,
        listener="CONTROLLER",
        peer="127.0.0.1:5",
        principal=Principal(name=name),
    )


def image_of(*records: Message) -> MetadataImage:
    """The metadata after these records."""
    delta = MetadataDelta(MetadataImage())
    for offset, record in enumerate(records):
        delta.replay(record, offset)
    return delta.apply(OffsetAndEpoch(epoch=1, offset=len(records)))


class Node:
    """A controller without a log, and the loggers of this process in front of it."""

    def __init__(self, **settings: Any) -> None:
        self.side = InProcess(**settings)
        self.loggers = LoggerRequests(1, self.side.controller, NodeLog(1, lambda: 0))

    def ask(self, message: Message, *, name: str = "ANONYMOUS") -> Message:
        request = asked_by(name, message)
        return self.loggers.answer(request, self.side.ask(self.loggers.rest_of(message), request.version))

    def alter(self, *changes: tuple[str, int, str | None], node: str = "1", **more: Any) -> tuple[int, str | None]:
        """The error and the text of the only resource."""
        name = more.pop("name", "ANONYMOUS")
        answer = self.ask(alteration(changes, node, **more), name=name)
        assert isinstance(answer, IncrementalAlterConfigsResponse)
        (one,) = answer.responses
        assert (one.resource_type, one.resource_name) == (LOGGER, node)
        return one.error_code, one.error_message


def of_loggers(changes: tuple[tuple[str, int, str | None], ...], node: str = "1") -> AlterConfigsResource:
    configs = [AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
    return AlterConfigsResource(resource_type=LOGGER, resource_name=node, configs=configs)


def alteration(
    changes: tuple[tuple[str, int, str | None], ...], node: str, **more: Any
) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(resources=[of_loggers(changes, node)], **more)


def test_a_description_of_one_logger_has_the_fields_of_kafkas() -> None:
    (asked,) = [one for number, one in enumerate(exchanges("describe_configs"), 1) if number == OF_KAFKA_ONE_LOGGER]
    logging.getLogger().setLevel("ERROR")
    assert asked.answer is not None
    assert plain(Node().ask(asked.request)) == plain(asked.answer)


def test_a_description_has_every_logger_with_its_effective_level() -> None:
    logging.getLogger(PARENT).setLevel("ERROR")
    logging.getLogger(CHILD).setLevel("NOTSET")
    resource = DescribeConfigsResource(resource_type=LOGGER, resource_name="1", configuration_keys=None)
    answer = Node().ask(DescribeConfigsRequest(resources=[resource]))
    assert isinstance(answer, DescribeConfigsResponse)
    (result,) = answer.results
    shown = {each.name: each.value for each in result.configs}
    assert shown == levels()
    assert (shown[PARENT], shown[CHILD]) == ("ERROR", "ERROR")
    assert {"root", "kraft.node"} <= shown.keys()


def test_each_description_of_one_request_has_its_own_loggers() -> None:
    logging.getLogger(CHILD)
    resources = [
        DescribeConfigsResource(resource_type=LOGGER, resource_name=name, configuration_keys=keys)
        for name, keys in (("1", [CHILD]), ("2", ["root"]), ("1", ["root"]), ("1", ["no.such"]))
    ]
    answer = Node().ask(DescribeConfigsRequest(resources=resources))
    assert isinstance(answer, DescribeConfigsResponse)
    found = [(one.error_code, [each.name for each in one.configs]) for one in answer.results]
    assert found == [(0, [CHILD]), (Error.INVALID_REQUEST, []), (0, ["root"]), (0, [])]


def test_the_last_of_many_changes_of_a_logger_is_the_only_line(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger(CHILD)
    assert Node().alter(*[(CHILD, SET, level) for level in ("TRACE", "INFO") * 500], (CHILD, SET, "FATAL")) == (0, None)
    assert levels()[CHILD] == "FATAL"
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("number", "shown"), [(5, "TRACE"), (10, "DEBUG"), (15, "DEBUG"), (30, "WARN"), (40, "ERROR"), (50, "FATAL")]
)
def test_a_level_of_python_is_shown_as_kafkas(number: int, shown: str) -> None:
    logging.getLogger(PARENT).setLevel(number)
    assert levels()[PARENT] == shown


def test_a_deleted_level_is_that_of_the_parent(caplog: pytest.LogCaptureFixture) -> None:
    node, child = Node(), logging.getLogger(CHILD)
    assert node.alter((PARENT, SET, "ERROR"), (CHILD, SET, "TRACE")) == (0, None)
    assert child.isEnabledFor(5)
    assert node.alter((CHILD, DELETE, None)) == (0, None)
    assert child.getEffectiveLevel() == logging.ERROR
    said = [getattr(record, "facts", {}) for record in caplog.records]
    assert [(one["event"], one["name"], one["to"], one["by"]) for one in said] == [
        ("log-level", PARENT, "error", "'User:ANONYMOUS'"),
        ("log-level", CHILD, "trace", "'User:ANONYMOUS'"),
        ("log-level", CHILD, "error", "'User:ANONYMOUS'"),
    ]


VALID = "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
OF_LOGGERS = "is not allowed for the BROKER_LOGGER resource"


@pytest.mark.parametrize(
    ("change", "node", "error", "text"),
    [
        (("no.such", SET, "INFO"), "1", Error.INVALID_CONFIG, "Logger no.such does not exist!"),
        (("kraft", DELETE, None), "1", Error.INVALID_CONFIG, "Logger kraft does not exist!"),
        (
            (CHILD, SET, "WARNING"),
            "1",
            Error.INVALID_CONFIG,
            f"Cannot set the log level of {CHILD} to WARNING as it is not a supported log level. {VALID}",
        ),
        (
            (CHILD, SET, None),
            "1",
            Error.INVALID_CONFIG,
            f"Cannot set the log level of {CHILD} to null as it is not a supported log level. {VALID}",
        ),
        (
            ("root", DELETE, None),
            "1",
            Error.INVALID_REQUEST,
            "Removing the log level of the root logger is not allowed",
        ),
        ((CHILD, APPEND, "INFO"), "1", Error.INVALID_REQUEST, f"APPEND operation {OF_LOGGERS}"),
        ((CHILD, SUBTRACT, "INFO"), "1", Error.INVALID_REQUEST, f"SUBTRACT operation {OF_LOGGERS}"),
        ((CHILD, 9, "INFO"), "1", Error.INVALID_REQUEST, f"Unknown operation type 9 {OF_LOGGERS}"),
        ((CHILD, SET, "INFO"), "2", Error.INVALID_REQUEST, "Unexpected node id. Expected 1, but received 2"),
        ((CHILD, SET, "INFO"), "", Error.INVALID_REQUEST, "Node id must be an integer, but it is: "),
        ((CHILD, SET, "INFO"), "1_0", Error.INVALID_REQUEST, "Node id must be an integer, but it is: 1_0"),
    ],
)
def test_a_bad_change_is_refused_and_changes_no_level(
    change: tuple[str, int, str | None], node: str, error: Error, text: str
) -> None:
    logging.getLogger(PARENT)
    logging.getLogger(CHILD)
    before = levels()
    assert Node().alter((PARENT, SET, "FATAL"), change, node=node) == (error, text)
    assert levels() == before


def test_a_checked_change_changes_no_level() -> None:
    before = levels()
    assert Node().alter(("root", SET, "FATAL"), validate_only=True) == (0, None)
    assert levels() == before


def test_a_change_needs_cluster_action(caplog: pytest.LogCaptureFixture) -> None:
    node = Node(admin=SECURED)
    refused = (Error.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    for operation, expected in (
        (AclOperation.ALTER_CONFIGS, refused),
        (AclOperation.CLUSTER_ACTION, (Error.NONE, None)),
    ):
        rule = AclCreation(
            resource_type=AclResource.CLUSTER,
            resource_name="kafka-cluster",
            resource_pattern_type=LITERAL,
            principal="User:eve",
            host=ALL,
            operation=operation,
            permission_type=ALLOW,
        )
        assert node.side.ask(CreateAclsRequest(creations=[rule]), 3)
        assert node.alter(("root", SET, "WARN"), name="eve") == expected
    (denial,) = [facts for record in caplog.records if (facts := getattr(record, "facts", {})).get("event") == "denied"]
    assert (denial["principal"], denial["operation"]) == ("'User:eve'", "CLUSTER_ACTION")


def test_at_a_broker_a_change_needs_alter_configs() -> None:
    rule = AccessControlEntryRecord(
        id=Uuid(bytes(range(16))),
        resource_type=AclResource.CLUSTER,
        resource_name="kafka-cluster",
        pattern_type=LITERAL,
        principal="User:eve",
        host=ALL,
        operation=AclOperation.ALTER_CONFIGS,
        permission_type=ALLOW,
    )
    rights = Rights(AuthorizerSettings())
    rights.use(image_of(rule))
    loggers = LoggerRequests(1, rights, NodeLog(1, lambda: 0), AclOperation.ALTER_CONFIGS)
    for name, error in (("eve", Error.NONE), ("bob", Error.CLUSTER_AUTHORIZATION_FAILED)):
        message = alteration((("root", SET, "WARN"),), "1")
        request = asked_by(name, message)
        assert loggers.rest_of(message) == IncrementalAlterConfigsRequest()
        answer = loggers.answer(request, IncrementalAlterConfigsResponse())
        assert isinstance(answer, IncrementalAlterConfigsResponse)
        assert [one.error_code for one in answer.responses] == [error]
    assert levels()["root"] == "WARN"


def test_other_resources_of_the_same_request_are_altered_by_the_controller() -> None:
    node = Node()
    metrics = AlterConfigsResource(
        resource_type=METRICS, resource_name="m", configs=[AlterableConfig(name="interval.ms", value="500")]
    )
    request = IncrementalAlterConfigsRequest(resources=[of_loggers(((CHILD, SET, "ERROR"),)), metrics])
    logging.getLogger(CHILD)
    answer = node.ask(request)
    assert isinstance(answer, IncrementalAlterConfigsResponse)
    assert [(one.resource_type, one.error_code) for one in answer.responses] == [(METRICS, 0), (LOGGER, 0)]
    assert levels()[CHILD] == "ERROR"
    (records,) = node.side.batches[-1:]
    assert [getattr(record, "resource_type", None) for _, record in records] == [METRICS]


def test_a_standby_changes_its_own_loggers_and_writes_nothing() -> None:
    node = Node()
    node.side.controller.renounce()
    before = len(node.side.batches)
    logging.getLogger(CHILD)
    assert node.alter((CHILD, SET, "ERROR")) == (0, None)
    assert levels()[CHILD] == "ERROR"
    assert len(node.side.batches) == before
