"""Keeps attempts at a range apart, each of which is a Spark application: Hudi expects one application per instant.

Hudi names a file of an upsert by its file group, the instant, and Spark's numbers of partition, stage and task. Two
attempts at a range have the same plan, and without this module they would have the same numbers. If the file system
refuses a second file of that name, Hudi chooses another one; but on an object store the second file replaces the first
when its stream is closed. So a late attempt that is killed in the middle of a file could replace the committed file by
a part of it.
"""

from __future__ import annotations

import secrets
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from sluice.logs import log

_FIRST = 1 << 29  # Hudi reads a task's number as an int, and no application has so many tasks
_SEVERAL_WRITERS = "_.hoodie.allow.multi.write.on.same.instant"


def number_tasks_apart(spark: SparkSession) -> None:
    """Start the application's task numbers, once, at a random number, so that attempts never share file names.

    Spark continues counting from there; its task numbers only need to ascend.
    """
    try:
        scheduler: Any = spark._jsc.sc().taskScheduler()
        if scheduler.nextTaskId() < _FIRST:
            _add(spark._jvm, scheduler, _FIRST + secrets.randbelow(_FIRST))
    except Py4JError as error:
        log.warning(
            "the task numbers of this Spark can't be set: on an object store, a late attempt at an upsert may replace "
            "a committed file",
            reason=type(error).__name__,
        )


def _add(jvm: Any, scheduler: Any, number: int) -> None:
    """Add to the task counter, through method handles: over the bridge the counter arrives as its value."""
    invoke, long, counter = jvm.java.lang.invoke, jvm.java.lang.Long, "java.util.concurrent.atomic.AtomicLong"
    of_counter = jvm.java.lang.Class.forName(counter)
    handles, lookup = invoke.MethodHandles, invoke.MethodHandles.publicLookup()
    found = lookup.findVirtual(scheduler.getClass(), "nextTaskId", invoke.MethodType.methodType(of_counter))
    add = lookup.findVirtual(of_counter, "addAndGet", invoke.MethodType.methodType(long.TYPE, long.TYPE))
    numbers = jvm.java.util.ArrayList()
    numbers.add(scheduler)
    numbers.add(number)
    handles.collectArguments(add, 0, found).invokeWithArguments(numbers)


def allow_several_writers(config: Any, meta: Any) -> None:
    """Let each attempt begin the instant, which the coordinator has already begun.

    An upsert writes the instant's inflight file again, with its workload. On HDFS and disks Hudi renames that file into
    place, and accepts an existing one. Object stores have no such rename, so there the file may be replaced.

    Args:
        config: Hudi's write configuration of the table.
        meta: the table's meta client.
    """
    if not meta.getStorage().needCreateTempFile():
        config.setValue(_SEVERAL_WRITERS, "true")
