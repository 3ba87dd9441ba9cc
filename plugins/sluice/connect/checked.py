"""Checks that a connector's pipeline loads as a pipeline file, by the loader's own rules."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from sluice.connect.build import Imported
from sluice.connect.text import text_of
from sluice.errors import PipelineFileError
from sluice.pipeline.load import load_pipelines

_NEXT = "correct the connector's configuration, or write the file by hand."


def _in_words(error: PipelineFileError) -> str:
    """The errors by the file's keys: line numbers mean nothing to a user who doesn't have the file yet."""
    said = "; ".join(f"{key}: {message}" if key else message for key, message in error.mistakes)
    return f"{said.rstrip('.') + '.' if said else error.what.strip()} Next step: {_NEXT}"


def checked(made: Imported) -> Imported:
    """The same, or refused with the reason why it can't be a pipeline file."""
    if made.pipeline is None:
        return made
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{made.name}.yaml"
        file.write_text(text_of(made, made.with_stand_ins()))
        try:
            load_pipelines(file)
        except PipelineFileError as error:
            return made.refuse(_in_words(error))
    return made
