"""What reaches a Spark driver doesn't grow with records: neither rows nor keys, only statistics of files."""

from __future__ import annotations

import pytest

from ..thorough import also

RECORDS = 5_000
RESULTS = {"spark.driver.maxResultSize": "100k"}  # Spark fails a job whose tasks send more than that to the driver


@pytest.mark.parametrize("operation", ["upsert", *also("append")])
def test_a_driver_takes_no_record(make_flow, operation):
    key = {"sink__hudi__record_key": "id", "errors__tolerance": "all"}
    flow = make_flow(sink__hudi__operation=operation, write__conf=RESULTS, **key)
    flow.produce(RECORDS, values="a key or a value of some length " * 3)
    flow.produce_values([b"{"] * RECORDS)
    started = flow.start()
    flow.write_alone(started).succeed()
    outcome = flow.commit(started)
    assert outcome.state == "committed"
    assert flow.note()["records_quarantined"] == RECORDS
    flow.check()
