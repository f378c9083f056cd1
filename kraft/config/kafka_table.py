"""Every setting of Apache Kafka 4.4.0, from its own tables (`ConfigDef`). Generated: do not edit.

`tests/support/interop/settings_table.py` writes this module from Kafka's jars. A line is kind, key, type, importance,
how the setting changes, whether it is public, default and limits, between bars; `kraft.config.definitions` reads it.
"""

from __future__ import annotations

from typing import Final

# ruff: noqa: E501
SETTINGS: Final = """\
broker|add.partitions.to.txn.retry.backoff.max.ms|INT|HIGH|read-only|public|=100|range 0 null
broker|add.partitions.to.txn.retry.backoff.ms|INT|HIGH|read-only|public|=20|range 1 null
broker|advertised.listeners|LIST|HIGH|read-only|public|null|list false true
broker|alter.config.policy.class.name|CLASS|LOW|read-only|public|null|-
broker|alter.log.dirs.replication.quota.window.num|INT|LOW|read-only|public|=11|range 1 null
broker|alter.log.dirs.replication.quota.window.size.seconds|INT|LOW|read-only|public|=1|range 1 null
broker|authorizer.class.name|STRING|LOW|read-only|public|=|other non-null string
broker|auto.create.topics.enable|BOOLEAN|HIGH|read-only|public|=true|-
broker|auto.leader.rebalance.enable|BOOLEAN|HIGH|read-only|public|=true|-
broker|background.threads|INT|HIGH|cluster-wide|public|=10|range 1 null
broker|broker.heartbeat.interval.ms|INT|MEDIUM|read-only|public|=2000|-
broker|broker.id|INT|HIGH|read-only|public|=-1|-
broker|broker.rack|STRING|MEDIUM|read-only|public|null|-
broker|broker.session.timeout.ms|INT|MEDIUM|read-only|public|=9000|-
broker|client.quota.callback.class|CLASS|LOW|read-only|public|null|-
broker|compression.gzip.level|INT|MEDIUM|cluster-wide|public|=-1|other [1,...,9] or -1
broker|compression.lz4.level|INT|MEDIUM|cluster-wide|public|=9|range 1 17
broker|compression.type|STRING|HIGH|cluster-wide|public|=producer|words uncompressed,zstd,lz4,snappy,gzip,producer
broker|compression.zstd.level|INT|MEDIUM|cluster-wide|public|=3|range -131072 22
broker|config.providers|LIST|LOW|cluster-wide|public|=|list true false
broker|connection.failed.authentication.delay.ms|INT|LOW|read-only|public|=100|range 0 null
broker|connections.max.idle.ms|LONG|MEDIUM|read-only|public|=600000|-
broker|connections.max.reauth.ms|LONG|MEDIUM|read-only|public|=0|-
broker|controlled.shutdown.enable|BOOLEAN|MEDIUM|read-only|public|=true|-
broker|controller.listener.names|LIST|HIGH|read-only|public|required|list false false
broker|controller.performance.always.log.threshold.ms|LONG|MEDIUM|read-only|internal|=2000|range 0 null
broker|controller.performance.sample.period.ms|LONG|MEDIUM|read-only|internal|=60000|range 100 null
broker|controller.quorum.append.linger.ms|INT|MEDIUM|read-only|public|=25|range 0 null
broker|controller.quorum.auto.join.enable|BOOLEAN|LOW|read-only|public|=false|-
broker|controller.quorum.bootstrap.servers|LIST|HIGH|read-only|public|=|other non-empty list
broker|controller.quorum.election.backoff.max.ms|INT|HIGH|read-only|public|=1000|range 0 null
broker|controller.quorum.election.timeout.ms|INT|HIGH|read-only|public|=1000|range 0 null
broker|controller.quorum.fetch.max.bytes|INT|LOW|read-only|public|=1048576|range 1 null
broker|controller.quorum.fetch.snapshot.max.bytes|INT|LOW|read-only|public|=1048576|range 1 null
broker|controller.quorum.fetch.timeout.ms|INT|HIGH|read-only|public|=2000|range 0 null
broker|controller.quorum.request.timeout.ms|INT|MEDIUM|read-only|public|=2000|range 0 null
broker|controller.quorum.retry.backoff.ms|INT|LOW|read-only|public|=20|range 0 null
broker|controller.quorum.voters|LIST|HIGH|read-only|public|=|other non-empty list
broker|controller.quota.window.num|INT|LOW|read-only|public|=11|range 1 null
broker|controller.quota.window.size.seconds|INT|LOW|read-only|public|=1|range 1 null
broker|controller.socket.timeout.ms|INT|MEDIUM|read-only|public|=30000|-
broker|cordoned.log.dirs|LIST|MEDIUM|per-broker|public|=|list true true
broker|create.topic.policy.class.name|CLASS|LOW|read-only|public|null|-
broker|default.replication.factor|INT|MEDIUM|read-only|public|=1|-
broker|delegation.token.expiry.check.interval.ms|LONG|LOW|read-only|public|=3600000|range 1 null
broker|delegation.token.expiry.time.ms|LONG|MEDIUM|read-only|public|=86400000|range 1 null
broker|delegation.token.max.lifetime.ms|LONG|MEDIUM|read-only|public|=604800000|range 1 null
broker|delegation.token.secret.key|PASSWORD|MEDIUM|read-only|public|null|-
broker|delete.records.purgatory.purge.interval.requests|INT|MEDIUM|read-only|public|=1|-
broker|delete.topic.enable|BOOLEAN|HIGH|read-only|public|=true|-
broker|early.start.listeners|LIST|HIGH|read-only|public|null|list true true
broker|errors.deadletterqueue.auto.create.topics.enable|BOOLEAN|MEDIUM|cluster-wide|public|=false|-
broker|errors.deadletterqueue.topic.name.prefix|STRING|MEDIUM|cluster-wide|public|=dlq.|-
broker|fetch.max.bytes|INT|MEDIUM|read-only|public|=57671680|range 1024 null
broker|fetch.purgatory.purge.interval.requests|INT|MEDIUM|read-only|public|=1000|-
broker|follower.fetch.last.tiered.offset.enable|BOOLEAN|MEDIUM|cluster-wide|public|=false|-
broker|group.consumer.assignment.interval.ms|INT|MEDIUM|cluster-wide|public|=1000|range 0 null
broker|group.consumer.assignor.offload.enable|BOOLEAN|MEDIUM|cluster-wide|internal|=true|-
broker|group.consumer.assignors|LIST|MEDIUM|read-only|public|=uniform,range|list false false
broker|group.consumer.heartbeat.interval.ms|INT|MEDIUM|read-only|public|=5000|range 1 null
broker|group.consumer.max.assignment.interval.ms|INT|MEDIUM|read-only|public|=15000|range 0 null
broker|group.consumer.max.heartbeat.interval.ms|INT|MEDIUM|read-only|public|=15000|range 1 null
broker|group.consumer.max.session.timeout.ms|INT|MEDIUM|read-only|public|=60000|range 1 null
broker|group.consumer.max.size|INT|MEDIUM|read-only|public|=2147483647|range 1 null
broker|group.consumer.migration.policy|STRING|MEDIUM|read-only|public|=bidirectional|words-of-any-case BIDIRECTIONAL,DISABLED,DOWNGRADE,UPGRADE
broker|group.consumer.min.assignment.interval.ms|INT|MEDIUM|read-only|public|=0|range 0 null
broker|group.consumer.min.heartbeat.interval.ms|INT|MEDIUM|read-only|public|=5000|range 1 null
broker|group.consumer.min.session.timeout.ms|INT|MEDIUM|read-only|public|=45000|range 1 null
broker|group.consumer.regex.refresh.interval.ms|INT|MEDIUM|read-only|internal|=600000|range 10000 null
broker|group.consumer.session.timeout.ms|INT|MEDIUM|read-only|public|=45000|range 1 null
broker|group.coordinator.append.linger.ms|INT|MEDIUM|read-only|public|=-1|range -1 null
broker|group.coordinator.background.threads|INT|HIGH|read-only|public|=2|range 1 null
broker|group.coordinator.cached.buffer.max.bytes|INT|MEDIUM|cluster-wide|public|=1048588|range 524288 null
broker|group.coordinator.rebalance.protocols|LIST|MEDIUM|read-only|public|=classic,consumer,streams|list false false consumer,classic,share,streams
broker|group.coordinator.threads|INT|HIGH|read-only|public|=4|range 1 null
broker|group.initial.rebalance.delay.ms|INT|MEDIUM|read-only|public|=3000|-
broker|group.max.session.timeout.ms|INT|MEDIUM|read-only|public|=1800000|-
broker|group.max.size|INT|MEDIUM|read-only|public|=2147483647|range 1 null
broker|group.min.session.timeout.ms|INT|MEDIUM|read-only|public|=6000|-
broker|group.share.assignment.interval.ms|INT|MEDIUM|cluster-wide|public|=1000|range 0 null
broker|group.share.assignor.offload.enable|BOOLEAN|MEDIUM|cluster-wide|internal|=true|-
broker|group.share.assignors|LIST|MEDIUM|read-only|public|=simple|list false false
broker|group.share.delivery.count.limit|INT|MEDIUM|read-only|public|=5|range 2 10
broker|group.share.dlq.manager.class.name|STRING|MEDIUM|read-only|internal|=org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager|-
broker|group.share.heartbeat.interval.ms|INT|MEDIUM|read-only|public|=5000|range 1 null
broker|group.share.initialize.retry.interval.ms|INT|LOW|read-only|internal|=30000|range 1 null
broker|group.share.max.assignment.interval.ms|INT|MEDIUM|read-only|public|=15000|range 0 null
broker|group.share.max.delivery.count.limit|INT|MEDIUM|read-only|public|=10|range 5 25
broker|group.share.max.heartbeat.interval.ms|INT|MEDIUM|read-only|public|=15000|range 1 null
broker|group.share.max.partition.max.record.locks|INT|MEDIUM|read-only|public|=4000|range 2000 10000
broker|group.share.max.record.lock.duration.ms|INT|MEDIUM|read-only|public|=60000|range 30000 3600000
broker|group.share.max.session.timeout.ms|INT|MEDIUM|read-only|public|=60000|range 1 null
broker|group.share.max.share.sessions|INT|MEDIUM|read-only|public|=2000|range 1 null
broker|group.share.max.size|INT|MEDIUM|read-only|public|=200|range 1 1000
broker|group.share.min.assignment.interval.ms|INT|MEDIUM|read-only|public|=0|range 0 null
broker|group.share.min.delivery.count.limit|INT|MEDIUM|read-only|public|=2|range 2 5
broker|group.share.min.heartbeat.interval.ms|INT|MEDIUM|read-only|public|=5000|range 1 null
broker|group.share.min.partition.max.record.locks|INT|MEDIUM|read-only|public|=100|range 100 2000
broker|group.share.min.record.lock.duration.ms|INT|MEDIUM|read-only|public|=15000|range 1000 30000
broker|group.share.min.session.timeout.ms|INT|MEDIUM|read-only|public|=45000|range 1 null
broker|group.share.partition.max.record.locks|INT|MEDIUM|read-only|public|=2000|range 100 10000
broker|group.share.persister.class.name|STRING|MEDIUM|read-only|internal|=org.apache.kafka.server.share.persister.DefaultStatePersister|-
broker|group.share.record.lock.duration.ms|INT|MEDIUM|read-only|public|=30000|range 1000 3600000
broker|group.share.session.timeout.ms|INT|MEDIUM|read-only|public|=45000|range 1 null
broker|group.streams.acceptable.recovery.lag|LONG|MEDIUM|read-only|internal|=10000|range 0 null
broker|group.streams.assignment.interval.ms|INT|MEDIUM|cluster-wide|public|=1000|range 0 null
broker|group.streams.assignor.offload.enable|BOOLEAN|MEDIUM|cluster-wide|internal|=true|-
broker|group.streams.assignors|LIST|MEDIUM|read-only|public|=sticky|list false false
broker|group.streams.heartbeat.interval.ms|INT|MEDIUM|read-only|public|=5000|range 1 null
broker|group.streams.initial.rebalance.delay.ms|INT|MEDIUM|read-only|public|=3000|range 0 null
broker|group.streams.max.assignment.interval.ms|INT|MEDIUM|read-only|public|=15000|range 0 null
broker|group.streams.max.heartbeat.interval.ms|INT|MEDIUM|read-only|public|=15000|range 1 null
broker|group.streams.max.session.timeout.ms|INT|MEDIUM|read-only|public|=60000|range 1 null
broker|group.streams.max.size|INT|MEDIUM|read-only|public|=2147483647|range 1 null
broker|group.streams.max.standby.replicas|INT|MEDIUM|read-only|public|=2|range 0 null
broker|group.streams.max.warmup.replicas|INT|MEDIUM|read-only|internal|=20|range 0 null
broker|group.streams.min.assignment.interval.ms|INT|MEDIUM|read-only|public|=0|range 0 null
broker|group.streams.min.heartbeat.interval.ms|INT|MEDIUM|read-only|public|=5000|range 1 null
broker|group.streams.min.session.timeout.ms|INT|MEDIUM|read-only|public|=45000|range 1 null
broker|group.streams.min.task.offset.interval.ms|INT|MEDIUM|read-only|internal|=15000|range 1 null
broker|group.streams.num.standby.replicas|INT|MEDIUM|read-only|public|=0|range 0 null
broker|group.streams.num.warmup.replicas|INT|MEDIUM|read-only|internal|=2|range 0 null
broker|group.streams.rack.aware.assignment.tags|LIST|LOW|read-only|public|=|list true false
broker|group.streams.session.timeout.ms|INT|MEDIUM|read-only|public|=45000|range 1 null
broker|group.streams.task.offset.interval.ms|INT|MEDIUM|read-only|internal|=60000|range 1 null
broker|group.streams.topology.description.plugin.class|CLASS|MEDIUM|read-only|public|null|-
broker|initial.broker.registration.timeout.ms|INT|MEDIUM|read-only|public|=60000|-
broker|inter.broker.listener.name|STRING|MEDIUM|read-only|public|null|-
broker|internal.metadata.delete.delay.millis|LONG|LOW|read-only|internal|=60000|-
broker|internal.metadata.log.segment.bytes|INT|LOW|read-only|internal|null|-
broker|internal.metadata.max.batch.size.in.bytes|INT|LOW|read-only|internal|=8388608|-
broker|kafka.metrics.polling.interval.secs|INT|LOW|read-only|public|=10|range 1 null
broker|kafka.metrics.reporters|LIST|LOW|read-only|public|=|list true false
broker|leader.imbalance.check.interval.seconds|LONG|HIGH|read-only|public|=300|range 1 null
broker|listener.security.protocol.map|STRING|LOW|per-broker|public|=SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT|-
broker|listeners|LIST|HIGH|per-broker|public|=PLAINTEXT://:9092|list false false
broker|log.cleaner.backoff.ms|LONG|MEDIUM|cluster-wide|public|=15000|range 0 null
broker|log.cleaner.dedupe.buffer.size|LONG|MEDIUM|cluster-wide|public|=134217728|-
broker|log.cleaner.delete.retention.ms|LONG|MEDIUM|cluster-wide|public|=86400000|range 0 null
broker|log.cleaner.enable|BOOLEAN|MEDIUM|read-only|public|=true|-
broker|log.cleaner.io.buffer.load.factor|DOUBLE|MEDIUM|cluster-wide|public|=0.9|-
broker|log.cleaner.io.buffer.size|INT|MEDIUM|cluster-wide|public|=524288|range 0 null
broker|log.cleaner.io.max.bytes.per.second|DOUBLE|MEDIUM|cluster-wide|public|=1.7976931348623157E308|-
broker|log.cleaner.max.compaction.lag.ms|LONG|MEDIUM|cluster-wide|public|=9223372036854775807|range 1 null
broker|log.cleaner.min.cleanable.ratio|DOUBLE|MEDIUM|cluster-wide|public|=0.5|range 0 1
broker|log.cleaner.min.compaction.lag.ms|LONG|MEDIUM|cluster-wide|public|=0|range 0 null
broker|log.cleaner.threads|INT|MEDIUM|cluster-wide|public|=1|range 0 null
broker|log.cleanup.policy|LIST|MEDIUM|cluster-wide|public|=delete|list true false compact,delete
broker|log.dir|LIST|HIGH|read-only|public|=/tmp/kafka-logs|list false false
broker|log.dir.failure.timeout.ms|LONG|LOW|read-only|public|=30000|range 1 null
broker|log.dirs|LIST|HIGH|read-only|public|null|list false true
broker|log.flush.interval.messages|LONG|HIGH|cluster-wide|public|=9223372036854775807|range 1 null
broker|log.flush.interval.ms|LONG|HIGH|cluster-wide|public|null|-
broker|log.flush.offset.checkpoint.interval.ms|INT|HIGH|read-only|public|=60000|range 0 null
broker|log.flush.scheduler.interval.ms|LONG|HIGH|read-only|public|=9223372036854775807|-
broker|log.flush.start.offset.checkpoint.interval.ms|INT|HIGH|read-only|public|=60000|range 0 null
broker|log.index.interval.bytes|INT|MEDIUM|cluster-wide|public|=4096|range 0 null
broker|log.index.size.max.bytes|INT|MEDIUM|cluster-wide|public|=10485760|range 4 null
broker|log.initial.task.delay.ms|LONG|LOW|read-only|internal|=30000|range 0 null
broker|log.local.retention.bytes|LONG|MEDIUM|cluster-wide|public|=-2|range -2 null
broker|log.local.retention.ms|LONG|MEDIUM|cluster-wide|public|=-2|range -2 null
broker|log.message.timestamp.after.max.ms|LONG|MEDIUM|cluster-wide|public|=3600000|range 0 null
broker|log.message.timestamp.before.max.ms|LONG|MEDIUM|cluster-wide|public|=9223372036854775807|range 0 null
broker|log.message.timestamp.type|STRING|MEDIUM|cluster-wide|public|=CreateTime|words CreateTime,LogAppendTime
broker|log.preallocate|BOOLEAN|MEDIUM|cluster-wide|public|=false|-
broker|log.remote.copy.lag.bytes|LONG|MEDIUM|cluster-wide|public|=-1|range -1 null
broker|log.remote.copy.lag.ms|LONG|MEDIUM|cluster-wide|public|=0|range -1 null
broker|log.retention.bytes|LONG|HIGH|cluster-wide|public|=-1|-
broker|log.retention.check.interval.ms|LONG|MEDIUM|read-only|public|=300000|range 1 null
broker|log.retention.hours|INT|HIGH|read-only|public|=168|-
broker|log.retention.minutes|INT|HIGH|read-only|public|null|-
broker|log.retention.ms|LONG|HIGH|cluster-wide|public|null|-
broker|log.roll.hours|INT|HIGH|read-only|public|=168|range 1 null
broker|log.roll.jitter.hours|INT|HIGH|read-only|public|=0|range 0 null
broker|log.roll.jitter.ms|LONG|HIGH|cluster-wide|public|null|-
broker|log.roll.ms|LONG|HIGH|cluster-wide|public|null|-
broker|log.segment.bytes|INT|HIGH|cluster-wide|public|=1073741824|range 1048576 null
broker|log.segment.delete.delay.ms|LONG|HIGH|cluster-wide|public|=60000|range 0 null
broker|max.connection.creation.rate|INT|MEDIUM|cluster-wide|public|=2147483647|range 0 null
broker|max.connections|INT|MEDIUM|cluster-wide|public|=2147483647|range 0 null
broker|max.connections.per.ip|INT|MEDIUM|cluster-wide|public|=2147483647|range 0 null
broker|max.connections.per.ip.overrides|STRING|MEDIUM|cluster-wide|public|=|-
broker|max.decompressed.message.bytes|INT|MEDIUM|cluster-wide|public|=2147483639|range 1 2147483639
broker|max.incremental.fetch.session.cache.slots|INT|MEDIUM|read-only|public|=1000|range 0 null
broker|max.request.partition.size.limit|INT|MEDIUM|read-only|public|=2000|range 1 null
broker|message.max.bytes|INT|HIGH|cluster-wide|public|=1048588|range 0 null
broker|metadata.log.dir|STRING|HIGH|read-only|public|null|-
broker|metadata.log.max.record.bytes.between.snapshots|LONG|HIGH|read-only|public|=20971520|range 1 null
broker|metadata.log.max.snapshot.interval.ms|LONG|HIGH|read-only|public|=3600000|range 0 null
broker|metadata.log.segment.bytes|INT|HIGH|read-only|public|=1073741824|range 8388608 null
broker|metadata.log.segment.ms|LONG|HIGH|read-only|public|=604800000|-
broker|metadata.max.idle.interval.ms|INT|LOW|read-only|public|=500|range 0 null
broker|metadata.max.retention.bytes|LONG|HIGH|read-only|public|=104857600|-
broker|metadata.max.retention.ms|LONG|HIGH|read-only|public|=604800000|-
broker|metric.reporters|LIST|LOW|cluster-wide|public|=org.apache.kafka.common.metrics.JmxReporter|list true false
broker|metrics.num.samples|INT|LOW|read-only|public|=2|range 1 null
broker|metrics.recording.level|STRING|LOW|read-only|public|=INFO|-
broker|metrics.sample.window.ms|LONG|LOW|read-only|public|=30000|range 1 null
broker|min.insync.replicas|INT|HIGH|cluster-wide|public|=1|range 1 null
broker|node.id|INT|HIGH|read-only|public|required|range 0 null
broker|num.io.threads|INT|HIGH|cluster-wide|public|=8|range 1 null
broker|num.network.threads|INT|HIGH|cluster-wide|public|=3|range 1 null
broker|num.partitions|INT|MEDIUM|read-only|public|=1|range 1 null
broker|num.recovery.threads.per.data.dir|INT|HIGH|cluster-wide|public|=2|range 1 null
broker|num.replica.alter.log.dirs.threads|INT|HIGH|read-only|public|null|-
broker|num.replica.fetchers|INT|HIGH|cluster-wide|public|=1|range 1 null
broker|offset.metadata.max.bytes|INT|HIGH|read-only|public|=4096|-
broker|offsets.commit.timeout.ms|INT|HIGH|read-only|public|=5000|range 1 null
broker|offsets.load.buffer.size|INT|HIGH|read-only|public|=5242880|range 1 null
broker|offsets.retention.check.interval.ms|LONG|HIGH|read-only|public|=600000|range 1 null
broker|offsets.retention.minutes|INT|HIGH|read-only|public|=10080|range 1 null
broker|offsets.topic.compression.codec|INT|HIGH|read-only|public|=0|-
broker|offsets.topic.num.partitions|INT|HIGH|read-only|public|=50|range 1 null
broker|offsets.topic.replication.factor|SHORT|HIGH|read-only|public|=3|range 1 null
broker|offsets.topic.segment.bytes|INT|HIGH|read-only|public|=104857600|range 1 null
broker|principal.builder.class|CLASS|MEDIUM|per-broker|public|=org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder|-
broker|process.roles|LIST|HIGH|read-only|public|required|list false false broker,controller
broker|producer.id.expiration.check.interval.ms|INT|LOW|read-only|internal|=600000|range 1 null
broker|producer.id.expiration.ms|INT|LOW|cluster-wide|public|=86400000|range 1 null
broker|producer.purgatory.purge.interval.requests|INT|MEDIUM|read-only|public|=1000|-
broker|queued.max.request.bytes|LONG|MEDIUM|read-only|public|=-1|-
broker|queued.max.requests|INT|HIGH|read-only|public|=500|range 1 null
broker|quota.window.num|INT|LOW|read-only|public|=11|range 1 null
broker|quota.window.size.seconds|INT|LOW|read-only|public|=1|range 1 null
broker|remote.fetch.max.wait.ms|INT|MEDIUM|cluster-wide|public|=500|range 1 null
broker|remote.list.offsets.request.timeout.ms|LONG|MEDIUM|cluster-wide|public|=30000|range 1 null
broker|remote.log.index.file.cache.total.size.bytes|LONG|LOW|cluster-wide|public|=1073741824|range 1 null
broker|remote.log.index.file.cache.ttl.ms|LONG|LOW|read-only|internal|=900000|range -1 null
broker|remote.log.manager.copier.thread.pool.size|INT|MEDIUM|cluster-wide|public|=10|range 1 null
broker|remote.log.manager.copy.max.bytes.per.second|LONG|MEDIUM|cluster-wide|public|=9223372036854775807|range 1 null
broker|remote.log.manager.copy.quota.window.num|INT|MEDIUM|read-only|public|=11|range 1 null
broker|remote.log.manager.copy.quota.window.size.seconds|INT|MEDIUM|read-only|public|=1|range 1 null
broker|remote.log.manager.expiration.thread.pool.size|INT|MEDIUM|cluster-wide|public|=10|range 1 null
broker|remote.log.manager.fetch.max.bytes.per.second|LONG|MEDIUM|cluster-wide|public|=9223372036854775807|range 1 null
broker|remote.log.manager.fetch.quota.window.num|INT|MEDIUM|read-only|public|=11|range 1 null
broker|remote.log.manager.fetch.quota.window.size.seconds|INT|MEDIUM|read-only|public|=1|range 1 null
broker|remote.log.manager.follower.thread.pool.size|INT|MEDIUM|cluster-wide|public|=2|range 1 null
broker|remote.log.manager.task.interval.ms|LONG|LOW|read-only|public|=30000|range 1 null
broker|remote.log.manager.task.retry.backoff.max.ms|LONG|LOW|read-only|internal|=30000|range 1 null
broker|remote.log.manager.task.retry.backoff.ms|LONG|LOW|read-only|internal|=500|range 1 null
broker|remote.log.manager.task.retry.jitter|DOUBLE|LOW|read-only|internal|=0.2|range 0 0.5
broker|remote.log.manager.thread.pool.size|INT|MEDIUM|read-only|public|=2|range 1 null
broker|remote.log.metadata.custom.metadata.max.bytes|INT|LOW|read-only|public|=128|range 0 null
broker|remote.log.metadata.manager.class.name|STRING|MEDIUM|read-only|public|=org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager|other non-empty string
broker|remote.log.metadata.manager.class.path|STRING|MEDIUM|read-only|public|null|-
broker|remote.log.metadata.manager.impl.prefix|STRING|MEDIUM|read-only|public|=rlmm.config.|other non-empty string
broker|remote.log.metadata.manager.listener.name|STRING|MEDIUM|read-only|public|null|other non-empty string
broker|remote.log.reader.max.pending.tasks|INT|MEDIUM|read-only|public|=100|range 1 null
broker|remote.log.reader.threads|INT|MEDIUM|cluster-wide|public|=10|range 1 null
broker|remote.log.storage.manager.class.name|STRING|MEDIUM|read-only|public|null|other non-empty string
broker|remote.log.storage.manager.class.path|STRING|MEDIUM|read-only|public|null|-
broker|remote.log.storage.manager.impl.prefix|STRING|MEDIUM|read-only|public|=rsm.config.|other non-empty string
broker|remote.log.storage.system.enable|BOOLEAN|MEDIUM|read-only|public|=false|-
broker|replica.fetch.backoff.ms|INT|MEDIUM|read-only|public|=1000|range 0 null
broker|replica.fetch.max.bytes|INT|MEDIUM|read-only|public|=1048576|range 0 null
broker|replica.fetch.min.bytes|INT|HIGH|read-only|public|=1|-
broker|replica.fetch.response.max.bytes|INT|MEDIUM|read-only|public|=10485760|range 0 null
broker|replica.fetch.wait.max.ms|INT|HIGH|read-only|public|=500|-
broker|replica.high.watermark.checkpoint.interval.ms|LONG|HIGH|read-only|public|=5000|-
broker|replica.lag.time.max.ms|LONG|HIGH|read-only|public|=30000|-
broker|replica.selector.class|STRING|MEDIUM|read-only|public|null|-
broker|replica.socket.receive.buffer.bytes|INT|HIGH|read-only|public|=65536|-
broker|replica.socket.timeout.ms|INT|HIGH|read-only|public|=30000|-
broker|replication.quota.window.num|INT|LOW|read-only|public|=11|range 1 null
broker|replication.quota.window.size.seconds|INT|LOW|read-only|public|=1|range 1 null
broker|request.timeout.ms|INT|HIGH|read-only|public|=30000|-
broker|sasl.client.callback.handler.class|CLASS|MEDIUM|read-only|public|null|-
broker|sasl.enabled.mechanisms|LIST|MEDIUM|per-broker|public|=GSSAPI|list true false
broker|sasl.jaas.config|PASSWORD|MEDIUM|per-broker|public|null|-
broker|sasl.kerberos.kinit.cmd|STRING|MEDIUM|per-broker|public|=/usr/bin/kinit|-
broker|sasl.kerberos.min.time.before.relogin|LONG|MEDIUM|per-broker|public|=60000|-
broker|sasl.kerberos.principal.to.local.rules|LIST|MEDIUM|per-broker|public|=DEFAULT|list true false
broker|sasl.kerberos.service.name|STRING|MEDIUM|per-broker|public|null|-
broker|sasl.kerberos.ticket.renew.jitter|DOUBLE|MEDIUM|per-broker|public|=0.05|-
broker|sasl.kerberos.ticket.renew.window.factor|DOUBLE|MEDIUM|per-broker|public|=0.8|-
broker|sasl.login.callback.handler.class|CLASS|MEDIUM|read-only|public|null|-
broker|sasl.login.class|CLASS|MEDIUM|read-only|public|null|-
broker|sasl.login.connect.timeout.ms|INT|LOW|read-only|public|null|-
broker|sasl.login.read.timeout.ms|INT|LOW|read-only|public|null|-
broker|sasl.login.refresh.buffer.seconds|SHORT|MEDIUM|per-broker|public|=300|-
broker|sasl.login.refresh.min.period.seconds|SHORT|MEDIUM|per-broker|public|=60|-
broker|sasl.login.refresh.window.factor|DOUBLE|MEDIUM|per-broker|public|=0.8|-
broker|sasl.login.refresh.window.jitter|DOUBLE|MEDIUM|per-broker|public|=0.05|-
broker|sasl.login.retry.backoff.max.ms|LONG|LOW|read-only|public|=10000|-
broker|sasl.login.retry.backoff.ms|LONG|LOW|read-only|public|=100|-
broker|sasl.mechanism.controller.protocol|STRING|HIGH|read-only|public|=GSSAPI|-
broker|sasl.mechanism.inter.broker.protocol|STRING|MEDIUM|per-broker|public|=GSSAPI|-
broker|sasl.oauthbearer.allow.unverified.audience|BOOLEAN|MEDIUM|read-only|public|=false|-
broker|sasl.oauthbearer.allow.unverified.issuer|BOOLEAN|MEDIUM|read-only|public|=false|-
broker|sasl.oauthbearer.assertion.algorithm|STRING|MEDIUM|read-only|public|=RS256|words-of-any-case ES256,RS256
broker|sasl.oauthbearer.assertion.claim.aud|STRING|MEDIUM|read-only|public|null|-
broker|sasl.oauthbearer.assertion.claim.exp.seconds|INT|LOW|read-only|public|=300|range 0 86400
broker|sasl.oauthbearer.assertion.claim.iss|STRING|MEDIUM|read-only|public|null|-
broker|sasl.oauthbearer.assertion.claim.jti.include|BOOLEAN|MEDIUM|read-only|public|=false|-
broker|sasl.oauthbearer.assertion.claim.nbf.seconds|INT|LOW|read-only|public|=60|range 0 3600
broker|sasl.oauthbearer.assertion.claim.sub|STRING|MEDIUM|read-only|public|null|-
broker|sasl.oauthbearer.assertion.file|STRING|MEDIUM|read-only|public|null|-
broker|sasl.oauthbearer.assertion.private.key.file|STRING|MEDIUM|read-only|public|null|-
broker|sasl.oauthbearer.assertion.private.key.passphrase|PASSWORD|MEDIUM|read-only|public|null|-
broker|sasl.oauthbearer.assertion.template.file|STRING|MEDIUM|read-only|public|null|-
broker|sasl.oauthbearer.client.credentials.client.id|STRING|MEDIUM|read-only|public|null|-
broker|sasl.oauthbearer.client.credentials.client.secret|PASSWORD|MEDIUM|read-only|public|null|-
broker|sasl.oauthbearer.clock.skew.seconds|INT|LOW|read-only|public|=30|-
broker|sasl.oauthbearer.expected.audience|LIST|HIGH|read-only|public|=|list true false
broker|sasl.oauthbearer.expected.issuer|STRING|HIGH|read-only|public|null|-
broker|sasl.oauthbearer.jwks.endpoint.refresh.ms|LONG|LOW|read-only|public|=3600000|-
broker|sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms|LONG|LOW|read-only|public|=10000|-
broker|sasl.oauthbearer.jwks.endpoint.retry.backoff.ms|LONG|LOW|read-only|public|=100|-
broker|sasl.oauthbearer.jwks.endpoint.url|STRING|MEDIUM|read-only|public|null|-
broker|sasl.oauthbearer.jwt.retriever.class|CLASS|MEDIUM|read-only|public|=org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever|-
broker|sasl.oauthbearer.jwt.validator.class|CLASS|MEDIUM|read-only|public|=org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator|-
broker|sasl.oauthbearer.scope|STRING|MEDIUM|read-only|public|null|-
broker|sasl.oauthbearer.scope.claim.name|STRING|LOW|read-only|public|=scope|-
broker|sasl.oauthbearer.sub.claim.name|STRING|LOW|read-only|public|=sub|-
broker|sasl.oauthbearer.token.endpoint.url|STRING|MEDIUM|read-only|public|null|-
broker|sasl.server.callback.handler.class|CLASS|MEDIUM|read-only|public|null|-
broker|sasl.server.max.receive.size|INT|MEDIUM|read-only|public|=524288|-
broker|security.inter.broker.protocol|STRING|MEDIUM|read-only|public|=PLAINTEXT|words PLAINTEXT,SSL,SASL_PLAINTEXT,SASL_SSL
broker|security.providers|STRING|LOW|read-only|public|null|-
broker|server.max.startup.time.ms|LONG|MEDIUM|read-only|internal|=9223372036854775807|range 0 null
broker|share.coordinator.append.linger.ms|INT|MEDIUM|read-only|public|=-1|range -1 null
broker|share.coordinator.cached.buffer.max.bytes|INT|MEDIUM|cluster-wide|public|=1048588|range 524288 null
broker|share.coordinator.cold.partition.snapshot.interval.ms|INT|LOW|read-only|internal|=300000|range 1 null
broker|share.coordinator.load.buffer.size|INT|HIGH|read-only|public|=5242880|range 1 null
broker|share.coordinator.snapshot.update.records.per.snapshot|INT|MEDIUM|read-only|public|=500|range 0 500
broker|share.coordinator.state.topic.compression.codec|INT|HIGH|read-only|public|=0|-
broker|share.coordinator.state.topic.min.isr|SHORT|HIGH|read-only|public|=2|range 1 null
broker|share.coordinator.state.topic.num.partitions|INT|HIGH|read-only|public|=50|range 1 null
broker|share.coordinator.state.topic.prune.interval.ms|INT|LOW|read-only|internal|=300000|range 1 null
broker|share.coordinator.state.topic.replication.factor|SHORT|HIGH|read-only|public|=3|range 1 null
broker|share.coordinator.state.topic.segment.bytes|INT|HIGH|read-only|public|=104857600|range 1 null
broker|share.coordinator.threads|INT|MEDIUM|read-only|public|=1|range 1 null
broker|share.coordinator.write.timeout.ms|INT|HIGH|read-only|public|=5000|range 1 null
broker|share.fetch.purgatory.purge.interval.requests|INT|MEDIUM|read-only|public|=1000|-
broker|socket.connection.setup.timeout.max.ms|LONG|MEDIUM|read-only|public|=30000|-
broker|socket.connection.setup.timeout.ms|LONG|MEDIUM|read-only|public|=10000|-
broker|socket.listen.backlog.size|INT|MEDIUM|read-only|public|=50|range 1 null
broker|socket.receive.buffer.bytes|INT|HIGH|read-only|public|=102400|-
broker|socket.request.max.bytes|INT|HIGH|read-only|public|=104857600|range 1 null
broker|socket.send.buffer.bytes|INT|HIGH|read-only|public|=102400|-
broker|ssl.allow.dn.changes|BOOLEAN|LOW|read-only|public|=false|-
broker|ssl.allow.san.changes|BOOLEAN|LOW|read-only|public|=false|-
broker|ssl.cipher.suites|LIST|MEDIUM|per-broker|public|=|list true false
broker|ssl.client.auth|STRING|MEDIUM|per-broker|public|=none|words required,requested,none
broker|ssl.enabled.protocols|LIST|MEDIUM|per-broker|public|=TLSv1.2,TLSv1.3|list true false
broker|ssl.endpoint.identification.algorithm|STRING|LOW|per-broker|public|=https|-
broker|ssl.engine.factory.class|CLASS|LOW|per-broker|public|null|-
broker|ssl.key.password|PASSWORD|MEDIUM|per-broker|public|null|-
broker|ssl.keymanager.algorithm|STRING|MEDIUM|per-broker|public|=SunX509|-
broker|ssl.keystore.certificate.chain|PASSWORD|MEDIUM|per-broker|public|null|-
broker|ssl.keystore.key|PASSWORD|MEDIUM|per-broker|public|null|-
broker|ssl.keystore.location|STRING|MEDIUM|per-broker|public|null|-
broker|ssl.keystore.password|PASSWORD|MEDIUM|per-broker|public|null|-
broker|ssl.keystore.type|STRING|MEDIUM|per-broker|public|=JKS|-
broker|ssl.principal.mapping.rules|STRING|LOW|read-only|public|=DEFAULT|-
broker|ssl.protocol|STRING|MEDIUM|per-broker|public|=TLSv1.3|-
broker|ssl.provider|STRING|MEDIUM|per-broker|public|null|-
broker|ssl.secure.random.implementation|STRING|LOW|per-broker|public|null|-
broker|ssl.trustmanager.algorithm|STRING|MEDIUM|per-broker|public|=PKIX|-
broker|ssl.truststore.certificates|PASSWORD|MEDIUM|per-broker|public|null|-
broker|ssl.truststore.location|STRING|MEDIUM|per-broker|public|null|-
broker|ssl.truststore.password|PASSWORD|MEDIUM|per-broker|public|null|-
broker|ssl.truststore.type|STRING|MEDIUM|per-broker|public|=JKS|-
broker|telemetry.max.bytes|INT|LOW|read-only|public|=1048576|range 1 null
broker|transaction.abort.timed.out.transaction.cleanup.interval.ms|INT|LOW|read-only|public|=10000|range 1 null
broker|transaction.max.timeout.ms|INT|HIGH|read-only|public|=900000|range 1 null
broker|transaction.partition.verification.enable|BOOLEAN|LOW|cluster-wide|public|=true|-
broker|transaction.remove.expired.transaction.cleanup.interval.ms|INT|LOW|read-only|public|=3600000|range 1 null
broker|transaction.state.log.load.buffer.size|INT|HIGH|read-only|public|=5242880|range 1 null
broker|transaction.state.log.min.isr|INT|HIGH|read-only|public|=2|range 1 null
broker|transaction.state.log.num.partitions|INT|HIGH|read-only|public|=50|range 1 null
broker|transaction.state.log.replication.factor|SHORT|HIGH|read-only|public|=3|range 1 null
broker|transaction.state.log.segment.bytes|INT|HIGH|read-only|public|=104857600|range 1 null
broker|transaction.two.phase.commit.enable|BOOLEAN|LOW|read-only|public|=false|-
broker|transactional.id.expiration.ms|INT|HIGH|read-only|public|=604800000|range 1 null
broker|unclean.leader.election.enable|BOOLEAN|HIGH|cluster-wide|public|=false|-
broker|unclean.leader.election.interval.ms|LONG|MEDIUM|read-only|internal|=300000|range 1 null
broker|unstable.api.versions.enable|BOOLEAN|HIGH|read-only|internal|=false|-
broker|unstable.feature.versions.enable|BOOLEAN|HIGH|read-only|internal|=false|-
topic|cleanup.policy|LIST|MEDIUM|read-only|public|=delete|list true false compact,delete
topic|compression.gzip.level|INT|MEDIUM|read-only|public|=-1|other [1,...,9] or -1
topic|compression.lz4.level|INT|MEDIUM|read-only|public|=9|range 1 17
topic|compression.type|STRING|MEDIUM|read-only|public|=producer|words uncompressed,zstd,lz4,snappy,gzip,producer
topic|compression.zstd.level|INT|MEDIUM|read-only|public|=3|range -131072 22
topic|delete.retention.ms|LONG|MEDIUM|read-only|public|=86400000|range 0 null
topic|errors.deadletterqueue.group.enable|BOOLEAN|MEDIUM|read-only|public|=false|-
topic|file.delete.delay.ms|LONG|MEDIUM|read-only|public|=60000|range 0 null
topic|flush.messages|LONG|MEDIUM|read-only|public|=9223372036854775807|range 1 null
topic|flush.ms|LONG|MEDIUM|read-only|public|=9223372036854775807|range 0 null
topic|follower.replication.throttled.replicas|LIST|MEDIUM|read-only|public|=|other [partitionId]:[brokerId],[partitionId]:[brokerId],...
topic|index.interval.bytes|INT|MEDIUM|read-only|public|=4096|range 0 null
topic|internal.segment.bytes|INT|MEDIUM|read-only|internal|null|-
topic|leader.replication.throttled.replicas|LIST|MEDIUM|read-only|public|=|other [partitionId]:[brokerId],[partitionId]:[brokerId],...
topic|local.retention.bytes|LONG|MEDIUM|read-only|public|=-2|range -2 null
topic|local.retention.ms|LONG|MEDIUM|read-only|public|=-2|range -2 null
topic|max.compaction.lag.ms|LONG|MEDIUM|read-only|public|=9223372036854775807|range 1 null
topic|max.decompressed.message.bytes|INT|MEDIUM|read-only|public|=2147483639|range 1 2147483639
topic|max.message.bytes|INT|MEDIUM|read-only|public|=1048588|range 0 null
topic|message.timestamp.after.max.ms|LONG|MEDIUM|read-only|public|=3600000|range 0 null
topic|message.timestamp.before.max.ms|LONG|MEDIUM|read-only|public|=9223372036854775807|range 0 null
topic|message.timestamp.type|STRING|MEDIUM|read-only|public|=CreateTime|words CreateTime,LogAppendTime
topic|min.cleanable.dirty.ratio|DOUBLE|MEDIUM|read-only|public|=0.5|range 0 1
topic|min.compaction.lag.ms|LONG|MEDIUM|read-only|public|=0|range 0 null
topic|min.insync.replicas|INT|MEDIUM|read-only|public|=1|range 1 null
topic|preallocate|BOOLEAN|MEDIUM|read-only|public|=false|-
topic|remote.copy.lag.bytes|LONG|MEDIUM|read-only|public|=-1|range -1 null
topic|remote.copy.lag.ms|LONG|MEDIUM|read-only|public|=0|range -1 null
topic|remote.log.copy.disable|BOOLEAN|MEDIUM|read-only|public|=false|-
topic|remote.log.delete.on.disable|BOOLEAN|MEDIUM|read-only|public|=false|-
topic|remote.storage.enable|BOOLEAN|MEDIUM|read-only|public|=false|-
topic|retention.bytes|LONG|MEDIUM|read-only|public|=-1|-
topic|retention.ms|LONG|MEDIUM|read-only|public|=604800000|range -1 null
topic|segment.bytes|INT|MEDIUM|read-only|public|=1073741824|range 1048576 null
topic|segment.index.bytes|INT|MEDIUM|read-only|public|=10485760|range 4 null
topic|segment.jitter.ms|LONG|MEDIUM|read-only|public|=0|range 0 null
topic|segment.ms|LONG|MEDIUM|read-only|public|=604800000|range 1 null
topic|unclean.leader.election.enable|BOOLEAN|MEDIUM|read-only|public|=false|-
group|consumer.assignment.interval.ms|INT|MEDIUM|read-only|public|=1000|range 0 null
group|consumer.assignor.offload.enable|BOOLEAN|MEDIUM|read-only|internal|=true|-
group|consumer.heartbeat.interval.ms|INT|MEDIUM|read-only|public|=5000|range 1 null
group|consumer.session.timeout.ms|INT|MEDIUM|read-only|public|=45000|range 1 null
group|errors.deadletterqueue.copy.record.enable|BOOLEAN|MEDIUM|read-only|public|=false|-
group|errors.deadletterqueue.topic.name|STRING|MEDIUM|read-only|public|=|-
group|share.assignment.interval.ms|INT|MEDIUM|read-only|public|=1000|range 0 null
group|share.assignor.offload.enable|BOOLEAN|MEDIUM|read-only|internal|=true|-
group|share.auto.offset.reset|STRING|MEDIUM|read-only|public|=latest|other [latest, earliest, by_duration:PnDTnHnMn.nS]
group|share.delivery.count.limit|INT|MEDIUM|read-only|public|=5|range 2 null
group|share.heartbeat.interval.ms|INT|MEDIUM|read-only|public|=5000|range 1 null
group|share.isolation.level|STRING|MEDIUM|read-only|public|=read_uncommitted|words read_committed,read_uncommitted
group|share.partition.max.record.locks|INT|MEDIUM|read-only|public|=2000|range 100 null
group|share.record.lock.duration.ms|INT|MEDIUM|read-only|public|=30000|range 1000 null
group|share.renew.acknowledge.enable|BOOLEAN|MEDIUM|read-only|public|=true|-
group|share.session.timeout.ms|INT|MEDIUM|read-only|public|=45000|range 1 null
group|streams.acceptable.recovery.lag|LONG|MEDIUM|read-only|internal|=10000|range 0 null
group|streams.assignment.interval.ms|INT|MEDIUM|read-only|public|=1000|range 0 null
group|streams.assignor.name|STRING|MEDIUM|read-only|public|null|-
group|streams.assignor.offload.enable|BOOLEAN|MEDIUM|read-only|internal|=true|-
group|streams.heartbeat.interval.ms|INT|MEDIUM|read-only|public|=5000|range 1 null
group|streams.initial.rebalance.delay.ms|INT|MEDIUM|read-only|public|=3000|range 0 null
group|streams.num.standby.replicas|INT|MEDIUM|read-only|public|=0|range 0 null
group|streams.num.warmup.replicas|INT|MEDIUM|read-only|internal|=2|range 0 null
group|streams.rack.aware.assignment.tags|LIST|LOW|read-only|public|=|list true false
group|streams.session.timeout.ms|INT|MEDIUM|read-only|public|=45000|range 1 null
group|streams.task.offset.interval.ms|INT|MEDIUM|read-only|internal|=60000|range 1 null
client-metrics|interval.ms|INT|MEDIUM|read-only|public|=300000|-
client-metrics|match|LIST|MEDIUM|read-only|public|=|list true false
client-metrics|metrics|LIST|MEDIUM|read-only|public|=|list true false
quota|consumer_byte_rate|LONG|MEDIUM|read-only|public|=9223372036854775807|-
quota|controller_mutation_rate|DOUBLE|MEDIUM|read-only|public|=2.147483647E9|-
quota|producer_byte_rate|LONG|MEDIUM|read-only|public|=9223372036854775807|-
quota|request_percentage|DOUBLE|MEDIUM|read-only|public|=2.147483647E9|-
ip-quota|connection_creation_rate|INT|MEDIUM|read-only|public|=2147483647|range 0 null
broker-quota|follower.replication.throttled.rate|LONG|MEDIUM|read-only|public|=9223372036854775807|range 0 null
broker-quota|leader.replication.throttled.rate|LONG|MEDIUM|read-only|public|=9223372036854775807|range 0 null
broker-quota|replica.alter.log.dirs.io.max.bytes.per.second|LONG|MEDIUM|read-only|public|=9223372036854775807|range 0 null
"""
