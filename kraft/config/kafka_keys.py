"""Kafka's settings by what this software does with them: it reads, refuses, or lets pass without effect.

Every setting of a node is in exactly one list; `tests/kraft/config/test_settings_lists.py` compares the lists with
Kafka's table and with the code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraft.config.definitions import NODE, BadValue, Definition, checked

_READ: Final = """
add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms advertised.listeners
authorizer.class.name auto.create.topics.enable auto.leader.rebalance.enable broker.heartbeat.interval.ms broker.id
broker.rack broker.session.timeout.ms compression.type config.providers connection.failed.authentication.delay.ms
connections.max.idle.ms connections.max.reauth.ms controlled.shutdown.enable controller.listener.names
controller.quorum.append.linger.ms controller.quorum.auto.join.enable controller.quorum.bootstrap.servers
controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes
controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
controller.quorum.retry.backoff.ms controller.quorum.voters controller.quota.window.num
controller.quota.window.size.seconds cordoned.log.dirs default.replication.factor
delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms delegation.token.max.lifetime.ms
delegation.token.secret.key delete.topic.enable early.start.listeners
errors.deadletterqueue.auto.create.topics.enable errors.deadletterqueue.topic.name.prefix fetch.max.bytes
group.consumer.assignment.interval.ms group.consumer.assignor.offload.enable group.consumer.assignors
group.consumer.heartbeat.interval.ms group.consumer.max.assignment.interval.ms
group.consumer.max.heartbeat.interval.ms group.consumer.max.session.timeout.ms group.consumer.max.size
group.consumer.migration.policy group.consumer.min.assignment.interval.ms group.consumer.min.heartbeat.interval.ms
group.consumer.min.session.timeout.ms group.consumer.regex.refresh.interval.ms group.consumer.session.timeout.ms
group.coordinator.rebalance.protocols group.initial.rebalance.delay.ms group.max.session.timeout.ms group.max.size
group.min.session.timeout.ms group.share.assignment.interval.ms group.share.assignor.offload.enable
group.share.assignors group.share.delivery.count.limit group.share.heartbeat.interval.ms
group.share.initialize.retry.interval.ms group.share.max.assignment.interval.ms group.share.max.delivery.count.limit
group.share.max.heartbeat.interval.ms group.share.max.partition.max.record.locks
group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms group.share.max.share.sessions
group.share.max.size
group.share.min.assignment.interval.ms group.share.min.delivery.count.limit group.share.min.heartbeat.interval.ms
group.share.min.partition.max.record.locks group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
group.share.partition.max.record.locks group.share.record.lock.duration.ms group.share.session.timeout.ms
group.streams.acceptable.recovery.lag
group.streams.assignment.interval.ms group.streams.assignor.offload.enable group.streams.assignors
group.streams.heartbeat.interval.ms group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
group.streams.max.standby.replicas
group.streams.max.warmup.replicas group.streams.min.assignment.interval.ms group.streams.min.heartbeat.interval.ms
group.streams.min.session.timeout.ms group.streams.min.task.offset.interval.ms group.streams.num.standby.replicas
group.streams.num.warmup.replicas group.streams.rack.aware.assignment.tags group.streams.session.timeout.ms
group.streams.task.offset.interval.ms initial.broker.registration.timeout.ms inter.broker.listener.name
internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes leader.imbalance.check.interval.seconds
listener.security.protocol.map listeners log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size
log.cleaner.delete.retention.ms log.cleaner.enable log.cleaner.io.buffer.load.factor log.cleaner.max.compaction.lag.ms
log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms log.cleaner.threads log.cleanup.policy log.dir
log.dirs log.flush.interval.messages log.flush.interval.ms log.flush.offset.checkpoint.interval.ms
log.flush.scheduler.interval.ms log.index.interval.bytes log.index.size.max.bytes log.initial.task.delay.ms
log.local.retention.bytes log.local.retention.ms
log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms log.message.timestamp.type
log.remote.copy.lag.bytes log.remote.copy.lag.ms log.retention.bytes
log.retention.check.interval.ms log.retention.hours log.retention.minutes log.retention.ms log.roll.hours log.roll.ms
log.segment.bytes log.segment.delete.delay.ms max.connection.creation.rate max.connections max.connections.per.ip
max.connections.per.ip.overrides
max.decompressed.message.bytes max.incremental.fetch.session.cache.slots max.request.partition.size.limit
message.max.bytes metadata.log.dir metadata.log.max.record.bytes.between.snapshots
metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes metadata.log.segment.ms metadata.max.idle.interval.ms
metadata.max.retention.bytes metadata.max.retention.ms min.insync.replicas node.id num.partitions
offset.metadata.max.bytes offsets.commit.timeout.ms offsets.retention.check.interval.ms offsets.retention.minutes
offsets.topic.compression.codec offsets.topic.num.partitions offsets.topic.replication.factor
offsets.topic.segment.bytes process.roles producer.id.expiration.check.interval.ms producer.id.expiration.ms
queued.max.request.bytes queued.max.requests quota.window.num quota.window.size.seconds
remote.log.storage.system.enable replica.fetch.backoff.ms
replica.fetch.max.bytes replica.fetch.min.bytes replica.fetch.response.max.bytes replica.fetch.wait.max.ms
replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms replica.selector.class
replication.quota.window.num replication.quota.window.size.seconds request.timeout.ms
sasl.enabled.mechanisms sasl.jaas.config sasl.login.callback.handler.class sasl.login.class
sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol
sasl.mechanism.inter.broker.protocol
sasl.oauthbearer.allow.unverified.audience sasl.oauthbearer.allow.unverified.issuer
sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
sasl.server.callback.handler.class sasl.server.max.receive.size security.inter.broker.protocol
share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.snapshot.update.records.per.snapshot
share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
share.coordinator.state.topic.num.partitions share.coordinator.state.topic.prune.interval.ms
share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes
share.coordinator.write.timeout.ms
socket.request.max.bytes ssl.allow.dn.changes ssl.allow.san.changes ssl.cipher.suites ssl.client.auth
ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
ssl.keystore.type ssl.principal.mapping.rules ssl.protocol ssl.provider ssl.secure.random.implementation
ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
ssl.truststore.type telemetry.max.bytes
transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
transaction.partition.verification.enable transaction.remove.expired.transaction.cleanup.interval.ms
transaction.state.log.min.isr transaction.state.log.num.partitions transaction.state.log.replication.factor
transaction.state.log.segment.bytes transactional.id.expiration.ms unclean.leader.election.enable
unclean.leader.election.interval.ms
"""
READ: Final = frozenset(_READ.split())
"""The settings that some code reads."""

REFUSED: Final = {
    "alter.config.policy.class.name": "It forbids changes of settings, and this software loads no classes of Java.",
    "client.quota.callback.class": "It limits clients, and this software loads no classes of Java.",
    "create.topic.policy.class.name": "It forbids topics, and this software loads no classes of Java.",
    "principal.builder.class": "It decides who a client is, and this software loads no classes of Java.",
    "sasl.client.callback.handler.class": "This software loads no classes of Java.",
    "security.providers": "This software loads no classes of Java.",
    "transaction.two.phase.commit.enable": "This software has no two-phase commit of transactions (KIP-939).",
}
"""The settings that forbid, restrict or protect something that this software does not have: only their default is
accepted. Each with the reason.
"""

_WITHOUT_EFFECT: Final = """
alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds background.threads
compression.gzip.level compression.lz4.level compression.zstd.level controller.performance.always.log.threshold.ms
controller.performance.sample.period.ms controller.socket.timeout.ms delete.records.purgatory.purge.interval.requests
fetch.purgatory.purge.interval.requests follower.fetch.last.tiered.offset.enable group.coordinator.append.linger.ms
group.coordinator.background.threads group.coordinator.cached.buffer.max.bytes group.coordinator.threads
group.share.dlq.manager.class.name group.share.persister.class.name
group.streams.topology.description.plugin.class internal.metadata.delete.delay.millis
kafka.metrics.polling.interval.secs kafka.metrics.reporters log.cleaner.io.buffer.size
log.cleaner.io.max.bytes.per.second log.dir.failure.timeout.ms log.flush.start.offset.checkpoint.interval.ms
log.preallocate
log.roll.jitter.hours log.roll.jitter.ms metric.reporters metrics.num.samples metrics.recording.level
metrics.sample.window.ms num.io.threads num.network.threads num.recovery.threads.per.data.dir
num.replica.alter.log.dirs.threads num.replica.fetchers offsets.load.buffer.size
producer.purgatory.purge.interval.requests remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms
remote.log.index.file.cache.total.size.bytes remote.log.index.file.cache.ttl.ms
remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
remote.log.manager.follower.thread.pool.size remote.log.manager.task.interval.ms
remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms
remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes
remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks remote.log.reader.threads
remote.log.storage.manager.class.name remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
replica.socket.receive.buffer.bytes replica.socket.timeout.ms sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin
sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
sasl.kerberos.ticket.renew.window.factor sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.oauthbearer.assertion.algorithm
sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file server.max.startup.time.ms
share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes share.coordinator.load.buffer.size
share.coordinator.threads
share.fetch.purgatory.purge.interval.requests socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms socket.listen.backlog.size socket.receive.buffer.bytes socket.send.buffer.bytes
transaction.state.log.load.buffer.size
unstable.api.versions.enable unstable.feature.versions.enable
"""
WITHOUT_EFFECT: Final = frozenset(_WITHOUT_EFFECT.split())
"""The settings without an effect here that matters to nobody's records or rights: they tune parts that this software
does not have. A start names those that the file sets.
"""

_REQUIRED: Final[dict[str, tuple[Callable[[int], bool], str]]] = {
    "log.retention.ms": (lambda value: value != 0, "unlimited (-1) or, greater than or equal to 1"),
    "log.roll.jitter.ms": (lambda value: value >= 0, "greater than or equal to 0"),
    "log.roll.ms": (lambda value: value >= 1, "greater than or equal to 1"),
}
"""The demands of `KafkaConfig.validateValues` on settings that may change at run time, and their words."""

DYNAMIC_FOR_ALL: Final = frozenset(key for key, one in NODE.items() if one.mode == "cluster-wide")
"""The settings that may change at run time, for all brokers or for one."""

KAFKA_DYNAMIC: Final = frozenset(key for key, one in NODE.items() if one.mode != "read-only")
"""The settings that may change at run time."""

LISTENER_PREFIX: Final = "listener.name."
PREFIXES: Final = (LISTENER_PREFIX, "config.providers.", "rlmm.config.", "rsm.config.")
"""The prefixes of settings with free names, of plug-ins and of single listeners."""


def definition_of(key: str) -> Definition | None:
    """Kafka's definition of a setting of a node, also where the key has the prefix of a listener and a mechanism."""
    name = key
    if key.startswith(LISTENER_PREFIX):
        name = key.removeprefix(LISTENER_PREFIX).partition(".")[2]
        if name not in NODE:
            name = name.partition(".")[2]
    return NODE.get(name)


def why_unusable(definition: Definition, text: str) -> str:
    """Why a broker does not use this dynamic value, in Kafka's words; empty if it does."""
    try:
        value = checked(definition, text)
    except BadValue as bad:
        return str(bad)
    allows, words = _REQUIRED.get(definition.name, (None, ""))
    is_bad = allows is not None and isinstance(value, int) and not allows(value)
    return f"requirement failed: {definition.name} must be {words}" if is_bad else ""


def is_refused(definition: Definition, text: str) -> bool:
    """Whether a well-formed value restricts something that this software does not have: any but the default."""
    return definition.name in REFUSED and checked(definition, text) != checked(definition, definition.default or "")
