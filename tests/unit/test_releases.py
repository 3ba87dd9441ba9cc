"""An Airflow that is too old is refused in one sentence, before anything of Sluice's runs in it."""

from __future__ import annotations

import pytest

from sluice.airflow import require_airflow
from sluice.errors import ActionRequiredError


@pytest.mark.parametrize("release", ["3.2.0", "3.3.2", "3.10.0", "4.0.0"])
def test_newer_releases_are_not_refused(release: str) -> None:
    require_airflow(release)


@pytest.mark.parametrize("release", ["2.11.2", "3.0.6", "3.1.8"])
def test_an_older_one_is_named_with_the_next_step(release: str) -> None:
    with pytest.raises(ActionRequiredError, match=rf"3\.2 or newer, and this is Airflow {release}\. .*upgrade"):
        require_airflow(release)
