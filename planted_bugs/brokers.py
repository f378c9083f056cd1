"""Mutants of controllers and broker agents: partition leaders, ISRs and fencing of stale requests (KIP-497, KIP-903,
KIP-966).
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from msgspec.structs import replace

from kraft.config.data_settings import TopicDefaults
from kraft.controller import controller
from kraft.controller.brokers import broker_heartbeat, broker_registration
from kraft.controller.brokers.broker_heartbeat import fence_silent_broker
from kraft.controller.brokers.broker_states import restart
from kraft.controller.configs import incremental_configs
from kraft.controller.decision.broker_sessions import NOTHING, BrokerSessions, Heard
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import Records, Steps
from kraft.controller.topics import isr, partition_change
from kraft.controller.topics.leader_selection import Candidates, Elected, Election, elect
from kraft.controller.topics.partition_updates import is_active
from kraft.controller.topics.reassignment_steps import Assignment
from kraft.partitions.replicas import leading
from kraft.replica.replica import Replica
from kraft.sim.faults.nemesis import FAULTS
from kraft.wire import Part, Target
from metadata_log.image import Broker, MetadataImage, Partition, records, topics_delta
from metadata_log.image.persistent_map import in_key_order
from metadata_log.image.topics import merge
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord
from planted_bugs.registry import Patches, Scope, mutant, survivor
from transport.protocol.errors import Error
from transport.protocol.messages.alter_partition import AlterPartitionRequestPartitionData, BrokerState
from transport.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest

# Leaders and ISRs


@mutant(Scope.CLUSTER, budget=20)
def fenced_brokers_in_an_isr(code: Patches) -> None:
    """A leader adds fenced brokers to the ISR, and the controller accepts that."""
    code.replace(isr, "_is_eligible", lambda *_: True)
    code.replace(leading, "is_eligible", lambda *_: True)


@mutant(Scope.CLUSTER, budget=20)
def leader_epoch_stays(code: Patches) -> None:
    """The controller elects another leader in the same leader epoch, which does not fence the former leader."""

    def merge_without_epoch(old: Partition, record: PartitionChangeRecord) -> Partition:
        return replace(merge(old, record), leader_epoch=old.leader_epoch)

    code.replace(topics_delta, "merge", merge_without_epoch)


@mutant(Scope.CLUSTER, budget=20)
def leader_from_outside_of_the_isr(code: Patches) -> None:
    """The controller may elect any replica, in sync or not."""

    def is_valid(candidates: Candidates, replica: int) -> bool:
        return replica in candidates.replicas and candidates.is_acceptable(candidates.partition, replica)

    code.replace(Candidates, "is_valid", is_valid)


@mutant(Scope.CLUSTER, budget=20)
def fenced_broker_leads_on(code: Patches) -> None:
    """A fenced broker keeps its leaderships."""

    def fence(image: MetadataImage, broker: Broker, defaults: TopicDefaults) -> Records:
        change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=1)
        return iter((VersionedRecord(change),))

    code.replace(broker_heartbeat, "fence", fence)


@mutant(Scope.CLUSTER, budget=50)
def every_restart_is_trusted(code: Patches) -> None:
    """A restarted broker counts as complete, even after an unclean shutdown."""

    def restart_cleanly(image: MetadataImage, broker_id: int, defaults: TopicDefaults, *, is_clean: bool) -> Records:
        return restart(image, broker_id, defaults, is_clean=True)

    code.replace(broker_registration, "restart", restart_cleanly)


# Sessions


@mutant(Scope.CLUSTER, budget=200, faults=FAULTS)
def an_old_session_fences_the_new_incarnation(code: Patches) -> None:
    """The end of a session fences the broker, even if another incarnation has registered since."""

    def fence_the_present_incarnation(context: RequestContext, expired: tuple[int, int]) -> Steps:
        broker = context.image.brokers.by_id.get(expired[0])
        present = expired if broker is None else (broker.id, broker.epoch)
        return fence_silent_broker(context, present)

    code.replace(controller, "fence_silent_broker", fence_the_present_incarnation)


@mutant(Scope.CLUSTER, budget=200, faults=FAULTS)
def unfenced_before_its_own_registration(code: Patches) -> None:
    """A broker is unfenced before its metadata covers its own registration."""

    def registered_at(sessions: BrokerSessions, broker_id: int) -> int | None:
        return None if broker_id not in sessions._registered_at else NOTHING

    code.replace(BrokerSessions, "registered_at", registered_at)


@mutant(Scope.CLUSTER, budget=200, faults=FAULTS)
def new_controllers_open_no_sessions(code: Patches) -> None:
    """A new active controller opens no session for a broker before the broker's first heartbeat, so that a broker that
    is down stays unfenced.
    """

    def claim(sessions: BrokerSessions, image: MetadataImage, now_ms: int) -> None:
        sessions.renounce()
        for broker_id, broker in in_key_order(image.brokers.by_id):
            sessions._heard[broker_id] = Heard(fenced=broker.fenced)

    code.replace(BrokerSessions, "claim", claim)


# Stale requests


@mutant(Scope.CLUSTER, budget=200, faults=FAULTS)
def member_epochs_are_overlooked(code: Patches) -> None:
    """A restarted broker enters an ISR by a request that names its former incarnation (KIP-903)."""
    code.replace(isr, "_is_eligible", lambda image, member: is_active(image, member.broker_id))


@survivor(
    Scope.CLUSTER,
    killed_by="tests/kraft/controller/test_controller_isr.py::test_a_refusal_changes_nothing",
    because=(
        "A controlled shutdown lasts until the next heartbeat; a request that names the broker has to be decided "
        "within this time."
    ),
    tried=200,
)
def stopping_brokers_enter_an_isr(code: Patches) -> None:
    """A broker in controlled shutdown may enter an ISR."""

    def is_eligible(image: MetadataImage, member: BrokerState) -> bool:
        broker = image.brokers.by_id.get(member.broker_id)
        return broker is not None and not broker.fenced and member.broker_epoch in {-1, broker.epoch}

    code.replace(isr, "_is_eligible", is_eligible)


@mutant(Scope.CLUSTER, budget=50)
def former_lives_are_listened_to(code: Patches) -> None:
    """A heartbeat of a broker's former incarnation counts for the present one."""
    registered = broker_heartbeat._registered

    def registered_with_any_epoch(context: RequestContext, request: BrokerHeartbeatRequest) -> tuple[Broker, int]:
        broker = context.image.brokers.by_id.get(request.broker_id)
        epoch = request.broker_epoch if broker is None else broker.epoch
        return registered(context, replace(request, broker_epoch=epoch))

    code.replace(broker_heartbeat, "_registered", registered_with_any_epoch)


