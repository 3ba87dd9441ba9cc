"""All subjects of the campaign, by their names."""

from __future__ import annotations

from .parsers import PARSERS
from .routes import ROUTES
from .subject import Subject

SUBJECTS: dict[str, Subject] = {one.name: one for one in (*PARSERS, *ROUTES)}
