"""The descriptions of the checks of directories, identities and logs."""

from __future__ import annotations

from typing import Final

from kraft.operate.doctor.facts.finding import Described
from metadata_log.zookeeper_mode import MIGRATE_FIRST

_OTHER_COPY: Final = "kraft recover plan DIR… over the directories of all nodes shows the best other copy"

DIRECTORY_CHECKS: Final = (
    Described(
        id="zookeeper-mode",
        title="The node is in ZooKeeper mode: zookeeper.connect is set without process.roles, or meta.properties is of "
        "version 0 with a broker.id.",
        severity="fatal",
        consequence="The metadata is in ZooKeeper. Neither Kafka 4 nor kraft serve starts on the node, and no other "
        "check is about it.",
        remedy=MIGRATE_FIRST.rstrip("."),
        source="KIP-866; Kafka 4.3.1, tried: exit 1",
    ),
    Described(
        id="meta-missing",
        title="A configured log directory has no meta.properties.",
        severity="fatal; warn for a further directory of a broker, which Kafka formats at the start",
        consequence="The node does not start: No readable meta.properties files found.",
        remedy="Mount the right volume. Format only a directory without a log: kraft format CONFIG --cluster-id ID",
        source="Kafka 4.3.1, tried: exit 1; MetaPropertiesEnsemble.verify",
    ),
    Described(
        id="meta-version",
        title="The version of meta.properties is not 1.",
        severity="fatal; warn for version 0 with a broker.id",
        consequence="A node in KRaft mode does not start on the directory.",
        remedy="Version 0 is the format of ZooKeeper mode: use the directory that the node had in KRaft mode. Start a "
        "higher version with the newer software that wrote it",
        source="Kafka 4.3.1, tried with 0 and 2: exit 1",
    ),
    Described(
        id="node-id-mismatch",
        title="node.id of the configuration differs from that of meta.properties.",
        severity="fatal",
        consequence="The node does not start: Stored node id … doesn't match previous node id …",
        remedy="Compare all nodes: volumes may be exchanged. Correct log.dirs or node.id; never edit meta.properties",
        source="Kafka 4.3.1, tried: exit 1",
    ),
    Described(
        id="cluster-id-mismatch",
        title="cluster.id differs between nodes, or between the log directories of one node.",
        severity="fatal",
        consequence="The node starts alone, and every other node refuses its requests: INCONSISTENT_CLUSTER_ID.",
        remedy="The minority is usually the wrongly formatted one: move its directory away, then "
        "kraft format CONFIG --cluster-id ID --no-initial-controllers",
        source="Kafka 4.3.1, tried: boots and leads without a message; strimzi#10722",
    ),
    Described(
        id="cluster-id-garbage",
        title="cluster.id is not 16 bytes of URL-safe base64.",
        severity="warn",
        consequence="Servers accept the id; some tools reject it.",
        remedy="Leave the id of a running cluster. For a new cluster: kraft random-uuid",
        source="Kafka's Uuid",
    ),
    Described(
        id="directory-id-missing",
        title="meta.properties has no directory.id, or an empty or reserved one.",
        severity="fatal for a controller with kraft.version 1, else warn",
        consequence="The node makes a new random id at its start. As a voter of a dynamic quorum it is then an "
        "observer for ever, without a message.",
        remedy="Write the id that the VotersRecord names for this node back into meta.properties",
        source="Kafka 4.3.1, tried: alive, no leader, no error line; KIP-853",
    ),
    Described(
        id="directory-id-not-voter",
        title="The voter set names this node with another directory id.",
        severity="fatal if the majority needs the node, else error",
        consequence="The node runs, and neither votes nor counts for a majority.",
        remedy="Restore directory.id if this is the voter's own log. Otherwise, while a leader is there: "
        "kraft quorum remove ID, then kraft quorum add ID",
        source="Kafka 4.3.1, tried: alive, no leader, silent; KIP-853",
    ),
    Described(
        id="directory-id-duplicate",
        title="Two directories have one directory.id.",
        severity="fatal",
        consequence="Two replicas take themselves for one voter: votes and acknowledgements count for both.",
        remedy="Start only one of the two. A clone gets an id of its own: kraft random-uuid",
        source="Kafka 4.3.1, tried within one node: exit 1; KIP-853",
    ),
    Described(
        id="node-id-duplicate",
        title="Two directories of different nodes have one node id.",
        severity="error",
        consequence="One of them is stale. Started together they vote twice under one id.",
        remedy="Compare the ends of both logs, keep the one that the voter set names, and never start both",
        source="KIP-853",
    ),
    Described(
        id="log-dir-missing-metadata",
        title="The metadata log lies in another log directory than the configuration says.",
        severity="fatal",
        consequence="The node starts with an empty metadata log and forgets its vote.",
        remedy="Set metadata.log.dir to the directory with __cluster_metadata-0, or restore the order of log.dirs",
        source="Kafka's KafkaConfig.metadataLogDir",
    ),
    Described(
        id="empty-voter",
        title="A voter is formatted and has no log, while other nodes have one.",
        severity="fatal if fewer than a majority of the voters have a log, else warn",
        consequence="A majority of empty voters elects a leader with an empty log. Brokers then rename every "
        "partition to -stray, and the survivor truncates the last good copy.",
        remedy="Start the voters with a log first, wait until one leads (kraft quorum status), then start the empty "
        "ones. Without a majority of logs: kraft recover plan DIR…",
        source="KAFKA-14205, KIP-856; Kafka 4.3.1, tried: the topic list is empty after half a minute",
    ),
    Described(
        id="quorum-state-unreadable",
        title="quorum-state is empty, no JSON, or of an unknown version.",
        severity="fatal",
        consequence="The node does not start.",
        remedy="Restore the file. Removing it is safe only while another node proves the epoch: the vote is forgotten",
        source="Kafka 4.3.1, tried: exit 1",
    ),
    Described(
        id="quorum-state-missing",
        title="The log has records, and quorum-state is missing.",
        severity="error",
        consequence="The node takes the epoch from its log and forgets its vote: it may vote twice in one epoch.",
        remedy="Restore the file, or start this node only after the others have a leader in a higher epoch",
        source="Kafka 4.3.1, tried: boots with a warning",
    ),
    Described(
        id="quorum-state-behind-log",
        title="The epoch of quorum-state is below the last epoch of the log.",
        severity="warn",
        consequence="Harmless alone. The file is probably restored from an older copy.",
        remedy="Compare with the other voters: kraft check DIR…",
        source="Kafka 4.3.1, tried: boots with a warning",
    ),
    Described(
        id="quorum-state-far-ahead",
        title="The epoch of quorum-state is more than 100 above every other known epoch.",
        severity="info",
        consequence="Many elections happened without a leader; the node forces its epoch on the others.",
        remedy="See endless-elections: kraft doctor explain endless-elections",
        source="KIP-996; Kafka 4.3.1, tried: pre-votes keep epochs still",
    ),
    Described(
        id="log-gap",
        title="Offsets of the log do not continue, or a segment is missing.",
        severity="fatal",
        consequence="Kafka starts on the log and even leads with it: metadata is silently wrong.",
        remedy="Do not start the node on this log. With a healthy majority replace its metadata directory; otherwise "
        + _OTHER_COPY,
        source="Kafka 4.3.1, tried: boots and leads with a gap and with a missing segment",
    ),
    Described(
        id="log-start-uncovered",
        title="The log begins above offset 0, and no snapshot holds what came before.",
        severity="fatal",
        consequence="The metadata below the first offset is lost: the image cannot be built.",
        remedy=_OTHER_COPY,
        source="KAFKA-14240; Kafka 4.3.1, tried",
    ),
    Described(
        id="log-missing",
        title="There are snapshots and no segment.",
        severity="warn",
        consequence="Kafka continues at the end of the newest snapshot; later records of this copy are gone.",
        remedy="Compare the end with the other voters before the start: kraft check DIR…",
        source="Kafka 4.3.1, tried",
    ),
    Described(
        id="snapshot-damaged",
        title="The newest snapshot has no header or no footer, or a CRC is wrong.",
        severity="fatal",
        consequence="The node ends at its start.",
        remedy="If the log begins at or before the snapshot's end and is whole, move the snapshot away; otherwise "
        + _OTHER_COPY,
        source="Kafka 4.3.1, tried: exit 1",
    ),
    Described(
        id="log-torn-tail",
        title="Bytes follow the last good batch.",
        severity="warn",
        consequence="Kafka cuts them. If the disk lied about an fsync, committed records are cut, too.",
        remedy="Compare the ends of all copies before the start: kraft check DIR…",
        source="Kafka 4.3.1, tried: boots",
    ),
    Described(
        id="unknown-record",
        title="The log has a record of a type or version that this software does not know.",
        severity="fatal for a type, warn for a version",
        consequence="A node of this version ends on a record of an unknown type. Newer software wrote the record.",
        remedy="Start the newer software; do not downgrade",
        source="Kafka 4.3.1, tried: an unknown type is fatal, an unknown version is read as far as known",
    ),
    Described(
        id="diverged-log",
        title="Two copies have different bytes at one offset and epoch.",
        severity="fatal",
        consequence="No legal quorum writes that: a copy was edited, or epochs were reused. Kafka does not notice, and "
        "the copies stay different for ever.",
        remedy="Never start both. kraft check DIR… shows the first difference; then " + _OTHER_COPY,
        source="Raft, log matching; Kafka 4.3.1, tried: no error anywhere",
    ),
    Described(
        id="stale-copy",
        title="A voter's copy ends long before the best one: in an older epoch, or 10,000 records or 10 minutes "
        "earlier.",
        severity="warn; info for seconds within one epoch",
        consequence="The copy cannot help after a loss of other voters.",
        remedy="Start the node and wait until its lag is 0: kraft quorum replication",
        source="KIP-595",
    ),
    Described(
        id="file-modes",
        title="Every user of the host can read a file with secrets, or the node cannot write its directory.",
        severity="warn; fatal if the owner cannot write",
        consequence="Passwords, keys, SCRAM credentials and tokens are open to every account of the host.",
        remedy="chmod 600 FILE; chmod 700 DIR; chown -R to the user of the node",
        source="Snapshots and segments hold SCRAM credentials and tokens",
    ),
    Described(
        id="disk-headroom",
        title="The disk of the metadata log is nearly full.",
        severity="error",
        consequence="A full metadata disk ends the controller.",
        remedy="Make room or grow the volume: twice the log and the newest snapshot, at least 1 GiB and 5 % of inodes",
        source="Kafka's FaultHandler: a failed write of the metadata log is fatal",
    ),
    Described(
        id="metadata-retention",
        title="The metadata log is deleted very early, or never on a small disk.",
        severity="warn",
        consequence="Followers that were away fetch whole snapshots, or the disk fills.",
        remedy="Set metadata.max.retention.bytes=104857600 and metadata.max.retention.ms=604800000",
        source="KIP-630",
    ),
    Described(
        id="noop-gap",
        title="For more than 5 seconds no record was written in the middle of the log.",
        severity="warn; info within one epoch",
        consequence="In that time no controller was active.",
        remedy="Look for the cause at that time in the log files of the controllers: kraft history DIR",
        source="KIP-835: an active controller writes a NoOpRecord twice a second",
    ),
    Described(
        id="clock-skew",
        title="Time goes back by more than a second where a new leader begins.",
        severity="warn",
        consequence="Tokens and retention follow wrong clocks; times in histories mislead.",
        remedy="Synchronize the clocks of the controllers: chronyc tracking",
        source="Timestamps are those of the leader",
    ),
    Described(
        id="endless-elections",
        title="Leaders changed more than five times in ten minutes, or epochs rise without a leader.",
        severity="error; info if that was more than an hour before the end of the log",
        consequence="While there is no leader, no metadata changes.",
        remedy="Compare controller.quorum.fetch.timeout.ms with pauses and fsync times of the controllers; "
        "kraft quorum status --why",
        source="strimzi#11613",
    ),
)