@mutant(Scope.CLUSTER, budget=20)
def partition_epochs_are_overlooked(code: Patches) -> None:
    """A leader with an old partition epoch may change the ISR."""
    sound = isr._error

    def error_but_of_epochs(
        image: MetadataImage,
        caller: int,
        partition: Partition,
        change: AlterPartitionRequestPartitionData,
        members: list[BrokerState],
    ) -> Error:
        error = sound(image, caller, partition, change, members)
        return Error.NONE if error is Error.INVALID_UPDATE_VERSION else error

    code.replace(isr, "_error", error_but_of_epochs)


# Changes of a partition


@mutant(Scope.CLUSTER, budget=20)
def reassignment_without_catching_up(code: Patches) -> None:
    """A reassignment completes before its new replicas are in sync, and these count as in sync."""

    def complete_at_once(assignment: Assignment) -> Assignment:
        if not assignment.adding and not assignment.removing:
            return assignment
        stays = tuple(replica for replica in assignment.replicas if replica not in assignment.removing)
        return Assignment(stays, stays)

    code.replace(partition_change, "complete", complete_at_once)


@mutant(Scope.CLUSTER, budget=50)
def unclean_election_without_a_mark(code: Patches) -> None:
    """An uncleanly elected leader does not get the recovery state, as if it had all records."""

    def elect_without_mark(candidates: Candidates, election: Election, *, elr_enabled: bool) -> Elected:
        return replace(elect(candidates, election, elr_enabled=elr_enabled), is_unclean=False)

    code.replace(partition_change, "elect", elect_without_mark)


@mutant(Scope.CLUSTER, budget=200, faults=None)
def last_known_leaders_are_not_noted(code: Patches) -> None:
    """A partition that loses its leader does not keep its name, and then nobody leads if the ELR becomes empty, too."""
    code.replace(partition_change, "_last_known", lambda *_: None)


@mutant(Scope.CLUSTER, budget=200, faults=None)
def another_setting_empties_the_elr(code: Patches) -> None:
    """A change of unclean.leader.election.enable empties the ELR, in place of one of min.insync.replicas."""
    code.replace(incremental_configs, "MIN_ISR", "unclean.leader.election.enable")


# Images and snapshots


@mutant(Scope.CLUSTER, budget=200, faults=FAULTS)
def last_known_leaders_stay(code: Patches) -> None:
    """The image of a partition keeps its last known leaders, though a change names others."""

    def merge_but_last_known(old: Partition, record: PartitionChangeRecord) -> Partition:
        return replace(merge(old, record), last_known_elr=old.last_known_elr)

    code.replace(topics_delta, "merge", merge_but_last_known)


@mutant(Scope.DYNAMIC_CLUSTER, budget=200, faults=FAULTS)
def snapshots_lose_controlled_shutdowns(code: Patches) -> None:
    """A snapshot loses that a broker is in controlled shutdown."""
    sound = records.register_broker

    def register_broker(broker: Broker, metadata_version: int) -> records.Versioned:
        return sound(replace(broker, in_controlled_shutdown=False), metadata_version)

    code.replace(records, "register_broker", register_broker)


# Voter changes


@mutant(Scope.DYNAMIC_CLUSTER, budget=200, faults=FAULTS)
def only_the_first_voters_are_asked(code: Patches) -> None:
    """A broker sends its requests only to controllers that were voters at its first request."""
    sound = Replica.active_controller
    first: WeakKeyDictionary[Replica, tuple[int, ...]] = WeakKeyDictionary()

    def active_controller(replica: Replica, asker: Part) -> Target | None:
        target, voters = sound(replica, asker), replica.core.voters
        return target if target is None or target.node_id in first.setdefault(replica, voters.ids) else None

    code.replace(Replica, "active_controller", active_controller)
