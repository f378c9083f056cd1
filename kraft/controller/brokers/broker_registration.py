"""Registers and unregisters brokers (Kafka: `ClusterControlManager.registerBroker`, KIP-631)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraft.access.errors import ApiError
from kraft.controller.brokers.broker_states import restart, unregister
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import TOO_MANY_RECORDS, ControllerResult, Steps
from kraft.controller.features.older_nodes import note_older_node
from kraft.limits import RECORDS_PER_OPERATION
from metadata_log.image import KRAFT_VERSION, METADATA_VERSION, Broker, MetadataImage
from metadata_log.image.features import CORDONED_SINCE, DIRECTORIES_SINCE
from metadata_log.image.persistent_map import in_key_order
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from transport.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

_CLEAN_SHUTDOWN_SINCE: Final = 3
"""The first request version in which a broker reports the epoch of its last clean shutdown (KIP-966)."""
_NEVER_REGISTERED: Final = -2
_SHUTDOWN_FIELD_SINCE: Final = 7
_MIGRATING_FIELD_SINCE: Final = 8
_HIGHEST_SECURITY_PROTOCOL: Final = 3


def register_broker(context: RequestContext, request: BrokerRegistrationRequest) -> Steps:
    """Register a new incarnation of a broker, or update the registration of the current one.

    Each incarnation gets its own epoch and begins fenced. The records first remove the former incarnation's replicas
    from each ISR, then register the broker. If only a part of the records is committed, the broker repeats its request.
    Raises `ApiError`.
    """
    image, broker_id = context.image, request.broker_id
    _check(context, request)
    old = image.brokers.by_id.get(broker_id)
    is_new = False
    if old is None or old.incarnation_id != request.incarnation_id:
        last_epoch = _NEVER_REGISTERED if old is None else old.epoch
        is_clean = context.version >= _CLEAN_SHUTDOWN_SINCE and request.previous_broker_epoch == last_epoch
        is_new = True
        yield from restart(image, broker_id, context.defaults, is_clean=is_clean)
        epoch, fenced, in_controlled_shutdown = context.next_offset, True, False
    else:
        epoch, fenced, in_controlled_shutdown = old.epoch, old.fenced, old.in_controlled_shutdown
    metadata_version = image.features.metadata_version or 0
    record = RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=tuple(
            BrokerEndpoint(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
            for one in request.listeners
        ),
        features=tuple(
            BrokerFeature(
                name=one.name,
                min_supported_version=one.min_supported_version,
                max_supported_version=one.max_supported_version,
            )
            for one in request.features
        ),
        rack=request.rack,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=tuple(request.log_dirs) if metadata_version >= DIRECTORIES_SINCE else (),
    )
    if is_new:
        context.sessions.forget(broker_id)
    context.sessions.touch(broker_id, fenced=fenced)
    registered = VersionedRecord(record, _register_version(metadata_version))
    return ControllerResult((registered,), BrokerRegistrationResponse(broker_epoch=epoch), is_atomic=False)


def unregister_broker(context: RequestContext, request: UnregisterBrokerRequest) -> Steps:
    """Remove a broker, fenced or not; raises `ApiError`."""
    broker = context.image.brokers.by_id.get(request.broker_id)
    if broker is None:
        text = f"Broker ID {request.broker_id} is not currently registered"
        raise ApiError(Error.BROKER_ID_NOT_REGISTERED, text)
    records: list[VersionedRecord] = []
    for record in unregister(context.image, broker, context.defaults):
        if record is not None:
            records.append(record)
            if len(records) > RECORDS_PER_OPERATION:
                raise ApiError(Error.POLICY_VIOLATION, TOO_MANY_RECORDS)
        yield None
    return ControllerResult(tuple(records), UnregisterBrokerResponse(), is_atomic=False)


def _register_version(metadata_version: int) -> int:
    """The version of a RegisterBroker record (`MetadataVersion.registerBrokerRecordVersion`)."""
    if metadata_version >= CORDONED_SINCE:
        return 4
    if metadata_version >= DIRECTORIES_SINCE:
        return 3
    if metadata_version >= _MIGRATING_FIELD_SINCE:
        return 2
    return 1 if metadata_version >= _SHUTDOWN_FIELD_SINCE else 0


def _check(context: RequestContext, request: BrokerRegistrationRequest) -> None:
    """Check the preconditions of a registration in Kafka's order; raises `ApiError`."""
    image = context.image
    if request.cluster_id != context.cluster_id:
        text = f"Expected cluster ID {context.cluster_id}, but got cluster ID {request.cluster_id}"
        raise ApiError(Error.INCONSISTENT_CLUSTER_ID, text)
    old = image.brokers.by_id.get(request.broker_id)
    if (
        old is not None
        and old.incarnation_id != request.incarnation_id
        and context.sessions.keeps_out(old.id, old.epoch, context.now_ms)
    ):
        text = f"Another broker is registered with that broker id: {old.id}, and its session has not expired."
        raise ApiError(Error.DUPLICATE_BROKER_REGISTRATION, text)
    if request.is_migrating_zk_broker:
        text = f"Controller does not support registering ZK brokers, as broker {request.broker_id} is."
        raise ApiError(Error.BROKER_ID_NOT_REGISTERED, text)
    if (image.features.metadata_version or 0) >= DIRECTORIES_SINCE:
        _check_directories(image, request.broker_id, request.log_dirs)
    if any(not 0 <= one.security_protocol <= _HIGHEST_SECURITY_PROTOCOL for one in request.listeners):
        raise ApiError(Error.UNKNOWN_SERVER_ERROR, "A listener has a security protocol that does not exist.")
    _check_features(context, request)


