"""Faults of a live quorum: voters that are down, paused, too many, too few, or that lost their disks."""

from __future__ import annotations

import json
import re
from typing import Final

from doctor_cluster import PATIENCE_SECONDS, SPARE, DoctorCluster, edit, kraft
from doctor_fault import BEFORE, LIVE, OFFLINE, Expected, Fault, Found, Words, matching
from support.interop.real_kafka import CLUSTER_ID, eventually

OTHER_CLUSTER: Final = "bXJKq1A8SQG97oAf89FrDw"


def live(*more: str) -> Words:
    """The doctor asks the controllers."""
    return lambda cluster: ("--bootstrap-controller", cluster.bootstrap, "--timeout", "3", *more)


def offline(*nodes: int) -> Words:
    """The doctor reads the configurations and directories of these nodes, or of all controllers with a directory."""

    def words(cluster: DoctorCluster) -> tuple[str, ...]:
        given = tuple(word for node in nodes for word in ("-c", str(cluster.config(node))))
        return ("--offline", *(given or cluster.configs()))

    return words


def printed(finding: Found, pattern: str) -> tuple[str, ...]:
    """The words of a command in the remedy, without `kraft`."""
    match = re.search(pattern, finding["remedy"])
    assert match is not None, finding["remedy"]
    return tuple(match[0].split()[1:])


# ------------------------------------------------------------------------------------------------------------- voters


def remove_three(cluster: DoctorCluster) -> None:
    cluster.until_done("quorum", "remove", "3")


def add_as_printed(cluster: DoctorCluster, finding: Found) -> None:
    """Carry out `kraft quorum add ID`; the controller must have fetched first."""
    words = printed(finding, r"kraft quorum add \d+")
    cluster.wait_until_caught_up(int(words[-1]))
    cluster.until_done(*words)


def add_three(cluster: DoctorCluster, finding: Found) -> None:
    """Carry out `kraft quorum add ID` for the voter that is missing."""
    cluster.wait_until_caught_up(3)
    cluster.until_done("quorum", "add", "3")


def three_votes(cluster: DoctorCluster) -> None:
    assert cluster.voters() == {1, 2, 3}


EVEN: Final = Fault(
    name="voters-even",
    cause="`kraft quorum remove 3` leaves two voters",
    make=remove_three,
    expected=(
        Expected(
            check="voters-even",
            way=LIVE,
            words=live(),
            subjects=("1", "2"),
            command="kraft quorum add ID",
            done="`kraft quorum add 3`",
            cure=add_three,
        ),
    ),
    afterwards=three_votes,
)


def start_spare(cluster: DoctorCluster) -> None:
    cluster.write_config(SPARE)
    cluster.format(SPARE, "--no-initial-controllers")
    cluster.start(SPARE)


def spare_votes(cluster: DoctorCluster) -> None:
    """The spare controller is a voter; then it goes."""
    assert cluster.voters() == {1, 2, 3, SPARE}
    cluster.until_done("quorum", "remove", str(SPARE))
    cluster.stop(SPARE)
    cluster.move_aside(cluster.data(SPARE))
    three_votes(cluster)
    observes = OBSERVER.expected[0]
    eventually(lambda: not matching(cluster, observes), "the spare controller fetches no more", PATIENCE_SECONDS)


OBSERVER: Final = Fault(
    name="observer",
    cause="controller 4 is formatted and started, and nothing makes it a voter",
    make=start_spare,
    expected=(
        Expected(
            check="observer-controller",
            way=LIVE,
            words=live(),
            nodes=(SPARE,),
            command="kraft quorum add 4",
            done="`kraft quorum add 4`",
            cure=add_as_printed,
        ),
    ),
    afterwards=spare_votes,
)


def second_quorum(cluster: DoctorCluster) -> None:
    """The spare controller leads a quorum of its own, with the same cluster id."""
    edit(cluster.write_config(SPARE), controller_quorum_bootstrap_servers=cluster.address(SPARE))
    cluster.format(SPARE, "--standalone")
    cluster.start(SPARE)
    eventually(lambda: _has_records(cluster), "the second quorum has a leader")


def _has_records(cluster: DoctorCluster) -> bool:
    done = kraft("quorum", "status", "--json", "--bootstrap-controller", cluster.address(SPARE))
    return done.code == 0 and json.loads(done.out)["highWatermark"] > 10


def give_up_second_quorum(cluster: DoctorCluster, finding: Found) -> None:
    """As printed: move the directory away, format without initial controllers, and add the node."""
    assert "kraft quorum add ID" in finding["remedy"]
    cluster.stop(SPARE)
    cluster.move_aside(cluster.data(SPARE))
    start_spare(cluster)
    cluster.wait_until_caught_up(SPARE)
    cluster.until_done("quorum", "add", str(SPARE))


TWO_QUORUMS: Final = Fault(
    name="two-quorums",
    cause="controller 4 is formatted with `--standalone` and the cluster's id, and leads alone",
    make=second_quorum,
    expected=(
        Expected(
            check="two-quorums",
            way=OFFLINE,
            words=offline(),
            nodes=(1, SPARE),
            command="kraft format CONFIG --cluster-id ID --no-initial-controllers",
            done="directory moved away, formatted with `--no-initial-controllers`, started, `kraft quorum add 4`",
            cure=give_up_second_quorum,
        ),
    ),
    afterwards=spare_votes,
)


# --------------------------------------------------------------------------------------------------- down and paused


def kill_three(cluster: DoctorCluster) -> None:
    cluster.kill(3)


def start_silent(cluster: DoctorCluster, finding: Found) -> None:
    """`kraft quorum status --why` names the voter, which is started."""
    why = cluster.until_done("quorum", "status", "--why")
    assert re.search(r"\b3\b.*refused", why), why
    cluster.start(3)


