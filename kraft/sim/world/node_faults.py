"""Faults of one node that are no input to the node: crashes, failures and damage of its disk, and another clock.

Each function returns False if the node or its disk cannot have the fault now.
"""

from __future__ import annotations

from random import Random

from kraft.sim.world.actions import (
    Crash,
    CrashSoon,
    DamageDisk,
    FailDisk,
    FillDirectory,
    LimitDisk,
    Move,
    SetClock,
    SlowDown,
    Wipe,
)
from kraft.sim.world.disk_damage import Damage
from kraft.sim.world.host import Host
from kraft.sim.world.simulated_quorum import DAMAGE_SHOWS_MS, SimulatedQuorum


def crash(quorum: SimulatedQuorum, action: Crash) -> bool:
    """Crash a running node."""
    host = quorum.hosts[action.node]
    if not host.is_running:
        return False
    end_life(quorum, host, action.seed)
    return True


def end_life(quorum: SimulatedQuorum, host: Host, seed: int) -> None:
    """End the life of a node; the seed draws the lost data of its disk."""
    host.is_running = host.is_disk_failing = False
    host.was_disk_limited = host.is_disk_limited
    host.held = None
    quorum.signs.died(host.member.node_id)
    host.member.crash(Random(seed))
    host.flushing.clear()
    host.waiting.clear()
    host.submitted.clear()
    host.administered.clear()
    abandoned, host.asked = host.asked, {}
    for exchange, _ in abandoned.values():
        quorum.driver.on_abandoned(exchange)
    quorum.trace.add(quorum.now_ms, host.member.node_id, "crashed")


def crash_soon(quorum: SimulatedQuorum, action: CrashSoon) -> bool:
    """Crash a node in the middle of one of its next steps."""
    host = quorum.hosts[action.node]
    host.crash_seed = action.seed
    host.member.crash_soon(action.operations)
    return True


def fail_disk(quorum: SimulatedQuorum, action: FailDisk) -> bool:
    """Let one of the next operations on the disk of a running node fail."""
    host = quorum.hosts[action.node]
    if not host.is_running:
        return False
    host.crash_seed = action.seed
    host.is_disk_failing = True
    host.member.fail_soon(action.operations)
    return True


def limit_disk(quorum: SimulatedQuorum, action: LimitDisk) -> bool:
    """Limit the free space of a disk, or end the limit."""
    host = quorum.hosts[action.node]
    host.crash_seed = action.seed
    host.is_disk_limited = action.free_bytes is not None
    host.was_disk_limited |= host.is_disk_limited
    host.member.limit_disk(action.free_bytes)
    return True


def fill_directory(quorum: SimulatedQuorum, action: FillDirectory) -> bool:
    """Let the disk of one log directory be full, or have room again."""
    host = quorum.hosts[action.node]
    if host.full_directory == action.path:
        return False
    host.full_directory = action.path
    host.member.fill_directory(action.path)
    return True


def damage_disk(quorum: SimulatedQuorum, action: DamageDisk) -> bool:
    """Damage a disk permanently, if the quorum bears the loss."""
    node_id, what, losses = action.node, action.what, quorum.disk_losses
    host = quorum.hosts[node_id]
    if not losses.is_bearable(node_id) or (host.is_running and what.needs_stop):
        return False
    damaged = host.member.damage(what, Random(action.seed))
    if not damaged:
        return False
    if losses.is_new_voter(what):
        losses.end(node_id)
        quorum.has_forgotten = True
    else:
        losses.damage(node_id)
    quorum.invariants.nodes.damaged(node_id)
    quorum.damage_until_ms[node_id] = quorum.now_ms + DAMAGE_SHOWS_MS
    quorum.trace.add(quorum.now_ms, node_id, f"{what}: {damaged}")
    return True


def wipe(quorum: SimulatedQuorum, action: Wipe) -> bool:
    """Give a stopped node an empty disk."""
    host = quorum.hosts[action.node]
    if host.is_running:
        return False
    host.member.damage(Damage.WIPED, Random(action.seed))
    quorum.has_forgotten = True
    quorum.trace.add(quorum.now_ms, action.node, f"disk lost; now {host.member.key.directory_id}")
    return True


def move(quorum: SimulatedQuorum, action: Move) -> bool:
    """Let a stopped node listen at another port."""
    host = quorum.hosts[action.node]
    if host.is_running:
        return False
    host.member.move(action.port)
    quorum.trace.add(quorum.now_ms, action.node, f"moves to port {action.port}")
    return True


def set_clock(quorum: SimulatedQuorum, action: SetClock) -> bool:
    """Set the clock of a node. The clock of a running node never goes back."""
    node_id, host = action.node, quorum.hosts[action.node]
    offset_ms = max(action.offset_ms, quorum.clock_offset_ms(node_id)) if host.is_running else action.offset_ms
    host.clock_offset_ms, host.clock_drift, host.clock_set_ms = offset_ms, action.drift, quorum.now_ms
    quorum.check_quorum.disturbed(node_id)
    quorum.trace.add(quorum.now_ms, node_id, f"clock {offset_ms} {action.drift}")
    if host.is_running:
        quorum.driver.on_stepped(node_id)
    return True


def slow_down(quorum: SimulatedQuorum, action: SlowDown) -> bool:
    """Let a node need this time for each record from now on."""
    host = quorum.hosts[action.node]
    host.record_us = action.record_us
    host.member.measure(is_on=action.record_us > 0)
    quorum.trace.add(quorum.now_ms, action.node, f"a record takes {action.record_us} us")
    return True
