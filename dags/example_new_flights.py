"""Example of a DAG that follows a table: it runs after each commit of the pipeline `flights`, and reads its new rows.

Each commit updates the table as an Airflow asset; an empty interval doesn't. The asset's events carry the table's last
instant. This DAG keeps its own position in Airflow's state store of the asset, so that no row is skipped or read twice,
even if runs fail or events come out of order. New rows are those committed after that position, up to the event's
instant.

It needs hudi-rs (`pip install hudi`), which reads Hudi tables without Spark. Switch the DAG on in Airflow's pages.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from sluice.airflow import state
from sluice.airflow.assets import table_asset
from sluice.pipeline import load_pipeline

# The same as Asset("<the table's path>"): a DAG of another repository needs only the path.
FLIGHTS = table_asset(load_pipeline(Path(__file__).with_name("pipelines") / "flights.yaml"))
READ_UP_TO = "example_new_flights.read_up_to"
LATEST = 20  # events to look at

with DAG(
    dag_id="example_new_flights",
    description="Counts the new rows of the table flights by carrier, after each commit.",
    schedule=[FLIGHTS],
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,
    tags={"example"},
):

    @task(inlets=[FLIGHTS])
    def count_new_flights(inlet_events: Any = None, asset_state_store: Any = None) -> dict[str, int]:
        """New rows of each carrier, since this task last succeeded."""
        from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

        events = [event.extra for event in inlet_events[FLIGHTS].ascending(False).limit(LATEST)]
        latest = max(events, key=lambda extra: extra["instant"])  # not the last sent: one may have been delayed
        store = state.of_asset(asset_state_store, FLIGHTS)  # before Airflow 3.3, a variable
        since, until = store.get(READ_UP_TO, default="0"), latest["instant"]
        if until <= since:  # rows that this task has read aren't read again
            return {}
        # Hudi's incremental queries go by the time at which a commit was complete, which is later than its instant. So
        # the instant bounds the files to be read, from below, and the rows' own column says which of them are new.
        new = [("_hoodie_commit_time", ">", since), ("_hoodie_commit_time", "<=", until)]
        options = HudiReadOptions(filters=new).with_query_type(HudiQueryType.Incremental).with_start_timestamp(since)
        table = HudiTableBuilder.from_base_uri(latest["path"]).build()
        carriers: Counter[str] = Counter()
        for batch in table.read(options):
            carriers.update(str(carrier) for carrier in batch.column("carrier").to_pylist())
        store.set(READ_UP_TO, until)
        return dict(carriers)

    count_new_flights()
