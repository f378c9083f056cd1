-- incidents_named: each incident once, with the name of its cluster. An incident that still grows has no valid_to.
select
  clusters.cluster_name,
  clusters.environment,
  incidents.incident,
  incidents.valid_from,
  incidents.valid_to,
  incidents.seconds,
  len(incidents.leaderless_partitions) as partitions_without_leader,
  incidents.leaderless_partition_seconds,
  incidents.below_min_isr_partition_seconds,
  incidents.cause_text
from {{ source('kraft', 'incidents') }} as incidents
join {{ ref('clusters') }} as clusters on clusters.cluster = incidents.cluster
