"""An Airflow DAG: the tables and the names of the clusters first, behind their gate; then the report."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from fleet_commands import shell

with DAG(
    "kraft_fleet",
    schedule="0 3 * * *",
    start_date=datetime(2026, 11, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2},
) as dag:
    steps = {
        name: BashOperator(
            task_id=name, bash_command=line, append_env=True, cwd="{{ var.value.get('kraft_home', '.') }}"
        )
        for name, line in shell("airflow-{{ ds }}").items()
    }
    steps["materialize"] >> steps["report"]
