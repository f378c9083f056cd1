"""The descriptions of the checks of quorum configurations and of live quorums."""

from __future__ import annotations

from typing import Final

from kraft.operate.doctor.facts.finding import Described

QUORUM_CHECKS: Final = (
    Described(
        id="no-quorum-config",
        title="Neither controller.quorum.voters nor controller.quorum.bootstrap.servers is set.",
        severity="fatal",
        consequence="The node does not start.",
        remedy="Set controller.quorum.bootstrap.servers=HOST:PORT,… for a dynamic quorum, controller.quorum.voters "
        "for a static one",
        source="Kafka 4.3.1, tried: exit 1",
    ),
    Described(
        id="static-config-on-dynamic",
        title="The log has kraft.version 1, and controller.quorum.voters is set.",
        severity="warn",
        consequence="The setting is ignored for votes and used for discovery only; it misleads readers.",
        remedy="Replace it by controller.quorum.bootstrap.servers=HOST:PORT,…",
        source="Kafka 4.3.1, tried: boots and leads, also when the sets differ; KIP-853",
    ),
    Described(
        id="dynamic-config-on-static",
        title="The log has kraft.version 0, and controller.quorum.voters is empty.",
        severity="fatal",
        consequence="The controller lives and never has a leader.",
        remedy="Put controller.quorum.voters back. First kraft quorum upgrade, then change the configuration",
        source="Kafka 4.3.1, tried: no leader for ever; bitnami#32637, cp-ansible#2687",
    ),
    Described(
        id="voters-config-differs",
        title="In a static quorum, controller.quorum.voters is not the same on all nodes.",
        severity="fatal; warn if only addresses differ",
        consequence="Two majorities can exist: two leaders in one epoch.",
        remedy="Make controller.quorum.voters equal on all nodes before any of them starts",
        source="Raft; Kafka never compares static voter sets",
    ),
    Described(
        id="self-not-in-voters",
        title="A controller is not in its own controller.quorum.voters.",
        severity="fatal",
        consequence="The node does not start.",
        remedy="Correct node.id, or add the node to controller.quorum.voters on all nodes",
        source="Kafka 4.3.1, tried: exit 1",
    ),
    Described(
        id="voters-host-differs",
        title="The voter set in the log has another address than the node advertises.",
        severity="error",
        consequence="The other voters ask the old address. A running leader corrects the record; without a leader no "
        "election succeeds.",
        remedy="While a leader is there, restart the node: it updates its voter record. Otherwise give the old name or "
        "port back, or kraft recover apply PLAN --into NEWDIR --endpoint ID=HOST:PORT",
        source="KIP-853 UpdateRaftVoter, KIP-1347, KAFKA-20427; Kafka 4.3.1, tried",
    ),
    Described(
        id="voter-endpoint-unresolvable",
        title="The host of a voter or of a bootstrap server has no address.",
        severity="fatal if a majority is affected, else error",
        consequence="The node cannot reach that voter.",
        remedy="Correct the name in the configuration, or DNS or /etc/hosts: getent hosts NAME",
        source="strimzi#12760",
    ),
    Described(
        id="voter-endpoint-unreachable",
        title="A voter does not answer at its address, or another node answers there.",
        severity="error",
        consequence="The voter does not count for a majority.",
        remedy="Start the node, or correct host, port and listener: kraft quorum status --why",
        source="Kafka 4.3.1, tried: Connection to node … could not be established",
    ),
    Described(
        id="voters-even",
        title="The number of voters is even.",
        severity="warn",
        consequence="The quorum tolerates no more failures than with one voter less.",
        remedy="kraft quorum add ID or kraft quorum remove ID",
        source="Raft",
    ),
    Described(
        id="voters-single",
        title="One voter serves three or more brokers.",
        severity="warn",
        consequence="The failure of one node stops all changes of metadata, and the loss of its disk loses them.",
        remedy="Start two more controllers, then kraft quorum add ID for each",
        source="Raft",
    ),
    Described(
        id="two-quorums",
        title="Two quorums with one cluster id have no voter directory in common.",
        severity="fatal",
        consequence="Each has its own leader and its own metadata; brokers follow the one or the other.",
        remedy="Keep the quorum that the brokers follow. Move the other's directory away, then "
        "kraft format CONFIG --cluster-id ID --no-initial-controllers and kraft quorum add ID",
        source="Kafka 4.3.1, tried: --standalone on two nodes, both lead",
    ),
    Described(
        id="observer-controller",
        title="A controller is not in the voter set.",
        severity="warn",
        consequence="The node follows and neither votes nor leads.",
        remedy="kraft quorum add ID, or stop the node",
        source="KIP-853",
    ),
    Described(
        id="auto-join-rejoin",
        title="A voter that was removed has controller.quorum.auto.join.enable=true.",
        severity="warn",
        consequence="The node adds itself again at once.",
        remedy="Stop the node, or set controller.quorum.auto.join.enable=false, before kraft quorum remove ID",
        source="KAFKA-19850",
    ),
    Described(
        id="auto-join-on-static",
        title="controller.quorum.auto.join.enable=true in a static quorum.",
        severity="warn",
        consequence="The setting has no effect without kraft.version 1.",
        remedy="Remove the setting, or kraft quorum upgrade",
        source="Kafka 4.3.1, tried: boots and leads without a message",
    ),
    Described(
        id="ghost-registration",
        title="A controller is registered that is neither a voter nor one of the given nodes.",
        severity="warn; error if its feature ranges block an upgrade",
        consequence="Nothing removes the registration of a controller by itself. Old feature ranges block upgrades of "
        "metadata.version.",
        remedy="From metadata.version 4.4-IV2 on: kraft quorum unregister ID. Before, if its ranges block an upgrade: "
        "kraft recover unblock-ghost ID. Or start a controller of that id with "
        "the present software once, so that it registers its ranges again",
        source="KAFKA-20395, KIP-1312; Kafka 4.3.1, tried: Controller 99 only supports versions 7-27",
    ),
    Described(
        id="voter-lag",
        title="A voter is 1,000 records or 30 seconds behind the leader.",
        severity="error if the other voters are a bare majority, else warn",
        consequence="Until the voter has caught up, the quorum tolerates one failure less.",
        remedy="Restart no other voter now; watch kraft quorum replication",
        source="strimzi proposals#82",
    ),
    Described(
        id="no-leader",
        title="The quorum has no leader, or its epoch rises again and again.",
        severity="fatal",
        consequence="No metadata changes; no broker registers.",
        remedy="kraft quorum status --why names the voters that do not answer: start them",
        source="strimzi#11605",
    ),
    Described(
        id="quorum-timeouts",
        title="Time-outs of the quorum are too short, contradict each other, or differ between voters.",
        severity="warn",
        consequence="Short pauses end a leadership, or elections repeat.",
        remedy="Set controller.quorum.fetch.timeout.ms=2000, controller.quorum.election.timeout.ms=1000 and "
        "controller.quorum.request.timeout.ms=2000 on all voters",
        source="Kafka 4.3.1, tried: tiny values are accepted without a message",
    ),
    Described(
        id="config-refused",
        title="A properties file has a setting with which a node does not start.",
        severity="fatal",
        consequence="kraft serve does not start with this file. Apache Kafka does not start, either, or fails later.",
        remedy="Correct the setting, or leave it out",
        source="Kafka 4.3.1: ConfigDef, KafkaConfig.validateValues",
    ),
    Described(
        id="config-not-supported",
        title="A properties file has a setting with which kraft serve does not start.",
        severity="warn",
        consequence="kraft serve does not start with this file. Apache Kafka may.",
        remedy="See docs/configuration.md, or run the node with Apache Kafka",
        source="kraft serve: the same validator",
    ),
    Described(
        id="config-not-for-kafka",
        title="A properties file has a setting with which Apache Kafka does not start, and kraft serve does.",
        severity="warn",
        consequence="Apache Kafka does not start with this file.",
        remedy="Correct the setting, if Apache Kafka is to run with this file, too",
        source="Kafka 4.3.1: KafkaConfig",
    ),
    Described(
        id="listener-map",
        title="Listeners, controller.listener.names, the protocol map and the voter set do not fit together.",
        severity="fatal",
        consequence="The node does not start, or other nodes do not find its listener.",
        remedy="Add NAME:PROTOCOL to listener.security.protocol.map, and use the listener name of the voter set",
        source="Kafka 4.3.1, tried: No security protocol defined for listener CONTROLLER",
    ),
    Described(
        id="controller-listener-mismatch",
        title="Controllers and brokers do not agree on the controller listener's name or protocol.",
        severity="fatal",
        consequence="Brokers look for their first controller.listener.names in the voters' endpoints and do not "
        "find it.",
        remedy="Make controller.listener.names and the protocol of its first name equal on all nodes",
        source="Kafka's VoterSet.voterNode",
    ),
    Described(
        id="advertised-loopback",
        title="A node advertises a loopback address while other nodes are on other hosts.",
        severity="error",
        consequence="Other nodes connect to themselves instead.",
        remedy="Set advertised.listeners=NAME://HOST:PORT with an address that other hosts can reach",
        source="Kafka's advertised.listeners",
    ),
    Described(
        id="plaintext-controller",
        title="A controller listener is PLAINTEXT on an address that other hosts reach.",
        severity="warn",
        consequence="Every host of the network can vote, register and administer.",
        remedy="Use SSL or SASL_SSL for the controller listener, or a network of its own",
        source="KIP-595: a vote is a request like any other",
    ),
    Described(
        id="session-timeouts",
        title="broker.session.timeout.ms is not above twice broker.heartbeat.interval.ms, or differs.",
        severity="error; warn at exactly twice",
        consequence="Brokers are fenced between two heartbeats.",
        remedy="Set broker.session.timeout.ms=9000 and broker.heartbeat.interval.ms=2000 on all nodes",
        source="Kafka 4.3.1, tried: boots, leads, repeats an ERROR line",
    ),
)
