"""`sluice control`: manual repairs of the control topic."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from sluice.cli.output import say
from sluice.cli.places import PipelineFile, settings
from sluice.errors import ActionRequiredError
from sluice.pipeline import load_pipeline

app = typer.Typer(help="Mend a pipeline's control topic.", no_args_is_help=True)


@app.command()
def set_aside(
    file: PipelineFile,
    offset: Annotated[int, typer.Option(help="The message's offset, as in the error.")],
    reason: Annotated[str, typer.Option(help="Why it may be left out; stays in the topic.")],
) -> None:
    """Leave a message out that can't be read, for all readers. What can be read is never left out."""
    from sluice.control.topic import ControlTopic, UnreadableError
    from sluice.protocol.messages import SkipMessage

    pipeline = load_pipeline(file)
    if not reason.strip():
        raise ActionRequiredError("A message is set aside with a reason only.", next_step="add --reason 'why'.")
    control = ControlTopic(settings(pipeline)[1], pipeline.control_topic)
    table = pipeline.table_id
    try:
        found = control.read_one(table, offset)
    except UnreadableError:
        now = datetime.now(UTC)
        said = SkipMessage(
            table=table,
            transaction=f"{now:%Y%m%d%H%M%S%f}"[:17],
            epoch=0,
            dag_id="sluice",
            run_id="by-hand",
            sender="a person",
            time=now,
            offset=offset,
            reason=reason,
        )
        at = control.send(said)
        say(f"The message at {offset} of {control.topic} is left out from now on, as is said at {at}.")
        return
    what = f"{found.type} of {found.transaction}, which can be read" if found is not None else "no message that counts"
    raise ActionRequiredError(
        f"At that offset is {what}.",
        next_step="take the offset from the error's own words; only what can't be read may be set aside.",
        table=table,
        control_topic=control.topic,
        offset=offset,
    )
