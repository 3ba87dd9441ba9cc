"""Airflow's notifiers as named in a pipeline file, with Sluice's texts unless the file has some."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from sluice.errors import PipelineFileError
from sluice.pipeline.alerts import OCCASIONS, Notifier
from sluice.pipeline.model import Pipeline

_MAIL = {"subject": "{{ sluice.subject }}", "html_content": "{{ sluice.html }}"}
_HTTP = {"data": "{{ sluice.json }}", "headers": {"Content-Type": "application/json"}}
_SMTP_MODULE, _HTTP_MODULE = "airflow.providers.smtp.notifications.smtp", "airflow.providers.http.notifications.http"
_DEFAULTS: dict[str, dict[str, Any]] = {
    f"{_SMTP_MODULE}.SmtpNotifier": _MAIL,
    f"{_SMTP_MODULE}.send_smtp_notification": _MAIL,
    f"{_HTTP_MODULE}.HttpNotifier": _HTTP,
    f"{_HTTP_MODULE}.send_http_notification": _HTTP,
}
# Arguments with the same purpose: if the file has one of them, Sluice's is omitted.
_INSTEAD = {"html_content": ("template",), "data": ("json",), "headers": ("json",)}


def make_notifier(notifier: Notifier, key: str) -> Callable[..., Any]:
    """A new notifier for one message, since rendering its templates changes it.

    Args:
        notifier: the class and its arguments.
        key: its place in the pipeline file, for the error.

    Raises:
        PipelineFileError: the class can't be imported or can't be instantiated with its arguments.
    """
    module, _, name = notifier.notifier.rpartition(".")
    try:
        notifier_class = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise PipelineFileError(
            f"The notifier {notifier.notifier} can't be imported: {error}.",
            next_step="correct its path, or install the Airflow provider that has it.",
            key=f"{key}.notifier",
        ) from None
    try:
        made: Callable[..., Any] = notifier_class(**with_our_words(notifier))
    except Exception as error:  # the constructor may raise anything; its arguments may be secret, so they aren't shown
        raise PipelineFileError(
            f"The notifier {notifier.notifier} can't be made from its arguments: {type(error).__name__}.",
            next_step="compare `arguments` with the class's own parameters.",
            key=f"{key}.arguments",
        ) from None
    return made


def with_our_words(notifier: Notifier) -> dict[str, Any]:
    """A notifier's arguments, completed with Sluice's message if the file has none."""
    given = notifier.arguments
    ours = {
        name: value
        for name, value in _DEFAULTS.get(notifier.notifier, {}).items()
        if name not in given and not any(other in given for other in _INSTEAD.get(name, ()))
    }
    return {**ours, **given}


def check_notifiers(pipeline: Pipeline) -> None:
    """Create every notifier once, so that a wrong one shows when the file is read, not when it is needed.

    Raises:
        PipelineFileError: one can't be created; `where` names its key.
    """
    for occasion in OCCASIONS:
        for number, notifier in enumerate(getattr(pipeline.alerts, occasion) or ()):
            make_notifier(notifier, f"alerts.{occasion}.{number}")
