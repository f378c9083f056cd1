"""The events themselves, made with OpenLineage's own package: only the module `lineage` beside imports this one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    RunFacet,
    dataset_version_dataset,
    documentation_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    parent_run,
    processing_engine_run,
    schema_dataset,
    storage_dataset,
    symlinks_dataset,
    tags_dataset,
    tags_run,
)
from openlineage.client.uuid import generate_new_uuid

from metadata_log.arrow.schema import COMMENT
from metadata_log.history.views import VIEWS
from metadata_log.spark.lakes import lake as lakes
from metadata_log.spark.lakes.publish import FURTHER, FURTHER_OF_RUNS
from metadata_log.spark.lakes.rows import Delta, Iceberg, Lake, Parquet
from metadata_log.spark.materialize import RUN_SCHEMA, Fleet
from metadata_log.spark.storage import is_remote, local_path
from metadata_log.tables.cluster import ClusterOutcome
from metadata_log.tables.cluster import Job as TablesJob
from metadata_log.tables.files import RUNS, table_schema

_PATIENCE_S: Final = 10.0
"""How long the end of a run waits for a transport that sends in the background."""
_SAME: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
"""The protocols that OpenLineage names otherwise."""
_TAGS_OF: Final = "TRIO_KRAFT"
_PARENT: Final = "OPENLINEAGE_PARENT_ID"
_DOC_OF_RUNS: Final = "A row for each run and cluster."


class Events:
    """The events of one run. All methods raise whatever the transport raises.

    Args:
        job: The run.
        lake: The format and the place of the tables; None for Parquet on disk.
    """

    def __init__(self, job: TablesJob, lake: Lake | None) -> None:
        self._client = OpenLineageClient()
        self._job = job
        self._lake = lake
        self._id = str(generate_new_uuid())
        self._producer = f"pkg:pypi/trio-kraft@{job.version}"

    def send(self, state: str, fleet: Fleet, outcomes: Mapping[str, ClusterOutcome], message: str | None) -> None:
        """Send one event.

        Args:
            state: START, COMPLETE, FAIL or ABORT.
            fleet: The logs.
            outcomes: What was done, by cluster.
            message: Why the run failed.
        """
        kind = job_type_job.JobTypeJobFacet("BATCH", _TAGS_OF, "JOB", producer=self._producer)
        namespace = os.environ.get("OPENLINEAGE_NAMESPACE", "default")
        self._client.emit(
            RunEvent(
                eventType=RunState[state],
                eventTime=datetime.now(UTC).isoformat(),
                run=Run(self._id, self._run_facets(message)),
                job=Job(namespace, f"kraft fleet materialize {self._place}", {"jobType": kind}),
                inputs=[self._input(one.path, one.cluster, outcomes.get(one.cluster)) for one in fleet.directories],
                outputs=self._outputs(has_run=bool(outcomes)),
                producer=self._producer,
            )
        )

    def close(self) -> None:
        """Wait for a transport that sends in the background."""
        self._client.close(_PATIENCE_S)

    @property
    def _place(self) -> str:
        match self._lake:
            case None:
                return self._job.root
            case Delta(location=location) | Parquet(location=location):
                return location
            case Iceberg(namespace=namespace, catalog=catalog):
                return f"{catalog}.{namespace}"

    def _run_facets(self, message: str | None) -> dict[str, RunFacet]:
        producer, job = self._producer, self._job
        id_of_run = tags_run.TagsRunFacetFields("run", job.run, _TAGS_OF)
        facets: dict[str, RunFacet] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
                job.version, "trio-kraft", producer=producer
            ),
            "tags": tags_run.TagsRunFacet([id_of_run], producer=producer),
        }
        if message is not None:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(message, "PYTHON", producer=producer)
        if above := os.environ.get(_PARENT):
            # As Airflow hands it to dbt: namespace/job/run.
            namespace, name, id_above = above.rsplit("/", 2)
            facets["parent"] = parent_run.ParentRunFacet(
                parent_run.Run(id_above), parent_run.Job(namespace, name), producer=producer
            )
        return facets

    def _input(self, path: str, cluster: str, outcome: ClusterOutcome | None) -> InputDataset:
        producer = self._producer
        id_of_cluster = tags_dataset.TagsDatasetFacetFields("cluster", cluster, _TAGS_OF)
        facets: dict[str, DatasetFacet] = {"tags": tags_dataset.TagsDatasetFacet([id_of_cluster], producer=producer)}
        namespace, name = _named(path)
        if outcome is None:
            return InputDataset(namespace, name, {}, facets=facets)
        if outcome.to_offset is not None:
            facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
                str(outcome.to_offset), producer=producer
            )
        read = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(outcome.records, producer=producer)
        return InputDataset(namespace, name, {"inputStatistics": read}, facets=facets)

    def _outputs(self, *, has_run: bool) -> list[OutputDataset]:
        job, lake = self._job, self._lake
        if isinstance(lake, Iceberg) and not has_run:
            return []  # its catalog knows where the tables are, and may not be there yet
        names = [*job.views, RUNS]
        places = {name: f"{job.root}/{name}" for name in names} if lake is None else lakes.places(lake, names)
        return [self._output(name, place) for name, place in places.items()]

    def _output(self, table: str, place: str) -> OutputDataset:
        producer, lake = self._producer, self._lake
        doc = _DOC_OF_RUNS if table == RUNS else VIEWS[table].doc
        columns = [_field(field) for field in _columns(table, is_lake=lake is not None)]
        facets: dict[str, DatasetFacet] = {
            "schema": schema_dataset.SchemaDatasetFacet(columns, producer=producer),
            "documentation": documentation_dataset.DocumentationDatasetFacet(doc, producer=producer),
        }
        if isinstance(lake, Delta | Iceberg):
            layer = type(lake).__name__.lower()
            facets["storage"] = storage_dataset.StorageDatasetFacet(layer, "parquet", producer=producer)
        if isinstance(lake, Iceberg):
            name = symlinks_dataset.Identifier(lake.catalog, f"{lake.namespace}.{table}", "TABLE")
            facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet([name], producer=producer)
        namespace, name_of_table = _named(place)
        return OutputDataset(namespace, name_of_table, facets=facets)


def _columns(table: str, *, is_lake: bool) -> list[pa.Field]:
    """The columns of a table, with those of its partitions."""
    if table == RUNS:
        return [*RUN_SCHEMA, *(FURTHER_OF_RUNS if is_lake else FURTHER_OF_RUNS[:1])]
    return [*table_schema(table), *(FURTHER if is_lake else FURTHER[:2])]


def _field(field: pa.Field) -> schema_dataset.SchemaDatasetFacetFields:
    doc = (field.metadata or {}).get(COMMENT)
    return schema_dataset.SchemaDatasetFacetFields(field.name, str(field.type), None if doc is None else doc.decode())


def _named(path: str) -> tuple[str, str]:
    """The namespace and the name of a path, as OpenLineage's specification has them."""
    if not is_remote(path):
        return "file", os.path.abspath(local_path(path))
    parts = urlsplit(path)
    return f"{_SAME.get(parts.scheme, parts.scheme)}://{parts.netloc}", parts.path.strip("/") or "/"
