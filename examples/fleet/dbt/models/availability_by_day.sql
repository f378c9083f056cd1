-- availability_by_day: per cluster and day, the time that partitions were without a leader. The day is that of the end.
select
  cluster_name,
  environment,
  cast(coalesce(valid_to, valid_from) as date) as day,
  count(*) as incidents,
  round(sum(leaderless_partition_seconds), 3) as leaderless_partition_seconds,
  round(sum(below_min_isr_partition_seconds), 3) as below_min_isr_partition_seconds
from {{ ref('incidents_named') }}
group by cluster_name, environment, cast(coalesce(valid_to, valid_from) as date)
