"""Example of a DAG that follows a table: it runs after each commit of the pipeline `flights`, and reads its new rows.

Each commit updates the Airflow asset that has the pipeline's name; an empty interval doesn't. The event says which rows
are new: those that were committed after `previous_instant` and not after `instant`. Airflow may join several events in
one run, so the run reads from the first one's beginning to the last one's end.

It needs hudi-rs (`pip install hudi`), which reads Hudi tables without Spark. Switch the DAG on in Airflow's pages.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from airflow.sdk import DAG, Asset, task

FLIGHTS = Asset.ref(name="flights")

with DAG(
    dag_id="example_new_flights",
    description="Counts the new rows of the table flights by carrier, after each commit.",
    schedule=[FLIGHTS],
    catchup=False,
    is_paused_upon_creation=True,
    tags={"example"},
):

    @task
    def count_new_flights(triggering_asset_events: Any = None) -> dict[str, int]:
        """Rows of each carrier that the commits have added."""
        from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

        events = sorted(triggering_asset_events[FLIGHTS], key=lambda event: str(event.extra["instant"]))
        options = HudiReadOptions().with_query_type(HudiQueryType.Incremental)
        if events[0].extra["previous_instant"]:  # the first commit has none before it
            options = options.with_start_timestamp(events[0].extra["previous_instant"])
        options = options.with_end_timestamp(events[-1].extra["instant"])
        table = HudiTableBuilder.from_base_uri(events[-1].asset.uri).build()
        carriers: Counter[str] = Counter()
        for batch in table.read(options):
            carriers.update(str(carrier) for carrier in batch.column("carrier").to_pylist())
        return dict(carriers)

    count_new_flights()
