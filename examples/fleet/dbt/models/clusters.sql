-- clusters: each cluster of the tables with its name; a cluster that the file of names lacks keeps its id.
select distinct
  seen.cluster,
  coalesce(named.name, seen.cluster) as cluster_name,
  coalesce(named.environment, 'unknown') as environment
from {{ source('kraft', 'retention') }} as seen
left join {{ source('kraft', 'clusters') }} as named on named.cluster = seen.cluster
