"""Derives the options of a node's replica and transport from its configuration (Kafka: `KafkaConfig`, `Endpoints`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kraft.config import Config
from kraft.process.options import ProcessOptions
from kraft.quorum.values import Endpoints, ListenerAddress, QuorumConfig, ReplicaKey
from kraft.quorum.voters import Voter, VoterSet
from kraft.replica.interface.options import ReplicaOptions
from transport.interface import Endpoint, Listener

if TYPE_CHECKING:
    from kraft.broker import BrokerOptions

SECURITY_PROTOCOLS: Final = {"SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Kafka's numbers of the security protocols; every other listener has PLAINTEXT (Kafka: `SecurityProtocol`)."""
COMMIT_NEWS_DELAY_MS: Final = 5
"""Followers hear of a commit with the next records, or after this long.

Kafka answers a parked fetch at once when there is only that to tell (KIP-1166). That is a round trip with each follower
for every commit of a leader with one client: a quarter of a follower's CPU time, and that client waits longer.
"""


def listeners_of(config: Config) -> tuple[Listener, ...]:
    """The listeners of the node."""
    return tuple(Listener(one.name, one.host, one.port) for one in config.listeners)


def needs_own_name(config: Config) -> bool:
    """Whether some advertised listener has no host, so that clients reach it by the name of the machine."""
    return not all(one.host for one in config.advertised_listeners)


def process_options(
    config: Config,
    bound: Sequence[Endpoint],
    *,
    inline_flush: bool,
    broker: BrokerOptions | None = None,
    own_name: str = "",
    survives_failures: bool = False,
) -> ProcessOptions:
    """The options of the process; `bound` holds the listeners' bound addresses, `own_name` is the machine's name."""
    listener = config.controller_listener_names[0]
    reached = tuple(
        ListenerAddress(one.name, one.host or own_name, one.port or at.port)
        for one, at in zip(config.advertised_listeners or config.listeners, bound, strict=True)
    )
    is_both = config.is_broker and config.is_controller
    replica = config.of(
        ReplicaOptions,
        directory=config.metadata_log_dir,
        node_id=config.node_id,
        voters=VoterSet.of(
            Voter(ReplicaKey(voter.id), Endpoints((ListenerAddress(listener, voter.host, voter.port),)))
            for voter in config.voters
        ),
        endpoints=Endpoints(
            tuple(one for one in reached if not is_both or one.name in config.controller_listener_names)
        ),
        bootstrap=tuple(ListenerAddress(listener, host, port) for host, port in config.bootstrap_servers),
        listener=listener,
        quorum=config.of(QuorumConfig, high_watermark_propagation_delay_ms=COMMIT_NEWS_DELAY_MS),
        may_vote=config.is_controller,
        inline_flush=inline_flush,
    )
    return config.of(
        ProcessOptions,
        replica=replica,
        own_settings=config.described,
        security_protocols=tuple(
            (one.name, SECURITY_PROTOCOLS[one.protocol])
            for one in config.listeners
            if one.protocol in SECURITY_PROTOCOLS
        ),
        broker=broker,
        client_endpoints=(
            Endpoints(tuple(one for one in reached if one.name in config.client_listeners)) if is_both else None
        ),
        survives_failures=survives_failures,
    )
