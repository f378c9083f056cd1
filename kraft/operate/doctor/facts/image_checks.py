"""The descriptions of the checks of the metadata, of brokers' directories, and of planned operations."""

from __future__ import annotations

from typing import Final

from kraft.operate.doctor.facts.finding import Described

IMAGE_CHECKS: Final = (
    Described(
        id="broker-fenced",
        title="A registered broker is fenced and does not shut down.",
        severity="error",
        consequence="The broker leads no partition and is in no ISR.",
        remedy="Start the broker, or repair its way to the controllers: kraft brokers describe ID",
        source="KIP-631",
    ),
    Described(
        id="broker-never-returned",
        title="A broker has been fenced for more than 7 days and still has replicas.",
        severity="warn",
        consequence="Its partitions have one replica less for good.",
        remedy="kraft reassign plan --topic T --to B,B > plan.json; kraft reassign plan.json --wait; "
        "kraft brokers unregister ID",
        source="KIP-631",
    ),
    Described(
        id="offline-partitions",
        title="A partition has no leader.",
        severity="error",
        consequence="Clients can neither read nor write the partition.",
        remedy="Start a broker of the ISR or ELR. The last resort loses records: kraft elect unclean "
        "--topic-partition T:P",
        source="KIP-966",
    ),
    Described(
        id="under-min-isr",
        title="A partition has fewer replicas in sync than min.insync.replicas.",
        severity="error",
        consequence="Writes with acks=all fail.",
        remedy="Start the missing replicas' brokers: kraft brokers list",
        source="Kafka's min.insync.replicas",
    ),
    Described(
        id="under-replicated",
        title="A partition has replicas that are not in sync, without a reassignment.",
        severity="warn",
        consequence="The next failure can take the partition below min.insync.replicas.",
        remedy="Start the missing brokers, or look for slow disks and networks: kraft brokers list",
        source="Kafka's UnderReplicatedPartitions",
    ),
    Described(
        id="min-isr-over-rf",
        title="min.insync.replicas is above the replication factor.",
        severity="error",
        consequence="Writes with acks=all always fail.",
        remedy="kraft configs set topic T min.insync.replicas=N, or raise the replication factor with kraft reassign",
        source="Kafka's ReplicationControlManager; KIP-966",
    ),
    Described(
        id="rf-one",
        title="A topic has one replica although there are three brokers or more.",
        severity="warn",
        consequence="The failure of one broker takes the topic offline, the loss of its disk loses the data.",
        remedy="kraft reassign plan --topic T --to B,B,B --replication-factor 3 > plan.json; kraft reassign plan.json",
        source="Kafka's defaults are for single nodes",
    ),
    Described(
        id="internal-cleanup",
        title="cleanup.policy of __consumer_offsets or __transaction_state is not compact, or __share_group_state has "
        "another one than delete, or a retention time.",
        severity="error",
        consequence="Committed offsets and states of transactions are deleted when their segments are old: groups "
        "begin anew. Without any compaction the topic grows without end. Without the states of share partitions their "
        "records are delivered again.",
        remedy="kraft configs set topic __consumer_offsets cleanup.policy=compact",
        source="Kafka's GroupCoordinatorConfig, TransactionLog, ShareCoordinatorService: they make their topics so",
    ),
    Described(
        id="internal-partitions",
        title="__consumer_offsets, __transaction_state or __share_group_state has another number of partitions than "
        "brokers are told.",
        severity="warn",
        consequence="Partitions that were added after the first use change the coordinators of groups and "
        "transactional ids: what was committed before seems lost. A setting that was changed is without effect.",
        remedy="offsets.topic.num.partitions=N in the configurations of all brokers, with the number that the topic "
        "has; kraft groups reset GROUP --from-file FILE --execute commits lost offsets again",
        source="Kafka's GroupCoordinator: a group belongs to partition abs(hash(id)) % the number of partitions",
    ),
    Described(
        id="leader-skew",
        title="Leaders are not the preferred replicas, or one broker leads far more than its share.",
        severity="info",
        consequence="Load is uneven.",
        remedy="kraft elect preferred --all",
        source="Kafka's auto.leader.rebalance.enable",
    ),
    Described(
        id="unclean-enabled",
        title="unclean.leader.election.enable is true.",
        severity="warn",
        consequence="A replica that is not in sync may become the leader: acknowledged records are lost by design.",
        remedy="kraft configs set topic T unclean.leader.election.enable=false",
        source="KIP-966; from 4.0 the cluster level takes effect for all topics at once",
    ),
    Described(
        id="elr-state",
        title="Eligible leader replicas are off although the metadata version allows them, or a broker-level "
        "min.insync.replicas remains.",
        severity="warn; info for the remaining setting",
        consequence="Without them, the last replica that stops can lose acknowledged records.",
        remedy="kraft features upgrade --feature eligible.leader.replicas.version=1",
        source="KIP-966",
    ),
    Described(
        id="recovering-leader",
        title="A leader has been RECOVERING for more than 10 minutes.",
        severity="warn",
        consequence="After an unclean election the leader has not finished its recovery.",
        remedy="Look at the leader's log file; kraft topics describe T",
        source="KIP-704",
    ),
    Described(
        id="reassignment-stuck",
        title="A reassignment has made no progress for more than an hour.",
        severity="warn",
        consequence="The partition keeps too many or too few replicas.",
        remedy="kraft reassign list; then start the target brokers, or kraft reassign cancel --topic T",
        source="KIP-455",
    ),
    Described(
        id="record-contradicts",
        title="A record of the metadata log contradicts those before it.",
        severity="fatal",
        consequence="Kafka's nodes end at their start over such a record. The other checks leave it out.",
        remedy="If another copy of the log has other records there, replace this one: kraft check DIR DIR… names the "
        "first difference. Else keep the copy, and write to the developers of the controller that wrote it",
        source="Kafka 4.3.1, tried with a wrong broker epoch: exit 1",
    ),
    Described(
        id="misplaced-dirs",
        title="A partition directory has the topic id of a topic with another name.",
        severity="fatal",
        consequence="No broker serves the records to their topic. Kafka begins the partition at offset 0 where a "
        "directory was renamed, and applies metadata in part where two were swapped; our broker takes both offline.",
        remedy="Stop the broker, and give each directory the name of its topic and partition",
        source="Kafka 4.3.1, tried: Tried to assign topic ID … but log already contained topic ID …",
    ),
    Described(
        id="partition-metadata-missing",
        title="A partition directory has no partition.metadata.",
        severity="fatal",
        consequence="The broker renames the directory to -stray at its start, and the partition begins at offset 0.",
        remedy="Before the start write the file, with the lines version: 0 and topic_id: ID; kraft topics describe "
        "TOPIC shows the id",
        source="Kafka 4.3.1, tried: marked stray and renamed",
    ),
    Described(
        id="partition-files-damaged",
        title="partition.metadata or leader-epoch-checkpoint of a partition cannot be used.",
        severity="fatal",
        consequence="Kafka takes the log directory offline with every partition there, and ends over an empty "
        "partition.metadata; our broker takes the partition offline. Without epochs a follower may keep other records "
        "than its leader.",
        remedy="partition.metadata: the lines version: 0 and topic_id: ID, which kraft topics describe TOPIC shows. "
        "leader-epoch-checkpoint: stop the broker, and remove it, and of the log directory .kafka_cleanshutdown and "
        "recovery-point-offset-checkpoint; the start builds it from all batches",
        source="Kafka 4.3.1, tried: Error while reading partition metadata file; Error while reading checkpoint file",
    ),
    Described(
        id="groups-lack-tombstones",
        title="Cleaning has removed records of __consumer_offsets on which others follow, as after upgrades of groups.",
        severity="warn",
        consequence="A coordinator of Kafka 4.4.0 or earlier does not load the partition: none of its groups has a "
        "coordinator while that broker leads. Ours loads it, and takes each group as its last records say.",
        remedy="Let a broker of ours lead the partition: kraft reassign. The next cleaning of the log removes "
        "what is superseded; start the broker of Kafka after that",
        source="Kafka 4.4.0: IllegalStateException while loading; GroupMetadataManager.replay",
    ),
    Described(
        id="foreign-dirs",
        title="A log directory holds a directory that is no partition, such as lost+found.",
        severity="error",
        consequence="Kafka's broker ends at its start. Ours leaves the directory alone.",
        remedy="Let log.dirs name a directory below the mount point, or move the foreign directory away",
        source="Kafka 4.3.1, tried: is not in the form of topic-partition",
    ),
    Described(
        id="stray-dirs",
        title="A broker has a partition directory that the metadata does not give to this broker.",
        severity="fatal; info for directories that already end in -stray",
        consequence="The broker renames the directory to -stray at its start: topics with data vanish.",
        remedy="Do not start the broker. Look for a newer copy of the metadata log: kraft recover plan DIR… "
        "--brokers DIR…; or move the directories away",
        source="Kafka 4.3.1, tried: Found stray log dir; LogManager.isStrayReplica",
    ),
    Described(
        id="missing-dirs",
        title="The metadata gives a replica to a broker's directory, and the replica is not there.",
        severity="error",
        consequence="The disk was replaced. A follower fetches everything again; the only replica in sync starts "
        "empty, which loses the data.",
        remedy="Mount the right volume before the start. Otherwise let another replica lead first: "
        "kraft topics describe T",
        source="KIP-858",
    ),
    Described(
        id="partition-epoch-behind",
        title="A broker's data has a later leader epoch than the metadata.",
        severity="fatal",
        consequence="The metadata is older than the data, as after a recovery from a stale copy. Leaders cut their "
        "epochs, and followers never come into sync.",
        remedy="Look for a newer copy of the metadata log: kraft recover plan DIR… --brokers DIR…",
        source="Kafka 4.3.1, tried: 27,713 lines in 8 s",
    ),
    Described(
        id="mv-vs-software",
        title="A feature level is outside of a registered node's range, or far below all of them.",
        severity="fatal; info for a level that all nodes could raise",
        consequence="A node outside of the range cannot start or register.",
        remedy="kraft features upgrade --release-version V, after all nodes run the newer software",
        source="KIP-584",
    ),
    Described(
        id="mv-downgrade-impossible",
        title="The planned metadata.version is below the present one, with changes of metadata between them.",
        severity="fatal",
        consequence="Kafka refuses the downgrade, and the older software cannot read the log.",
        remedy="Keep the present software. See the levels: kraft features describe",
        source="KIP-778",
    ),
    Described(
        id="open-transaction",
        title="A metadata transaction has no end.",
        severity="warn",
        consequence="A bootstrap or a migration was interrupted. The next active controller aborts the transaction.",
        remedy="Start the controllers, then look again: kraft doctor DIR…",
        source="KIP-866",
    ),
    Described(
        id="producer-id-regress",
        title="A broker's data has a producer id at or above the next one of the metadata.",
        severity="fatal",
        consequence="Producer ids are given out again: idempotent producers fail, or records are taken for copies.",
        remedy="The metadata is older than the data: kraft recover plan DIR… --brokers DIR…",
        source="KIP-730; Kafka 4.3.1, tried: OUT_OF_ORDER_SEQUENCE_NUMBER",
    ),
    Described(
        id="tiered-storage",
        title="A topic has remote.storage.enable: what of it is on this disk, and what __remote_log_metadata says to "
        "be in tiered storage.",
        severity="info; error if offsets are neither local nor in a remote segment that is known",
        consequence="Records behind the local start are in the remote store alone. Brokers here do not read it.",
        remedy="Let a broker of Kafka with the remote store lead these partitions: kraft elect preferred, kraft "
        "reassign",
        source="KIP-405",
    ),
    Described(
        id="scram-missing",
        title="A node authenticates by SCRAM with a user that has no credential.",
        severity="fatal",
        consequence="The node cannot connect to the others.",
        remedy="kraft users set NAME --mechanism M --password-file FILE; for a new cluster kraft format CONFIG "
        "--add-scram …",
        source="KIP-900",
    ),
)

