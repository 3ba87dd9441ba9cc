"""Folders of times: Joda-Time's letters, ISO weeks over New Year, times before 1970, years of any size."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sluice.sinks.files.options.path_format import DAY, Texts, civil, iso_week, parse

EPOCH = datetime(1970, 1, 1)
TEXTS = Texts()
moments = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59))
PATTERNS = [
    "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH",
    "yyyy-MM",
    "YYYY",
    "xxxx/ww",
    "xxxx-ww-e",
    "YYYY/DDD",
    "YYYY-MM-dd hh a",
    "YYYY-MM-dd'T'HH:mm:ss.SSS",
    "YYYY/MM/dd/a",
]


def local(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def written(pattern: str, moment: datetime) -> str:
    return "/".join(parse(pattern).folders(local(moment), TEXTS))


@given(moments)
def test_dates_are_those_of_python(moment):
    days = local(moment) // DAY
    assert civil(days) == (moment.year, moment.month, moment.day)
    assume(moment < datetime(9999, 12, 27))
    assert iso_week(days) == moment.isocalendar()[:2]


@given(moments)
def test_letters_are_those_of_python(moment):
    assume(moment.year >= 1000)
    pattern = "YYYY|MM|dd|DDD|HH|mm|ss|SSS|EEE|EEEE|MMM|MMMM|a|hh|xxxx|ww|e"
    python = f"%Y|%m|%d|%j|%H|%M|%S|{moment.microsecond // 1000:03d}|%a|%A|%b|%B|%p|%I|%G|%V|%u"
    assert written(pattern, moment) == moment.strftime(python)


@given(st.integers(-(10**12), 10**12))
def test_days_of_any_year_follow_each_other(days):
    year, month, day = civil(days)
    following = civil(days + 1)
    assert following in ((year, month, day + 1), (year, month + 1, 1), (year + 1, 1, 1))
    assert (following == (year + 1, 1, 1)) <= ((month, day) == (12, 31))


@given(st.sampled_from(PATTERNS), moments, moments)
def test_two_times_have_one_folder_if_and_only_if_they_are_of_one_stretch(pattern, one, other):
    made = parse(pattern)
    begins = [made.granularity.begin(local(moment)) for moment in (one, other)]
    folders = [made.folders(local(moment), TEXTS) for moment in (one, other)]
    assert (begins[0] == begins[1]) == (folders[0] == folders[1])


@given(st.sampled_from(PATTERNS), moments)
def test_a_stretch_begins_in_itself(pattern, moment):
    made = parse(pattern)
    begin = made.granularity.begin(local(moment))
    assert begin <= local(moment)
    assert made.granularity.begin(begin) == begin
    assert made.folders(begin, TEXTS) == made.folders(local(moment), TEXTS)
    assert made.granularity.begin(begin - 1) < begin


@pytest.mark.parametrize(
    ("pattern", "moment", "folder"),
    [
        ("YYYY", datetime(2024, 12, 30), "2024"),  # in Java's own patterns 2025
        ("xxxx-'W'ww", datetime(2024, 12, 30), "2025-W01"),
        ("xxxx-'W'ww", datetime(2021, 1, 3), "2020-W53"),
        ("yyyy/MM/dd", datetime(1969, 12, 31, 23, 59), "1969/12/31"),
        ("'it''s' YYYY", datetime(2026, 1, 1), "it's 2026"),
        ("YYYY''", datetime(2026, 1, 1), "2026'"),
        ("YYYY-MM-dd KK|kk a", datetime(2026, 1, 1), "2026-01-01 00|24 AM"),
        ("Y-M-d", datetime(26, 1, 2), "26-1-2"),
    ],
)
def test_examples(pattern, moment, folder):
    assert written(pattern, moment) == folder


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("YYYY/ww", "belong together"),
        ("xxxx", "belong together"),
        ("MM/dd", "has no year"),
        ("YYYY/dd", "a day without its month"),
        ("YYYY/EEE", "a day without its month"),
        ("YYYY/HH", "time of day without its day"),
        ("YYYY/MM/dd/mm", "names a minute without"),
        ("YYYY/MM/dd/hh", "an hour of 1 to 12"),
        ("YY/MM/dd", "two digits"),
        ("YYYY/MM/dd/HH z", "the letter z"),
        ("uuuu", "the letter u"),
        ("'year=YYYY", "nothing closes"),
        ("YYYY//MM", "empty folder"),
        ("'..'/YYYY", "leads elsewhere"),
        ("/YYYY", "empty folder"),
        ("", "empty folder"),
    ],
)
def test_what_is_refused(pattern, says):
    with pytest.raises(ValueError, match=says):
        parse(pattern)
