"""Faults of a voter that is stopped, while the other two lead: lost, damaged, old files; another address."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
from functools import partial
from pathlib import Path
from typing import Final

from google_crc32c import value as crc32c

from doctor_cluster import PATIENCE_SECONDS, DoctorCluster, edit, kraft, setting, told
from doctor_fault import LIVE, OFFLINE, Act, Expected, Fault, Found, wait_for
from faults_quorum import live, offline, printed
from support.interop.real_kafka import eventually
from support.loopback import free_ports

NODE: Final = 3
"""The voter with the faults."""
BATCH_HEAD: Final = struct.Struct(">qi")
CRC_AT: Final = 17
CHECKED_AT: Final = 21
BASE_TIMESTAMP_AT: Final = 27
ENOUGH_SEGMENTS: Final = 4


def stop_voter(cluster: DoctorCluster) -> None:
    """Stop the voter, if it runs."""
    if NODE in cluster.running:
        cluster.stop(NODE)


def segments(cluster: DoctorCluster) -> list[Path]:
    """The segments of the voter, in order."""
    return sorted(cluster.log(NODE).glob("*.log"))


def snapshots(cluster: DoctorCluster) -> list[Path]:
    """The snapshots of the voter, in order."""
    return sorted(cluster.log(NODE).glob("*.checkpoint"))


def fill(cluster: DoctorCluster) -> None:
    """Wait until the voter has several segments and snapshots."""
    eventually(lambda: len(segments(cluster)) >= ENOUGH_SEGMENTS, "segments are rolled", PATIENCE_SECONDS)
    eventually(lambda: len(snapshots(cluster)) > 1, "snapshots are written", PATIENCE_SECONDS)


def shell(command: str) -> None:
    """Run a printed command with the shell."""
    subprocess.run(["/bin/sh", "-ec", command], check=True, capture_output=True)


def directories(cluster: DoctorCluster) -> tuple[str, ...]:
    """The log directories of the voters."""
    return tuple(str(cluster.data(node)) for node in cluster.first_voters)


def replace_log(cluster: DoctorCluster, source: Path) -> None:
    """Put a copy of another metadata log in place of the voter's; the vote stays."""
    damaged = cluster.move_aside(cluster.log(NODE))
    cluster.log(NODE).mkdir()
    for pattern in ("*.log", "*.checkpoint", "leader-epoch-checkpoint", "partition.metadata"):
        for file in sorted(source.glob(pattern)):
            shutil.copy2(file, cluster.log(NODE))
    shutil.copy2(damaged / "quorum-state", cluster.log(NODE))


def replace_by_best(cluster: DoctorCluster, finding: Found) -> None:
    """`kraft recover plan` names the best copy, which replaces the voter's."""
    assert "kraft recover plan DIR" in finding["remedy"]
    plan = json.loads(told("recover", "plan", "--live", "--json", *directories(cluster)))
    assert plan["best"] in {"n1", "n2"}, plan["best"]
    replace_log(cluster, cluster.root / plan["best"] / cluster.log(NODE).name)


def start_and_catch_up(cluster: DoctorCluster, finding: Found) -> None:
    """Start the voter and wait until its lag is gone."""
    cluster.start(NODE)
    cluster.wait_until_caught_up(1, 2, 3)


def voter(
    name: str,
    cause: str,
    make: Act,
    *expected: Expected,
    afterwards: Act = lambda cluster: None,
) -> Fault:
    """A fault of the voter, which is stopped first."""

    def stopped(cluster: DoctorCluster) -> None:
        stop_voter(cluster)
        make(cluster)

    return Fault(name=name, cause=cause, make=stopped, expected=expected, afterwards=afterwards)


on_voter = partial(Expected, way=OFFLINE, words=offline(), nodes=(NODE,))


# --------------------------------------------------------------------------------------------------------- old copies


def old_backup(cluster: DoctorCluster) -> None:
    """The voter's log is replaced by a backup from before the last election."""
    fill(cluster)
    backup = cluster.aside / "backup"
    shutil.copytree(cluster.log(NODE), backup)
    status = cluster.status()
    cluster.pause(status["leaderId"])
    others = ",".join(cluster.address(node) for node in cluster.first_voters if node != status["leaderId"])

    def is_elected() -> bool:
        done = kraft("quorum", "status", "--json", "--timeout", "2", "--bootstrap-controller", others)
        return done.code == 0 and json.loads(done.out)["leaderEpoch"] > status["leaderEpoch"]

    eventually(is_elected, "another leader")
    cluster.resume(status["leaderId"])
    cluster.wait_until_caught_up(1, 2, 3)
    stop_voter(cluster)
    replace_log(cluster, backup)


