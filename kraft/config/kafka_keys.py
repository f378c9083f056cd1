"""The settings of a Kafka 4.3.1 server, by type (`AbstractKafkaConfig.CONFIG_DEF`, `DynamicBrokerConfig`).

They distinguish a misspelt key from a setting without effect here, and secrets from other values.
"""

from __future__ import annotations

from typing import Final

_BY_TYPE: Final = {
    "BOOLEAN": """
auto.create.topics.enable auto.leader.rebalance.enable controlled.shutdown.enable controller.quorum.auto.join.enable
delete.topic.enable follower.fetch.last.tiered.offset.enable log.cleaner.enable log.preallocate
remote.log.storage.system.enable sasl.oauthbearer.assertion.claim.jti.include ssl.allow.dn.changes ssl.allow.san.changes
transaction.partition.verification.enable transaction.two.phase.commit.enable unclean.leader.election.enable
unstable.api.versions.enable unstable.feature.versions.enable
""",
    "STRING": """
authorizer.class.name broker.rack compression.type group.consumer.migration.policy group.share.persister.class.name
inter.broker.listener.name listener.security.protocol.map log.message.timestamp.type max.connections.per.ip.overrides
metadata.log.dir metrics.recording.level remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path
remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name remote.log.storage.manager.class.name
remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix replica.selector.class
sasl.kerberos.kinit.cmd sasl.kerberos.service.name sasl.mechanism.controller.protocol
sasl.mechanism.inter.broker.protocol sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.template.file
sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url security.inter.broker.protocol security.providers ssl.client.auth
ssl.endpoint.identification.algorithm ssl.keymanager.algorithm ssl.keystore.location ssl.keystore.type
ssl.principal.mapping.rules ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
ssl.truststore.location ssl.truststore.type
""",
    "INT": """
add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds background.threads
broker.heartbeat.interval.ms broker.id broker.session.timeout.ms compression.gzip.level compression.lz4.level
compression.zstd.level connection.failed.authentication.delay.ms controller.quorum.append.linger.ms
controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes
controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
controller.quorum.retry.backoff.ms controller.quota.window.num controller.quota.window.size.seconds
controller.socket.timeout.ms default.replication.factor delete.records.purgatory.purge.interval.requests fetch.max.bytes
fetch.purgatory.purge.interval.requests group.consumer.assignment.interval.ms group.consumer.heartbeat.interval.ms
group.consumer.max.assignment.interval.ms group.consumer.max.heartbeat.interval.ms group.consumer.max.session.timeout.ms
group.consumer.max.size group.consumer.min.assignment.interval.ms group.consumer.min.heartbeat.interval.ms
group.consumer.min.session.timeout.ms group.consumer.regex.refresh.interval.ms group.consumer.session.timeout.ms
group.coordinator.append.linger.ms group.coordinator.background.threads group.coordinator.cached.buffer.max.bytes
group.coordinator.threads group.initial.rebalance.delay.ms group.max.session.timeout.ms group.max.size
group.min.session.timeout.ms group.share.assignment.interval.ms group.share.delivery.count.limit
group.share.heartbeat.interval.ms group.share.initialize.retry.interval.ms group.share.max.assignment.interval.ms
group.share.max.delivery.count.limit group.share.max.heartbeat.interval.ms group.share.max.partition.max.record.locks
group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms group.share.max.share.sessions
group.share.max.size group.share.min.assignment.interval.ms group.share.min.delivery.count.limit
group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks group.share.min.record.lock.duration.ms
group.share.min.session.timeout.ms group.share.partition.max.record.locks group.share.record.lock.duration.ms
group.share.session.timeout.ms group.streams.assignment.interval.ms group.streams.heartbeat.interval.ms
group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
group.streams.max.standby.replicas group.streams.min.assignment.interval.ms group.streams.min.heartbeat.interval.ms
group.streams.min.session.timeout.ms group.streams.num.standby.replicas group.streams.session.timeout.ms
initial.broker.registration.timeout.ms internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes
kafka.metrics.polling.interval.secs log.cleaner.io.buffer.size log.cleaner.threads
log.flush.offset.checkpoint.interval.ms log.flush.start.offset.checkpoint.interval.ms log.index.interval.bytes
log.index.size.max.bytes log.retention.hours log.retention.minutes log.roll.hours log.roll.jitter.hours
log.segment.bytes max.connection.creation.rate max.connections max.connections.per.ip
max.incremental.fetch.session.cache.slots max.request.partition.size.limit message.max.bytes metadata.log.segment.bytes
metadata.max.idle.interval.ms metrics.num.samples min.insync.replicas node.id num.io.threads num.network.threads
num.partitions num.recovery.threads.per.data.dir num.replica.alter.log.dirs.threads num.replica.fetchers
offset.metadata.max.bytes offsets.commit.timeout.ms offsets.load.buffer.size offsets.retention.minutes
offsets.topic.compression.codec offsets.topic.num.partitions offsets.topic.segment.bytes
producer.id.expiration.check.interval.ms producer.id.expiration.ms producer.purgatory.purge.interval.requests
queued.max.requests quota.window.num quota.window.size.seconds remote.fetch.max.wait.ms
remote.log.manager.copier.thread.pool.size remote.log.manager.copy.quota.window.num
remote.log.manager.copy.quota.window.size.seconds remote.log.manager.expiration.thread.pool.size
remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
remote.log.manager.follower.thread.pool.size remote.log.manager.thread.pool.size
remote.log.metadata.custom.metadata.max.bytes remote.log.reader.max.pending.tasks remote.log.reader.threads
replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.min.bytes replica.fetch.response.max.bytes
replica.fetch.wait.max.ms replica.socket.receive.buffer.bytes replica.socket.timeout.ms replication.quota.window.num
replication.quota.window.size.seconds request.timeout.ms sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.clock.skew.seconds sasl.server.max.receive.size share.coordinator.append.linger.ms
share.coordinator.cached.buffer.max.bytes share.coordinator.cold.partition.snapshot.interval.ms
share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot
share.coordinator.state.topic.compression.codec share.coordinator.state.topic.num.partitions
share.coordinator.state.topic.prune.interval.ms share.coordinator.state.topic.segment.bytes share.coordinator.threads
share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests socket.listen.backlog.size
socket.receive.buffer.bytes socket.request.max.bytes socket.send.buffer.bytes telemetry.max.bytes
transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
transaction.remove.expired.transaction.cleanup.interval.ms transaction.state.log.load.buffer.size
transaction.state.log.min.isr transaction.state.log.num.partitions transaction.state.log.segment.bytes
transactional.id.expiration.ms
""",
    "SHORT": """
offsets.topic.replication.factor sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
share.coordinator.state.topic.min.isr share.coordinator.state.topic.replication.factor
transaction.state.log.replication.factor
""",
    "LONG": """
connections.max.idle.ms connections.max.reauth.ms controller.performance.always.log.threshold.ms
controller.performance.sample.period.ms delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
delegation.token.max.lifetime.ms internal.metadata.delete.delay.millis leader.imbalance.check.interval.seconds
log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms log.cleaner.max.compaction.lag.ms
log.cleaner.min.compaction.lag.ms log.dir.failure.timeout.ms log.flush.interval.messages log.flush.interval.ms
log.flush.scheduler.interval.ms log.initial.task.delay.ms log.local.retention.bytes log.local.retention.ms
log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms log.retention.bytes
log.retention.check.interval.ms log.retention.ms log.roll.jitter.ms log.roll.ms log.segment.delete.delay.ms
metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms metadata.log.segment.ms
metadata.max.retention.bytes metadata.max.retention.ms metrics.sample.window.ms offsets.retention.check.interval.ms
queued.max.request.bytes remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
remote.log.index.file.cache.ttl.ms remote.log.manager.copy.max.bytes.per.second
remote.log.manager.fetch.max.bytes.per.second remote.log.manager.task.interval.ms
remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms
replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms sasl.kerberos.min.time.before.relogin
sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
server.max.startup.time.ms socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
unclean.leader.election.interval.ms
""",
    "DOUBLE": """
log.cleaner.io.buffer.load.factor log.cleaner.io.max.bytes.per.second log.cleaner.min.cleanable.ratio
remote.log.manager.task.retry.jitter sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
""",
    "LIST": """
advertised.listeners config.providers controller.listener.names controller.quorum.bootstrap.servers
controller.quorum.voters cordoned.log.dirs early.start.listeners group.consumer.assignors
group.coordinator.rebalance.protocols group.share.assignors kafka.metrics.reporters listeners log.cleanup.policy log.dir
log.dirs metric.reporters process.roles sasl.enabled.mechanisms sasl.kerberos.principal.to.local.rules
sasl.oauthbearer.expected.audience ssl.cipher.suites ssl.enabled.protocols
""",
    "CLASS": """
alter.config.policy.class.name client.quota.callback.class create.topic.policy.class.name principal.builder.class
sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.server.callback.handler.class
ssl.engine.factory.class
""",
    "PASSWORD": """
delegation.token.secret.key sasl.jaas.config sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.client.credentials.client.secret ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key
ssl.keystore.password ssl.truststore.certificates ssl.truststore.password
""",
}
_DYNAMIC_PER_BROKER: Final = """
cordoned.log.dirs listener.security.protocol.map listeners log.cleaner.io.buffer.load.factor
log.cleaner.io.max.bytes.per.second log.cleaner.min.cleanable.ratio principal.builder.class
remote.log.manager.task.retry.jitter sasl.enabled.mechanisms sasl.jaas.config sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
sasl.mechanism.inter.broker.protocol ssl.cipher.suites ssl.client.auth ssl.enabled.protocols
ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
ssl.truststore.location ssl.truststore.password ssl.truststore.type
"""
_DYNAMIC_FOR_ALL: Final = """
background.threads compression.gzip.level compression.lz4.level compression.type compression.zstd.level config.providers
follower.fetch.last.tiered.offset.enable group.consumer.assignment.interval.ms group.coordinator.cached.buffer.max.bytes
group.share.assignment.interval.ms group.streams.assignment.interval.ms log.cleaner.backoff.ms
log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms log.cleaner.io.buffer.size
log.cleaner.max.compaction.lag.ms log.cleaner.min.compaction.lag.ms log.cleaner.threads log.cleanup.policy
log.flush.interval.messages log.flush.interval.ms log.index.interval.bytes log.index.size.max.bytes
log.local.retention.bytes log.local.retention.ms log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms
log.message.timestamp.type log.preallocate log.retention.bytes log.retention.ms log.roll.jitter.ms log.roll.ms
log.segment.bytes log.segment.delete.delay.ms max.connection.creation.rate max.connections max.connections.per.ip
max.connections.per.ip.overrides message.max.bytes metric.reporters min.insync.replicas num.io.threads
num.network.threads num.recovery.threads.per.data.dir num.replica.fetchers producer.id.expiration.ms
remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
remote.log.manager.follower.thread.pool.size remote.log.reader.threads share.coordinator.cached.buffer.max.bytes
transaction.partition.verification.enable unclean.leader.election.enable
"""

KAFKA_TYPES: Final = {name: kind for kind, names in _BY_TYPE.items() for name in names.split()}
"""The type of each server setting, internal ones included."""

KAFKA_KEYS: Final = frozenset(KAFKA_TYPES)

DYNAMIC_FOR_ALL: Final = frozenset(_DYNAMIC_FOR_ALL.split())
"""The settings that may change at run time, for all brokers or for one."""

KAFKA_DYNAMIC: Final = DYNAMIC_FOR_ALL | frozenset(_DYNAMIC_PER_BROKER.split())
"""The settings that may change at run time."""

PREFIXES: Final = ("listener.name.", "config.providers.", "rlmm.config.", "rsm.config.")
"""The prefixes of settings with free names, of plug-ins and of single listeners."""
