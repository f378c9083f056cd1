"""Finds the controllers of a cluster through its brokers (Kafka: `Admin.describeMetadataQuorum` with
`bootstrap.servers`, KIP-595, KIP-853).

A broker forwards DescribeQuorum to the leader. The answer names the listeners of every voter.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

from kraft.admin.client import REQUEST_RETRY_MS, AdminClient, open_admin
from kraft.admin.descriptions import quorum_description, quorum_error
from kraft.admin.errors import AdminError, CannotConnect, RequestRefused
from kraft.config import PROTECTED_PROTOCOLS
from metadata_log.types import METADATA_PARTITION, METADATA_TOPIC
from transport.interface import Endpoint, Failed, Transport
from transport.protocol.errors import Error
from transport.protocol.inbound import Cause, lasting_failure
from transport.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)


async def controllers_of(
    servers: Iterable[Endpoint], *, protocol: str, timeout_ms: int, transport: Transport | None = None
) -> tuple[Endpoint, ...]:
    """The addresses of the controllers, from the first broker that answers.

    Args:
        servers: The addresses of some brokers.
        protocol: The security protocol of the client. Listeners that are named like another protected one are left out.
        timeout_ms: The limit of each request, in milliseconds.
        transport: The transport to run; None for TCP in the clear.

    Raises:
        AdminError: No broker answered, or the answer names no listener of a controller.
    """
    deadline = trio.current_time() + timeout_ms / 1000
    async with open_admin(servers, transport=transport, timeout_ms=timeout_ms) as admin:
        while True:
            endpoints, failures, failed = await _ask_each(admin, protocol, timeout_ms)
            if endpoints:
                return endpoints
            is_silent = len(failed) == len(failures)
            if is_silent and (lasting := lasting_failure(failed)) is not None:
                raise CannotConnect(lasting)
            # A peer that closes connections without a word speaks another protocol, which one closing does not tell.
            may_change = is_silent and any(one.cause is Cause.RESET for one in failed)
            if not may_change or trio.current_time() >= deadline:
                break
            await trio.sleep(REQUEST_RETRY_MS / 1000)
        asked = ", ".join(map(str, admin.addresses))
    raise AdminError(
        f"the brokers name no controllers: {'; '.join(failures)}",
        hint=f"Asked: {asked}. Does a broker run there?"
        if is_silent
        else "Give the address of a broker, or that of a controller with --bootstrap-controller.",
    )


async def _ask_each(
    admin: AdminClient, protocol: str, timeout_ms: int
) -> tuple[tuple[Endpoint, ...], list[str], list[Failed]]:
    """Ask each broker once, up to the first that names controllers: these, what the others said, and who was silent."""
    partition = DescribeQuorumRequestPartitionData(partition_index=METADATA_PARTITION)
    topic = DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    request = DescribeQuorumRequest(topics=[topic])
    failures: list[str] = []
    failed: list[Failed] = []
    for server in admin.addresses:
        answer = await admin.ask(server, request, DescribeQuorumResponse, timeout_ms=timeout_ms)
        if isinstance(answer, Failed):
            failures.append(answer.reason)
            failed.append(answer)
            continue
        error, text = quorum_error(answer)
        if error is Error.NOT_LEADER_OR_FOLLOWER:  # a broker forwards the request instead
            failures.append(f"{server} is a controller")
            continue
        if error is not Error.NONE:
            failures.append(f"{server} answered {RequestRefused(error, text)}")
            continue
        endpoints = [
            endpoint
            for voter in quorum_description(answer).voters
            for name, endpoint in voter.listeners
            if name not in PROTECTED_PROTOCOLS or name == protocol
        ]
        if endpoints:
            return tuple(dict.fromkeys(endpoints)), failures, failed
        failures.append(f"{server} names no listener of a controller that {protocol} reaches")
    return (), failures, failed
