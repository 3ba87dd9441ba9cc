"""What `make test-thorough` alone runs, so that `make test` ends in minutes.

Three ways to say so:

- a cell of a table of parameters: `also`, `some_of`;
- a test: the marker `pytest.mark.thorough`;
- most of a file: `REPRESENTATIVES` names the few that `make test` runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

_TESTS = Path(__file__).parent

# Files that take long, and the tests of each that `make test` runs: with all of their parameters, or with those named.
REPRESENTATIVES: dict[str, tuple[str, ...]] = {
    "airflow/test_starts_by_arrival.py": (),
    "airflow/test_starts_by_mapping.py": (),
    "airflow/test_watching.py": (),
    "airflow/test_workers_in_airflow.py": (),
    "guarantees/test_broker_restarts.py": ("test_killed_and_started_again_between_and_within_the_steps",),
    "guarantees/test_catalog_sync.py": ("test_glue_without_its_jar_says_which",),
    "guarantees/test_change_data.py": ("test_postgresql_with_every_operation_late_and_twice",),
    "guarantees/test_clocks.py": ("test_a_commit_on_a_slow_clock_waits_for_its_own_instant",),
    "guarantees/test_connect_transforms.py": (),
    "guarantees/test_control_topic.py": (
        "test_forged_messages_delete_read_and_write_nothing",
        "test_with_a_secret_only_signed_messages_count",
    ),
    "guarantees/test_converters.py": ("test_key_and_value_apart_with_parts_of_the_record",),
    "guarantees/test_converters_avro.py": ("test_avro_of_old_and_new_schemas",),
    "guarantees/test_converters_json.py": ("test_json_with_schemas_of_a_registry",),
    "guarantees/test_converters_protobuf.py": ("test_protobuf_of_old_and_new_schemas",),
    "guarantees/test_coordinator_killed.py": (
        "test_killed_while_starting[after_open_instant-abort]",
        "test_killed_while_committing_and_run_again",
    ),
    "guarantees/test_corrections.py": (),
    "guarantees/test_dates.py": ("test_a_record_of_the_far_future_stops_nobody",),
    "guarantees/test_dead_letters.py": ("test_killed_in_the_kafka_transaction",),
    "guarantees/test_decompression_bomb.py": (),
    "guarantees/test_deletes.py": ("test_tombstones_delete_and_are_counted",),
    "guarantees/test_evolution.py": ("test_an_upsert_table_follows",),
    "guarantees/test_file_sink.py": (
        "test_killed_between_any_two_renames_while_a_reader_lists",
        "test_a_zombie_makes_nothing_visible_and_is_swept_up",
        "test_a_replay_is_refused_and_a_backfill_adds_what_is_missing",
    ),
    "guarantees/test_file_sink_hdfs.py": (),
    "guarantees/test_file_sink_hive.py": (),
    "guarantees/test_file_sink_s3.py": (),
    "guarantees/test_file_sink_settings.py": ("test_it_goes_on_where_kafka_connect_has_stopped",),
    "guarantees/test_files_source.py": (
        "test_new_files_are_read_once_whenever_they_come",
        "test_a_replaced_file_is_told_and_never_mixed",
        "test_a_killed_write_job_is_repeated_without_a_trace",
    ),
    "guarantees/test_files_source_s3.py": (
        "test_a_listing_has_every_object_once_by_any_name",
        "test_new_objects_are_read_once_whenever_they_come",
    ),
    "guarantees/test_folders.py": (),
    "guarantees/test_frozen_committer.py": ("test_what_was_aborted_meanwhile_is_taken_off_by_the_late_one_itself",),
    "guarantees/test_infer.py": ("test_a_sample_of_json",),
    "guarantees/test_jdbc_deaths.py": (
        "test_a_coordinator_that_is_killed_while_it_commits[postgresql-jdbc.after_database_commit]",
        "test_a_zombie_reaches_nothing_but_a_staging_table_of_its_own",
    ),
    "guarantees/test_jdbc_mariadb.py": (),
    "guarantees/test_jdbc_merge.py": (),
    "guarantees/test_jdbc_sink.py": (
        "test_every_record_is_a_row_once_over_several_intervals_and_write_jobs",
        "test_the_rows_are_what_the_records_one_by_one_would_have_made",
    ),
    "guarantees/test_jdbc_source.py": (
        "test_new_and_changed_rows_land_by_their_times_and_nothing_twice",
        "test_rows_of_transactions_that_began_before_wait_for_their_end",
    ),
    "guarantees/test_jdbc_source_failover.py": (),
    "guarantees/test_jdbc_source_horizons.py": (),
    "guarantees/test_jdbc_source_servers.py": (),
    "guarantees/test_jdbc_tables.py": ("test_two_tables_always_move_together",),
    "guarantees/test_kafka_conformance.py": (
        "test_nothing_shows_before_the_commit_and_all_after_it",
        "test_a_process_that_dies_between_two_steps_leaves_nothing[1]",
        "test_a_commit_that_is_repeated_adds_nothing",
    ),
    "guarantees/test_kafka_deaths.py": ("test_a_coordinator_that_is_killed_while_it_commits",),
    "guarantees/test_kafka_security.py": (
        "test_both_clients_log_in[SCRAM-SHA-512]",
        "test_no_secret_shows_while_a_job_runs",
    ),
    "guarantees/test_kafka_sink.py": ("test_each_record_is_there_once_with_its_key_headers_and_time",),
    "guarantees/test_kafka_to_kafka.py": ("test_a_topic_that_refuses_at_the_commit_loses_nothing",),
    "guarantees/test_kept_jvm.py": (
        "test_it_belongs_to_one_at_a_time_and_is_killed_after_an_error",
        "test_a_step_that_is_killed_inside_hudis_commit_takes_the_jvm_with_it",
    ),
    "guarantees/test_key_placement.py": ("test_a_second_producer_with_another_partitioner_is_refused",),
    "guarantees/test_kinds_of_change.py": (
        "test_a_change_comes_to_what_the_table_says[protobuf-hudi]",
        "test_start_refuses_what_has_the_columns_that_changes_adds",
    ),
    "guarantees/test_late_requests.py": ("test_dead_letters_are_sent_once",),
    "guarantees/test_memory.py": (),
    "guarantees/test_metadata_table.py": (
        "test_after_hudis_own_restore_intervals_go_on_from_the_offsets_restored_to[upsert]",
    ),
    "guarantees/test_missing_range.py": ("test_the_others_are_committed_and_the_missing_one_comes_with_the_next",),
    "guarantees/test_moved_streams.py": ("test_the_cut_is_exact",),
    "guarantees/test_offset_gaps.py": (
        "test_aborted_transactions_are_left_out",
        "test_a_hot_partition_is_read_by_several_tasks_and_each_record_is_a_row_once",
    ),
    "guarantees/test_offset_loss.py": (
        "test_by_default_the_interval_stops_and_says_which_offsets_are_lost",
        "test_a_topic_that_was_deleted_and_created_again",
        "test_records_removed_while_the_interval_runs_are_not_passed_over",
    ),
    "guarantees/test_other_writers.py": ("test_another_writers_commit_in_between_keeps_our_offsets",),
    "guarantees/test_participant_killed.py": ("test_killed_and_retried_then_killed_and_aborted",),
    "guarantees/test_quarantine.py": (
        "test_bad_records_are_rows_of_the_quarantine",
        "test_killed_between_the_tables_commit_and_ack",
    ),
    "guarantees/test_quarantine_of_sinks.py": (),
    "guarantees/test_redrive.py": ("test_listed_explained_and_sent_again_once",),
    "guarantees/test_redrive_moved.py": (),
    "guarantees/test_remedies.py": (
        "test_the_cells_hold_all_pairs",
        "test_a_remedy_leads_to_the_rows_or_is_refused[0-upsert-recreated topic]",
    ),
    "guarantees/test_renamed_connection.py": (),
    "guarantees/test_replay.py": (
        "test_a_replay_replaces_exactly_what_the_interval_wrote",
        "test_readers_see_the_old_rows_until_the_commit",
    ),
    "guarantees/test_restore.py": ("test_the_schedule_says_what_it_reads_again_after_a_restore_and_what_not",),
    "guarantees/test_row_identity.py": ("test_rows_of_several_ranges_and_topics_have_keys_of_their_own",),
    "guarantees/test_s3_identity.py": (
        "test_a_pods_web_identity_is_taken_and_renewed_while_a_step_runs",
        "test_python_takes_the_same_identity",
        "test_a_role_that_is_refused_is_said_and_no_other_is_taken",
    ),
    "guarantees/test_shaping.py": ("test_every_kind_of_step", "test_a_wrong_step_is_found_at_start"),
    "guarantees/test_streams.py": (
        "test_rows_say_where_they_are_from",
        "test_a_topic_that_is_missed_once_is_read_on",
        "test_another_cluster_under_a_known_name_is_refused",
    ),
    "guarantees/test_streams_by_cluster.py": (),
    "guarantees/test_streams_registries.py": (),
    "guarantees/test_table_services.py": ("test_a_service_waits_for_the_interval_that_holds_the_table",),
    "guarantees/test_times.py": (),
    "guarantees/test_tutorial.py": (),
    "guarantees/test_two_brokers.py": (),
    "guarantees/test_two_runs.py": (
        "test_the_later_start_wins_and_the_earlier_commit_fails_before_it",
        "test_two_starts_at_the_same_moment",
    ),
    "guarantees/test_unavailable_values.py": (),
    "guarantees/test_upgrade.py": (
        "test_the_pipeline_goes_on[before-rooms-append]",
        "test_the_pipeline_goes_on[before-rooms-decided]",
    ),
    "guarantees/test_upserts_on_s3.py": (),
    "guarantees/test_values.py": (),
    "guarantees/test_verify_of_sinks.py": (
        "test_a_table_by_another_name_than_that_of_its_intervals_is_not_called_right",
    ),
    "guarantees/test_width.py": ("test_few_records_in_each_of_many_partitions_are_few_files",),
    "guarantees/test_width_both_ways.py": (
        "test_an_upsert_by_few_tasks_is_the_same_as_one_by_a_task_for_each_partition",
    ),
    "guarantees/test_workers.py": (
        "test_intervals_of_several_tables_are_written_without_a_spark_job_of_their_own",
        "test_killed_after_its_claim_another_takes_over_when_the_lease_has_run_out",
    ),
    "guarantees/test_zombie.py": ("test_a_zombie_stopped_in_the_middle_of_its_write[committed]",),
    "page/test_connect_rest.py": (),
    "page/test_workers_on_the_page.py": (),
}


def also(*cells: Any) -> list[Any]:
    """Values of a parameter, or tuples of several, for `make test-thorough`."""
    return [_marked(cell) for cell in cells]


def some_of(cells: Iterable[tuple[Any, ...]], tried: Iterable[tuple[Any, ...]]) -> list[Any]:
    """All cells, of which `make test` tries some, and `make test-thorough` the others."""
    chosen = list(tried)
    return [cell if cell in chosen else _marked(cell) for cell in cells]


def is_thorough(item: pytest.Item) -> bool:
    """Whether `make test` leaves a test to `make test-thorough`."""
    if item.get_closest_marker("thorough") is not None:
        return True
    if not item.path.is_relative_to(_TESTS):
        return False
    chosen = REPRESENTATIVES.get(item.path.relative_to(_TESTS).as_posix())
    return chosen is not None and not {item.name, item.name.partition("[")[0]} & set(chosen)


def _marked(cell: Any) -> Any:
    return pytest.param(*(cell if isinstance(cell, tuple) else (cell,)), marks=pytest.mark.thorough)
