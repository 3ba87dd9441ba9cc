"""A sink's own settings as START-COMMIT pins them: typed in the code, texts in the message. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, PlainSerializer, ValidationError

from sluice.errors import ActionRequiredError
from sluice.protocol.messages import TableSpec
from sluice.sections import words_of
from sluice.untrusted import Untrusted


class PinnedSettings(Untrusted):
    """The settings of one kind of sink in `TableSpec.options`, where each is a text.

    A subclass has a field for each setting: a text, or one of the types below. A setting that is None isn't sent.
    """

    @classmethod
    def of(cls, writer: TableSpec) -> Self:
        """The settings that an interval's START-COMMIT pins.

        Raises:
            ActionRequiredError: one is missing, or can't be read.
        """
        try:
            return cls.model_validate(writer.options)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            raise ActionRequiredError(
                f"START-COMMIT pins a setting of the sink that can't be read: {words_of(first)}.",
                next_step="let the coordinator, the write jobs and the workers be of one release; the next interval "
                "pins its settings anew.",
                table=writer.path,
                setting=first["loc"][0],
            ) from error

    def texts(self) -> dict[str, str]:
        """The settings as START-COMMIT has them."""
        return {name: text for name, text in self.model_dump().items() if text is not None}

    def pinned_in(self, writer: TableSpec) -> TableSpec:
        """The settings for writing rows, with these in place of what it had of them."""
        others = {name: text for name, text in writer.options.items() if name not in type(self).model_fields}
        return writer.model_copy(update={"options": others | self.texts()})


def _of_text(parse: Callable[[str], Any]) -> BeforeValidator:
    return BeforeValidator(lambda given: parse(given) if isinstance(given, str) else given)


def _split(separator: str) -> BeforeValidator:
    return _of_text(lambda text: tuple(filter(None, text.split(separator))))


Number = Annotated[int, PlainSerializer(str)]
"""A whole number."""
Flag = Annotated[bool, PlainSerializer(lambda flag: "true" if flag else None)]
"""Whether a setting is there."""
Commas = Annotated[tuple[str, ...], _split(","), PlainSerializer(",".join)]
"""Names without commas, with commas between."""
Lines = Annotated[tuple[str, ...], _split("\n"), PlainSerializer("\n".join)]
"""Names, one on each line."""
JsonList = Annotated[tuple[str, ...], _of_text(json.loads), PlainSerializer(lambda names: json.dumps([*names]))]
"""Names as JSON."""
JsonObject = Annotated[dict[str, Any], _of_text(json.loads), PlainSerializer(json.dumps)]
"""An object as JSON."""