DOWN: Final = Fault(
    name="voter-down",
    cause="kill -9 of controller 3",
    make=kill_three,
    expected=(
        Expected(
            check="voter-endpoint-unreachable",
            way=LIVE,
            words=live(),
            nodes=(3,),
            command="kraft quorum status --why",
            done="`kraft quorum status --why` names controller 3, which is started",
            cure=start_silent,
        ),
    ),
    afterwards=lambda cluster: cluster.wait_until_caught_up(1, 2, 3),
)


def pause_three(cluster: DoctorCluster) -> None:
    cluster.pause(3)


def resume_three(cluster: DoctorCluster, finding: Found) -> None:
    cluster.resume(3)
    cluster.wait_until_caught_up(1, 2, 3)


def is_safe(cluster: DoctorCluster, *step: str) -> bool:
    """Whether the doctor permits a step."""
    safe: bool = cluster.examine((*live("--before", *step)(cluster),))["before"]["safe"]
    return safe


PAUSED: Final = Fault(
    name="voter-paused",
    cause="SIGSTOP of controller 3, for half a minute",
    make=pause_three,
    expected=(
        Expected(
            check="before-restart",
            way=BEFORE,
            words=live("--before", "restart", "2"),
            nodes=(2,),
            severity="fatal",
            command="Wait until all voters have caught up: kraft quorum replication",
            done="SIGCONT; `kraft quorum replication` until controller 3 has caught up",
            cure=resume_three,
        ),
        Expected(
            check="before-remove-voter",
            way=BEFORE,
            words=live("--before", "remove-voter", "2"),
            nodes=(2,),
            severity="fatal",
            command="Start or re-sync the other voters first: kraft quorum replication",
            done="the same step",
        ),
        Expected(
            check="voter-lag",
            way=LIVE,
            words=live(),
            nodes=(3,),
            severity="error",
            command="Restart no other voter now; watch kraft quorum replication",
            done="the same step",
        ),
    ),
    afterwards=three_votes,
)


def kill_two(cluster: DoctorCluster) -> None:
    cluster.kill(2, 3)


def start_as_printed(cluster: DoctorCluster, finding: Found) -> None:
    """Start the controllers that the remedy names, then carry its command out."""
    named = [
        node
        for node in (1, 2, 3)
        if re.search(rf"{re.escape(cluster.address(node))}\b", ", ".join(finding["subjects"]))
    ]
    assert named == [2, 3], finding
    cluster.start(*named)
    words = printed(finding, r"kraft quorum status --why --bootstrap-controller \S+")
    eventually(lambda: kraft(*words).code == 0, "there is a leader")


NO_LEADER: Final = Fault(
    name="no-leader",
    cause="kill -9 of controllers 2 and 3",
    make=kill_two,
    expected=(
        Expected(
            check="no-leader",
            way=LIVE,
            words=live(),
            command="{n2}, {n3}, then kraft quorum status --why --bootstrap-controller {bootstrap}",
            done="controllers 2 and 3 started; `kraft quorum status --why` shows the leader",
            cure=start_as_printed,
        ),
    ),
    afterwards=lambda cluster: cluster.wait_until_caught_up(1, 2, 3),
)


# -------------------------------------------------------------------------------------------------------------- disks


def wrong_disk(cluster: DoctorCluster) -> None:
    """A new disk for controller 3, formatted for another cluster."""
    cluster.stop(3)
    cluster.move_aside(cluster.data(3))
    cluster.format(3, "--no-initial-controllers", cluster_id=OTHER_CLUSTER)


def format_again(cluster: DoctorCluster, finding: Found) -> None:
    cluster.move_aside(cluster.data(3))
    cluster.format(3, "--no-initial-controllers", cluster_id=CLUSTER_ID)


def start_empty(cluster: DoctorCluster, finding: Found) -> None:
    """The voters with a log lead, as the printed command shows; then the empty one starts."""
    assert cluster.status()["leaderId"] in {1, 2}
    cluster.start(3)


def remove_and_add(cluster: DoctorCluster, finding: Found) -> None:
    """Carry both printed commands out."""
    cluster.until_done(*printed(finding, r"kraft quorum remove 3 --directory-id [\w-]+"))
    cluster.wait_until_caught_up(3)
    cluster.until_done(*printed(finding, r"kraft quorum add 3"))


NEW_DISK: Final = Fault(
    name="new-disk",
    cause="the directory of controller 3 is lost; the new one is formatted for another cluster",
    make=wrong_disk,
    expected=(
        Expected(
            check="cluster-id-mismatch",
            way=OFFLINE,
            words=offline(),
            nodes=(3,),
            command="move its directory away, then kraft format CONFIG --cluster-id ID --no-initial-controllers",
            done="directory moved away, `kraft format n3.properties --cluster-id ID --no-initial-controllers`",
            cure=format_again,
        ),
        Expected(
            check="empty-voter",
            way=OFFLINE,
            words=offline(),
            nodes=(3,),
            command="Start the voters with a log first, wait until one leads (kraft quorum status)",
            done="`kraft quorum status` shows the leader; then controller 3 is started",
            cure=start_empty,
            follows=True,
        ),
        Expected(
            check="directory-id-not-voter",
            way=LIVE,
            words=live(),
            nodes=(3,),
            command="kraft quorum remove 3 --directory-id ",
            done="`kraft quorum remove 3 --directory-id OLD`, `kraft quorum add 3`",
            cure=remove_and_add,
            follows=True,
        ),
    ),
    afterwards=three_votes,
)

QUORUM_FAULTS: Final = (EVEN, DOWN, PAUSED, NO_LEADER, NEW_DISK, TWO_QUORUMS, OBSERVER)
