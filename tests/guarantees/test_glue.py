"""Before a table's first interval Glue's catalog is looked at, with the process's login; what is missing is said."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.s3 import LocalS3, ensure_glue, ensure_s3
from tests.s3.amazon import REGION, ROLE, Amazon, become_pod
from tests.s3.extras import called_with_extras

from sluice.errors import ActionRequiredError
from sluice.local.home import SluiceHome
from sluice.sinks.hudi.glue import require_glue


@pytest.fixture(scope="module")
def amazon(home: SluiceHome, extras: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Amazon]:
    folder = tmp_path_factory.mktemp("amazon")
    token = folder / "token"
    token.write_text("token-1")
    with (
        LocalS3(ensure_s3(home), folder / "server", ensure_glue(home)) as server,
        Amazon(server.endpoint, folder / "proxy") as proxy,
        pytest.MonkeyPatch.context() as patch,
    ):
        become_pod(patch, proxy, token)
        yield proxy


def look(extras: Path, database: str = "lake", region: str | None = None) -> dict[str, str]:
    return called_with_extras(extras, "sluice.sinks.hudi.glue", "require_glue", database, "orders", region)


def test_a_database_and_a_table_that_are_not_there_yet_are_fine(amazon, extras):
    assert look(extras) == {"returned": "None"}
    make = "import boto3; boto3.client('glue').create_database(DatabaseInput={'Name': 'lake'})"
    path = os.pathsep.join([str(extras), os.environ.get("PYTHONPATH", "")])
    subprocess.run([sys.executable, "-c", make], env={**os.environ, "PYTHONPATH": path}, check=True, timeout=120)
    assert look(extras) == {"returned": "None"}  # the table is not there
    assert f"glue.{REGION}.amazonaws.com" in amazon.asked
    assert {login.role for login in amazon.logins if login.requests} == {ROLE}


@pytest.mark.parametrize(
    ("refused", "code", "kind", "says"),
    [
        ("GetDatabase", "AccessDeniedException", "ActionRequiredError", "allow the role of Airflow's workers glue:"),
        ("GetTable", "AccessDeniedException", "ActionRequiredError", "No permission to look for the table"),
        ("GetDatabase", "ThrottlingException", "RetryableError", "doesn't answer"),
        ("AssumeRoleWithWebIdentity", "InvalidIdentityToken", "ActionRequiredError", "refuses the log-in"),
    ],
)
def test_what_is_missing_is_said(amazon, extras, monkeypatch, refused, code, kind, says):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    amazon.refused[refused] = code
    try:
        found = look(extras)
    finally:
        amazon.refused.clear()
    assert found["raised"] == kind
    assert says in found["says"]


def test_without_a_region_it_says_where_to_name_one(amazon, extras, monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    assert "catalog_sync.glue.region" in look(extras)["says"]
    assert look(extras, region=REGION) == {"returned": "None"}


def test_an_environment_without_the_extra_says_which():
    with pytest.raises(ActionRequiredError, match=r"pip install 'sluice\[glue\]'"):
        require_glue("lake", "orders", None)
