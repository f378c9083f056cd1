"""Controllers that log in at each other, and clients with users of the metadata log, in virtual time."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random

import pytest
import trio
import trio.testing

from kraft.admin import AdminError, NoController, open_admin, set_password
from kraft.admin.client import AdminClient
from kraft.config import Config
from kraft.node.clock import NodeClock
from kraft.node.node import Node
from kraft.node.run import run_node
from kraft.node.users import NodeUsers
from metadata_log.log.log_dir import format_directory
from metadata_log.memory_disk import MemoryDisk
from metadata_log.types import random_uuid
from transport.interface import PEERS, Endpoint, Failed
from transport.memory_sockets import MemoryStreams
from transport.protocol.errors import Error
from transport.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from transport.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from transport.protocol.sasl.client import SaslLogin
from transport.sasl import Sasl

IDS = (1, 2, 3)
START_MS = 1_700_000_000_000
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
ADMIN = SaslLogin(mechanism="PLAIN", user="admin", password="a-secret")
ADDRESSES = {node: Endpoint(f"c{node}", 9093) for node in IDS}


def config_of(node: int) -> Config:
    return Config.parse(
        f"""process.roles=controller
node.id={node}
controller.quorum.voters={",".join(f"{id}@{at}" for id, at in ADDRESSES.items())}
controller.listener.names=CTL
listeners=CTL://{ADDRESSES[node]}
listener.security.protocol.map=CTL:SASL_PLAINTEXT
log.dirs=/data
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
sasl.mechanism.controller.protocol=PLAIN
listener.name.ctl.plain.sasl.jaas.config={PLAIN} required username=node password=n user_node=n user_admin="a-secret";
listener.name.ctl.scram-sha-256.sasl.jaas.config={SCRAM} required;
listener.name.ctl.scram-sha-512.sasl.jaas.config={SCRAM} required;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:node;User:admin
delegation.token.secret.key=of-all-controllers
connections.max.reauth.ms=5000
"""
    )


@asynccontextmanager
async def quorum(network: MemoryStreams) -> AsyncIterator[dict[int, Node]]:
    """Three controllers."""
    rng, clock = Random(7), NodeClock()
    cluster_id = str(random_uuid(rng))
    nodes = {}
    async with trio.open_nursery() as nursery:
        for node in IDS:
            disk, config = MemoryDisk(), config_of(node)
            format_directory(disk, "/data", node_id=node, cluster_id=cluster_id, rng=rng, now_ms=START_MS)
            users = NodeUsers(config)
            run = partial(
                run_node,
                config,
                transport=network.transport(sasl=users.sasl),
                disk=disk,
                rng=Random(node),
                clock=clock,
                users=users,
                inline_flush=True,
            )
            nodes[node] = await nursery.start(run)
        yield nodes
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def client(network: MemoryStreams, login: SaslLogin, *, timeout_ms: int = 5000) -> AsyncIterator[AdminClient]:
    carrier = network.transport(sasl=Sasl(outgoing={PEERS: login}))
    async with open_admin(ADDRESSES.values(), transport=carrier, timeout_ms=timeout_ms) as admin:
        yield admin


async def test_controllers_that_log_in_elect_a_leader_and_serve_users_of_the_log(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryStreams()
    async with quorum(network):
        async with client(network, ADMIN) as admin:
            cluster = await admin.describe_cluster()
            assert cluster.controller_id in IDS
            await set_password(admin, "alice", "secret", mechanism="SCRAM-SHA-512")
            leader = dict(cluster.controllers)[cluster.controller_id]
        alice = SaslLogin(mechanism="SCRAM-SHA-512", user="alice", password="secret")
        async with client(network, alice) as admin:
            # The authorizer sees the user, and the user has no rights.
            answer = await admin.ask(leader, DescribeClusterRequest(endpoint_type=2), DescribeClusterResponse)
            assert isinstance(answer, DescribeClusterResponse)
            assert answer.error_code == Error.CLUSTER_AUTHORIZATION_FAILED
            assert "User:alice" in (answer.error_message or "")
        wrong = SaslLogin(mechanism="SCRAM-SHA-512", user="alice", password="guess")
        async with client(network, wrong) as admin:
            refused = await admin.ask(leader, DescribeClusterRequest(endpoint_type=2), DescribeClusterResponse)
            assert isinstance(refused, Failed)
            assert "refuses the login by SCRAM-SHA-512" in refused.detail
            with pytest.raises((NoController, AdminError), match="refuses the login"):
                await admin.describe_cluster()


async def test_an_owner_logs_in_by_the_token_that_a_controller_made(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryStreams()
    async with quorum(network):
        async with client(network, ADMIN) as admin:
            request = CreateDelegationTokenRequest(max_lifetime_ms=60_000)
            made = await admin.ask_active(
                request, CreateDelegationTokenResponse, lambda answer: (Error.of(answer.error_code), None)
            )
            assert (made.principal_type, made.principal_name) == ("User", "admin")
        by_token = SaslLogin(
            mechanism="SCRAM-SHA-256",
            user=made.token_id,
            password=base64.b64encode(made.hmac).decode(),
            is_token=True,
        )
        async with client(network, by_token) as admin:
            assert (await admin.describe_cluster()).controller_id in IDS
            refused = await admin._find_active()
            assert refused is not None
            # A token does not make another token.
            answer = await admin.ask(refused, CreateDelegationTokenRequest(), CreateDelegationTokenResponse)
            assert isinstance(answer, CreateDelegationTokenResponse)
            assert answer.error_code == Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        await trio.sleep(61)
        async with client(network, by_token) as admin:
            with pytest.raises((NoController, AdminError), match="refuses the login"):
                await admin.describe_cluster()


async def test_a_quorum_keeps_its_leader_through_renewals_of_its_logins(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryStreams()
    async with quorum(network), client(network, ADMIN) as admin:
        before = await admin.describe_quorum()
        await trio.sleep(60)
        after = await admin.describe_quorum()
        assert (after.leader_id, after.leader_epoch) == (before.leader_id, before.leader_epoch)