BEFORE_CHECKS: Final = tuple(
    Described(
        id=f"before-{operation}",
        title=f"The planned step, {what}, would harm the quorum or the data.",
        severity="fatal or error, as the reason says",
        consequence=consequence,
        remedy=remedy,
        source=source,
    )
    for operation, what, consequence, remedy, source in (
        (
            "start",
            "the start of nodes",
            "Nodes elect a leader without the metadata, or brokers rename partitions.",
            "Repair the other findings first: kraft doctor DIR…",
            "KAFKA-14205; Kafka 4.3.1, tried",
        ),
        (
            "restart",
            "the restart of a node",
            "While the node is down, the quorum has no majority that has caught up, or partitions go offline.",
            "Wait until all voters have caught up: kraft quorum replication",
            "strimzi proposals#82",
        ),
        (
            "format",
            "the format of a node's directory",
            "The node forgets its log and its vote.",
            "Move the directory away instead. kraft quorum remove ID comes before the format, kraft quorum add ID "
            "behind it",
            "KAFKA-14205, KIP-853; Kafka 4.3.1, tried",
        ),
        (
            "upgrade",
            "the upgrade of metadata.version or kraft.version",
            "The upgrade is refused, or a node cannot start afterwards.",
            "Start the named nodes with newer software first. kraft features describe and kraft quorum upgrade "
            "--dry-run show what is missing",
            "KIP-584, KIP-853; cp-ansible#2687",
        ),
        (
            "downgrade",
            "the downgrade of the software",
            "The older software does not start on the log.",
            "Lower the level before the software: kraft features downgrade --feature metadata.version=N",
            "KIP-778; Kafka 4.3.1, tried: an unknown record type is fatal",
        ),
        (
            "unclean-election",
            "an unclean election of the partitions without a leader",
            "A replica leads that lacks committed records: the other replicas truncate theirs, and read-committed "
            "consumers may wait for the lost ends of transactions.",
            "Start a broker of the ISR or the ELR first. The last resort: kraft elect unclean --topic-partition T:P",
            "KIP-966, KAFKA-20716",
        ),
        (
            "remove-voter",
            "the removal of a voter",
            "The remaining voters that have caught up are no majority, or the voter adds itself again.",
            "Start or re-sync the other voters first: kraft quorum replication",
            "KIP-853, KAFKA-19850",
        ),
        (
            "add-voter",
            "the addition of a voter",
            "The request is refused, or the quorum waits for a voter that is far behind.",
            "kraft quorum remove ID first if the id is still a voter with an old directory",
            "KIP-853; Kafka 4.3.1, tried: DuplicateVoterException",
        ),
        (
            "decommission",
            "the decommission of a broker",
            "Partitions lose their only replica in sync.",
            "kraft reassign plan --topic T --to B,B > plan.json moves the partitions first",
            "KIP-631",
        ),
        (
            "restore",
            "the start of a node on a directory that was restored from a backup",
            "The node forgets its votes and what it acknowledged: committed records can be lost.",
            "Restore the newest copy: kraft recover plan DIR… names it. While a majority leads, an empty directory is "
            "safer: kraft quorum remove ID, kraft format CONFIG --cluster-id ID --no-initial-controllers, kraft quorum "
            "add ID",
            "strimzi#10722; Raft",
        ),
        (
            "quorum-config",
            "the start of nodes with other settings of the quorum",
            "Two majorities without a common voter elect two leaders, or there is no leader at all.",
            "Change one voter at a time, on all nodes. For a dynamic quorum kraft quorum upgrade comes first, then "
            "controller.quorum.bootstrap.servers",
            "Raft; Kafka 4.3.1, tried: no leader for ever without controller.quorum.voters",
        ),
    )
)
