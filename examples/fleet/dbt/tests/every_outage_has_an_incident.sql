-- A test of the models: a row here is an error. Both tables have the same time without a leader.
with outages as (
  select cluster, sum(seconds) as seconds from {{ source('kraft', 'unavailability') }} where kind = 'leaderless' group by cluster
), grouped as (
  select cluster, sum(leaderless_partition_seconds) as seconds from {{ source('kraft', 'incidents') }} group by cluster
)
select outages.cluster, outages.seconds as outages, grouped.seconds as grouped
from outages left join grouped on grouped.cluster = outages.cluster
where grouped.seconds is null or abs(outages.seconds - grouped.seconds) > 0.001
