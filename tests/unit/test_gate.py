"""Requests that would hold the page up are served a few at a time, and the others are told so."""

from __future__ import annotations

import pytest

from sluice.errors import RetryableError
from sluice.page.gate import Gate


def test_there_are_so_many_places_and_each_is_given_back():
    gate = Gate(2, "They are taken.", "try again.")
    with gate.place():
        with pytest.raises(ZeroDivisionError), gate.place():
            _ = 1 / 0
        with gate.place(), pytest.raises(RetryableError, match=r"They are taken.*try again"), gate.place():
            pass
    with gate.place(), gate.place():
        pass