STALE: Final = Fault(
    name="old-backup",
    cause="the log of controller 3 is restored from a backup that is older than the last election",
    make=old_backup,
    expected=(
        on_voter(
            check="stale-copy",
            severity="warn",
            command="Start the node and wait until its lag is 0: kraft quorum replication",
            done="controller 3 started; `kraft quorum replication` until its lag is gone",
            cure=start_and_catch_up,
        ),
    ),
)


# ------------------------------------------------------------------------------------------------------------ the log


def lose_segment(cluster: DoctorCluster) -> None:
    cluster.move_aside(segments(cluster)[1])


LOST_SEGMENT: Final = voter(
    "segment-lost",
    "the second segment of the log is gone",
    lose_segment,
    on_voter(
        check="log-gap",
        command="With a healthy majority replace its metadata directory",
        done="the directory replaced by a copy of controller 1's; the vote stays",
        cure=lambda cluster, finding: replace_log(cluster, cluster.log(1)),
    ),
)


def lose_start(cluster: DoctorCluster) -> None:
    for file in (*snapshots(cluster), segments(cluster)[0]):
        cluster.move_aside(file)


LOST_START: Final = voter(
    "start-lost",
    "all snapshots and the first segment are gone",
    lose_start,
    on_voter(
        check="log-start-uncovered",
        command="kraft recover plan DIR",
        done="`kraft recover plan` names the best copy, which replaces the log",
        cure=replace_by_best,
    ),
)


def cut_snapshot(cluster: DoctorCluster) -> None:
    newest = snapshots(cluster)[-1]
    data = newest.read_bytes()
    newest.chmod(0o600)
    newest.write_bytes(data[:-20])


def move_snapshot(cluster: DoctorCluster, finding: Found) -> None:
    """The log is whole from offset 0, so the snapshot moves away."""
    assert segments(cluster)[0].name.startswith("0" * 20)
    cluster.move_aside(snapshots(cluster)[-1])


CUT_SNAPSHOT: Final = voter(
    "snapshot-cut",
    "the newest snapshot lacks its last 20 bytes",
    cut_snapshot,
    on_voter(
        check="snapshot-damaged",
        command="If the log begins at or before the snapshot's end and is whole, move the snapshot away",
        done="the snapshot moved away",
        cure=move_snapshot,
    ),
)


def change_batch(cluster: DoctorCluster) -> None:
    """Another time in a batch of the first segment, with the right checksum: no reader of one copy notices."""
    path = segments(cluster)[0]
    data = bytearray(path.read_bytes())
    start = 0
    for _ in range(3):
        start += BATCH_HEAD.size + BATCH_HEAD.unpack_from(data, start)[1]
    end = start + BATCH_HEAD.size + BATCH_HEAD.unpack_from(data, start)[1]
    (when,) = struct.unpack_from(">q", data, start + BASE_TIMESTAMP_AT)
    struct.pack_into(">q", data, start + BASE_TIMESTAMP_AT, when - 1)
    struct.pack_into(">I", data, start + CRC_AT, crc32c(bytes(data[start + CHECKED_AT : end])))
    path.write_bytes(data)


def replace_diverged(cluster: DoctorCluster, finding: Found) -> None:
    """`kraft check` shows the first difference; the two copies that agree win."""
    checked = kraft("check", *directories(cluster))
    assert checked.code == 1, checked
    offset = finding["subjects"][0].removeprefix("offset ")
    assert re.search(rf"\b{offset}\b", checked.out), checked.out
    replace_log(cluster, cluster.log(1))


DIVERGED: Final = voter(
    "log-edited",
    "a batch of the log is changed, with a right checksum",
    change_batch,
    on_voter(
        check="diverged-log",
        command="Never start both. kraft check DIR… shows the first difference",
        done="`kraft check` shows the offset; the log replaced by the copy on which two controllers agree",
        cure=replace_diverged,
    ),
)


def lose_segments(cluster: DoctorCluster) -> None:
    for file in segments(cluster):
        cluster.move_aside(file)


def check_and_start(cluster: DoctorCluster, finding: Found) -> None:
    """`kraft check` compares the ends, then the voter starts and fetches what its copy lacks."""
    assert "kraft check DIR" in finding["remedy"]
    checked = kraft("check", *directories(cluster))
    assert checked.code in {0, 1}, checked
    start_and_catch_up(cluster, finding)