def _check_directories(image: MetadataImage, broker_id: int, directories: list[Uuid]) -> None:
    if not directories:
        raise ApiError(Error.INVALID_REGISTRATION, "No directories specified in request")
    if any(directory.is_reserved for directory in directories):
        raise ApiError(Error.INVALID_REGISTRATION, "Reserved directory ID in request")
    if len(dict.fromkeys(directories)) < len(directories):
        raise ApiError(Error.INVALID_REGISTRATION, "Duplicate directory ID in request")
    for other in _others(image, broker_id):
        for directory in directories:
            if directory in other.directories:
                text = f"Broker {other.id} is already registered with directory {directory}"
                raise ApiError(Error.INVALID_REGISTRATION, text)


def _others(image: MetadataImage, broker_id: int) -> Iterator[Broker]:
    return (other for other_id, other in in_key_order(image.brokers.by_id) if other_id != broker_id)


def _check_features(context: RequestContext, request: BrokerRegistrationRequest) -> None:
    """Require that the broker supports each finalized feature at its level, and each supported feature at level 0 or
    above."""
    image = context.image
    supported = {one.name: (one.min_supported_version, one.max_supported_version) for one in request.features}
    most = {name: high for name, (_, high) in supported.items()}
    note_older_node(context, "broker", request.broker_id, request.incarnation_id, most)
    for name, (lowest, highest) in supported.items():
        level = image.features.level(name)
        if not lowest <= level <= highest:
            text = (
                f"Unable to register because the broker does not support finalized version {level} of {name}. "
                f"The broker wants a version between {lowest} and {highest}, inclusive."
            )
            raise ApiError(Error.UNSUPPORTED_VERSION, text)
    if METADATA_VERSION not in supported:
        raise ApiError(Error.INVALID_REGISTRATION, f"The broker does not name the feature {METADATA_VERSION}.")
    for name, level in image.features.all_levels():
        if name not in supported and name != KRAFT_VERSION and level > 0:
            text = f"Unable to register because the broker does not support finalized version {level} of {name}."
            raise ApiError(Error.UNSUPPORTED_VERSION, text)
