"""A controller and a broker on one replica of the metadata log (Kafka: `SharedServer`, both `process.roles`).

The controller part has all that concerns the quorum. The broker part sees the committed records, its own listeners and
the answers to its own requests. Requests of the broker to an active controller in this process take the network, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import tee
from random import Random

from msgspec import structs

from kraft.access.authorizer import Denial
from kraft.access.errors import ApiError
from kraft.quorum.values import LeaderAndEpoch
from kraft.replica.hosts.broker_host import BrokerHost, LeaveCluster, Left
from kraft.replica.hosts.controller_host import ControllerHost, host_controller
from kraft.replica.interface.application import (
    Action,
    Application,
    ApplicationFactory,
    ForRequest,
    Unit,
)
from kraft.replica.interface.events import Call, CancelCall, Committed, CommittedBatch, Noted, Submit
from kraft.replica.interface.options import ReplicaOptions
from kraft.wire import Answer, Part, ReplyTo, Send, Target, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error


class CombinedHost:
    """Hosts both parts.

    Args:
        controller: The controller.
        broker: The broker.
        own: The id and the address at which the broker reaches the controller of this process.
        client_listeners: The names of the listeners of the broker.
    """

    reads_batches = True

    def __init__(
        self,
        controller: ControllerHost,
        broker: BrokerHost,
        *,
        own: Target,
        client_listeners: frozenset[str],
    ) -> None:
        self.controller = controller
        self.broker = broker
        self.clients: Application = broker
        self.client_listeners = client_listeners
        self._own = own
        self._is_leaving = False

    def committed_image(self) -> MetadataImage:
        """The committed metadata, as reads of the controller see it."""
        return self.controller.committed_image()

    @property
    def apis(self) -> tuple[ApiKey, ...]:
        """The APIs of the controller's listeners; those of the broker's are the broker's."""
        return self.controller.apis

    # Committed records: both parts replay them

    def check(self, values: Sequence[bytes], *, in_snapshot: bool = False) -> Sequence[Message]:
        """Both parts read the same records."""
        return self.controller.check(values, in_snapshot=in_snapshot)

    def check_snapshot(self, values: Iterable[bytes]) -> None:
        """As `check`."""
        self.controller.check_snapshot(values)

    def on_snapshot(self, values: Iterable[bytes], end: OffsetAndEpoch) -> None:
        """Replace the image of both parts."""
        first, second = tee(values)
        self.controller.on_snapshot(first, end)
        self.broker.on_snapshot(second, end)

    def on_committed(self, batch: CommittedBatch) -> tuple[Committed, ...]:
        """Replay the first portion of a batch in both parts."""
        return (*self.controller.on_committed(batch), *self.broker.on_committed(batch))

    @property
    def is_applying(self) -> bool:
        """Whether a part needs more turns."""
        return self.controller.is_applying or self.broker.is_applying

    def apply_more(self) -> tuple[Committed, ...]:
        """Replay the next portion."""
        outputs: tuple[Committed, ...] = ()
        if self.controller.is_applying:
            outputs += self.controller.apply_more()
        if self.broker.is_applying:
            outputs += self.broker.apply_more()
        return outputs

    def on_caught_up(self) -> None:
        """Both parts have applied all commits."""
        self.controller.on_caught_up()
        self.broker.on_caught_up()

    # The quorum: the controller alone

    def on_leader(self, epoch: int, next_offset: int, now_ms: int) -> tuple[Action, ...]:
        """Activate the controller."""
        return self.controller.on_leader(epoch, next_offset, now_ms)

    def on_lost_leadership(self) -> None:
        """Deactivate the controller."""
        self.controller.on_lost_leadership()

    def on_appended(self, unit: Unit, base_offset: int) -> None:
        """A decision of the controller has its offsets."""
        self.controller.on_appended(unit, base_offset)

    def on_request(self, request: WireRequest, leader: LeaderAndEpoch, now_ms: int) -> Action:
        """A request at a listener of the controller; the replica asks `clients` itself."""
        return self.controller.on_request(request, leader, now_ms)

    def on_full(self, request: WireRequest, leader: LeaderAndEpoch, now_ms: int) -> Action:
        """The same while no further request may wait."""
        return self.controller.on_full(request, leader, now_ms)

    def denial(self, request: WireRequest) -> ApiError | None:
        """The decision of the controller's authorizer."""
        return self.controller.denial(request)

    def take_denials(self) -> Sequence[Denial]:
        """The denials of both parts."""
        return (*self.controller.take_denials(), *self.broker.take_denials())

    def on_submit(self, submit: Submit) -> Action:
        """Refused, as by each controller."""
        return self.controller.on_submit(submit)

    def refuse(
        self, asked: ForRequest, error: Error, leader: LeaderAndEpoch, now_ms: int, text: str | None = None
    ) -> Answer | None:
        """Answer a request of the controller with refused or lost records."""
        return self.controller.refuse(asked, error, leader, now_ms, text)

    def snapshot(self) -> Callable[[], Iterator[bytes | None]] | None:
        """The record values of the committed image, which is the same in both parts."""
        return self.controller.snapshot()

    def finalized_features(self) -> tuple[tuple[tuple[str, int], ...], int]:
        """The committed feature levels."""
        return self.controller.finalized_features()

    def supported_features(self) -> tuple[tuple[str, int, int], ...]:
        """The features that this software supports."""
        return self.controller.supported_features()

    def on_confirmed(self, token: int, *, is_leader: bool) -> None:
        """Never called."""
        self.controller.on_confirmed(token, is_leader=is_leader)

    # Requests of both parts

    def on_reply(self, reply_to: ReplyTo, response: Message | None, now_ms: int) -> None:
        """Pass a reply to the part that asked."""
        part: Application = self.controller if reply_to.part is Part.CONTROLLER else self.broker
        part.on_reply(reply_to, response, now_ms)

    def on_gone(self, request_id: int) -> None:
        """A client's connection is closed. The controller has nothing to forget."""
        self.broker.on_gone(request_id)

    def deadline_ms(self) -> int:
        """When the first of both parts has something to do."""
        if self._is_leaving and self.broker.may_stop:
            return 0
        return min(self.controller.deadline_ms(), self.broker.deadline_ms())

    def on_tick(self, now_ms: int) -> Iterator[Action]:
        """Do what is due in both parts."""
        if now_ms >= self.controller.deadline_ms():
            yield from self.controller.on_tick(now_ms)
        if now_ms >= self.broker.deadline_ms():
            for action in self.broker.on_tick(now_ms):
                yield self._to_controller(action)
        if self._is_leaving and self.broker.may_stop:
            self._is_leaving = False
            yield Noted(Left())

    def _to_controller(self, action: Action) -> Action:
        """A request to the active controller goes to this process if that is the active one."""
        if isinstance(action, Send) and action.target is None and self.controller.controller.is_active:
            return structs.replace(action, target=self._own)
        return action

    # The end: the broker leaves first

    def on_call(self, call: Call | CancelCall, now_ms: int) -> None:
        """The node begins to end: the controller moves the leaderships of the broker, and `Left` follows."""
        assert isinstance(call, Call), call
        assert isinstance(call.ask, LeaveCluster), call
        self._is_leaving = True
        self.broker.on_begin_shutdown(now_ms)

    def on_begin_shutdown(self, now_ms: int) -> None:
        """The broker has left, or its time is over."""
        self.controller.on_begin_shutdown(now_ms)

    @property
    def may_stop(self) -> bool:
        """Whether the controller lets the node end; the broker has left before."""
        return self.controller.may_stop


def host_combined(broker: ApplicationFactory) -> ApplicationFactory:
    """The factory of a controller with the broker that a factory makes."""

    def host(options: ReplicaOptions, cluster_id: str, bootstrap: tuple[Message, ...], rng: Random) -> CombinedHost:
        endpoints, own = options.client_endpoints, options.endpoints.default
        assert endpoints is not None, "these are not the options of a node with both roles"
        assert own is not None, "the controller has no listener"
        part = broker(structs.replace(options, endpoints=endpoints), cluster_id, bootstrap, rng)
        assert isinstance(part, BrokerHost), part
        return CombinedHost(
            host_controller(structs.replace(options, broker=None), cluster_id, bootstrap, rng),
            part,
            own=Target(options.node_id, own.host, own.port),
            client_listeners=frozenset(one.name for one in endpoints.listeners),
        )

    return host


def controller_of(application: Application) -> ControllerHost | None:
    """The controller that an application is or has."""
    if isinstance(application, CombinedHost):
        return application.controller
    return application if isinstance(application, ControllerHost) else None