NO_SEGMENTS: Final = voter(
    "segments-lost",
    "every segment is gone, and the snapshots are there",
    lose_segments,
    on_voter(
        check="log-missing",
        command="Compare the end with the other voters before the start: kraft check DIR",
        done="`kraft check`; controller 3 started, and it caught up",
        cure=check_and_start,
    ),
)


def power_loss(cluster: DoctorCluster) -> None:
    """Half a batch at the end of the log, and quorum-state as it was at the format."""
    last = segments(cluster)[-1]
    data = segments(cluster)[0].read_bytes()
    size = BATCH_HEAD.size + BATCH_HEAD.unpack_from(data)[1]
    with last.open("ab") as file:
        file.write(data[: size // 2])
    path = cluster.log(NODE) / "quorum-state"
    path.write_text(re.sub(r'"leaderEpoch":\d+', '"leaderEpoch":0', path.read_text()))


POWER_LOSS: Final = voter(
    "power-loss",
    "half a batch at the end of the log, and quorum-state of an older epoch",
    power_loss,
    on_voter(
        check="log-torn-tail",
        command="Compare the ends of all copies before the start: kraft check DIR",
        done="`kraft check`; controller 3 started, and it caught up",
        cure=check_and_start,
    ),
    on_voter(
        check="quorum-state-behind-log",
        command="Compare with the other voters: kraft check DIR",
        done="the same step",
    ),
)


# -------------------------------------------------------------------------------------------------------- access rights


def open_credentials(cluster: DoctorCluster) -> None:
    password = cluster.root / "alice.txt"
    password.write_text("hidden\n")
    for directory in (cluster.data(NODE), cluster.log(NODE)):
        directory.chmod(0o755)
    for file in (*segments(cluster), *snapshots(cluster)):
        file.chmod(0o644)
    cluster.live("users", "set", "alice", "--password-file", str(password))


OPEN_CREDENTIALS: Final = voter(
    "credentials-readable",
    "`kraft users set alice`; segments and snapshots have mode 644, their directories 755",
    open_credentials,
    on_voter(
        check="file-modes",
        command="chmod 600 {root}/n3/__cluster_metadata-0/*; chmod 700 {root}/n3",
        done="the printed `chmod 600 DIR/__cluster_metadata-0/*; chmod 700 DIR`",
        cure=lambda cluster, finding: shell(finding["remedy"]),
    ),
)


# ------------------------------------------------------------------------------------------------------- other address


def move_to_other_port(cluster: DoctorCluster) -> None:
    cluster.ports[NODE] = free_ports(1)[0]
    cluster.write_config(NODE)


OTHER_ADDRESS: Final = voter(
    "other-address",
    "controller 3 is configured with another port than the voter set has",
    move_to_other_port,
    on_voter(
        check="voters-host-differs",
        command="While a leader is there, restart the node: it updates its voter record",
        done="controller 3 restarted: the leader writes the new address into the voter set",
        cure=start_and_catch_up,
    ),
)


def remove_and_auto_join(cluster: DoctorCluster) -> None:
    edit(cluster.config(NODE), controller_quorum_auto_join_enable="true")
    cluster.until_done("quorum", "remove", str(NODE))


def without_auto_join(cluster: DoctorCluster) -> None:
    """The voter starts as an observer, stays one, and is added again."""
    cluster.start(NODE)
    cluster.wait_until_caught_up(NODE)
    observed = Expected(
        check="observer-controller", way=LIVE, words=live(), nodes=(NODE,), command="kraft quorum add 3", done=""
    )
    cluster.until_done(*printed(wait_for(cluster, observed), r"kraft quorum add 3"))
    assert cluster.voters() == {1, 2, 3}
    assert setting(cluster.config(NODE), "controller.quorum.auto.join.enable") == "false"


AUTO_JOIN: Final = voter(
    "auto-join",
    "`kraft quorum remove 3`, and the configuration of controller 3 joins automatically",
    remove_and_auto_join,
    on_voter(
        check="auto-join-rejoin",
        command="set controller.quorum.auto.join.enable=false, before kraft quorum remove ID",
        done="controller.quorum.auto.join.enable=false; started, the controller stays an observer",
        cure=lambda cluster, finding: edit(cluster.config(NODE), controller_quorum_auto_join_enable="false"),
    ),
    afterwards=without_auto_join,
)

FILE_FAULTS: Final = (
    STALE,
    LOST_SEGMENT,
    LOST_START,
    CUT_SNAPSHOT,
    DIVERGED,
    OPEN_CREDENTIALS,
    NO_SEGMENTS,
    POWER_LOSS,
)
"""Every one leaves the voter able to start, and the last two start it."""
ADDRESS_FAULTS: Final = (OTHER_ADDRESS, AUTO_JOIN)
