"""Whether what was made of a connector can be a pipeline file: whoever reads files says so, not we."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from sluice.connect.build import Imported
from sluice.connect.text import text_of
from sluice.errors import PipelineFileError
from sluice.pipeline.load import load_pipelines


def checked(made: Imported) -> Imported:
    """The same, or the same refused with why it can't be a pipeline file."""
    if made.pipeline is None:
        return made
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{made.name}.yaml"
        file.write_text(text_of(made, made.with_stand_ins()))
        try:
            load_pipelines(file)
        except PipelineFileError as error:
            return made.refuse(
                f"{error.what.strip()} Next step: correct the connector's configuration, or write the file by hand."
            )
    return made
