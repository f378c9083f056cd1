"""Histories as SQL over the raw records: window functions of Spark that know nothing of our replay."""

RAW = {
    "created": "PartitionRecord",
    "changed": "PartitionChangeRecord",
    "removed": "RemoveTopicRecord",
    "topics": "TopicRecord",
    "configs": "ConfigRecord",
}
"""The temporary views that the queries read, and the views of the source behind them."""

PARTITIONS = """
with changes as (
  select cluster, topic_id, partition_id, offset, timestamp, leader_epoch, leader, isr, replicas,
         adding_replicas, removing_replicas, true as made
  from created
  union all
  select cluster, topic_id, partition_id, offset, timestamp, null, nullif(leader, -2), isr, replicas,
         adding_replicas, removing_replicas, false
  from changed
)
select cluster, topic_id, partition_id, offset, timestamp,
       last_value(leader) ignore nulls over told as leader,
       first_value(leader_epoch) over told + count_if(not made and leader is not null) over told as leader_epoch,
       last_value(isr) ignore nulls over told as isr,
       last_value(replicas) ignore nulls over told as replicas,
       last_value(adding_replicas) ignore nulls over told as adding_replicas,
       last_value(removing_replicas) ignore nulls over told as removing_replicas,
       made or leader is not null as elected
from changes
window told as (partition by cluster, topic_id, partition_id order by offset)
"""
LEADERS = """
with led as (
  select *, lead(offset) over (partition by cluster, topic_id, partition_id order by offset) as following
  from partitions where elected
)
select led.cluster, led.topic_id, led.partition_id, led.leader, led.leader_epoch, led.isr, led.replicas, led.offset,
       coalesce(led.following, removed.offset) as until
from led left join removed on removed.cluster = led.cluster and removed.topic_id = led.topic_id
"""
CONFIGS = """
with ended as (
  select removed.cluster, 2 as resource_type, topics.name as resource_name, removed.offset
  from removed join topics on topics.cluster = removed.cluster and topics.topic_id = removed.topic_id
),
steps as (
  select cluster, resource_type, resource_name, name, value, offset,
         lead(offset) over (partition by cluster, resource_type, resource_name, name order by offset) as following
  from configs
)
select steps.cluster, steps.resource_name, steps.name, steps.value, steps.offset,
       least(any_value(steps.following), min(ended.offset)) as until
from steps
left join ended on ended.cluster = steps.cluster and ended.resource_type = steps.resource_type
  and ended.resource_name = steps.resource_name and ended.offset > steps.offset
where steps.value is not null
group by all
"""
