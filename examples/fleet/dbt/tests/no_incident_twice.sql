-- A test of the models: a row here is an error. An incident appears once.
select cluster_name, incident, count(*) as times
from {{ ref('incidents_named') }}
group by cluster_name, incident
having count(*) > 1
