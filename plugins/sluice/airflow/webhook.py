"""A notifier for any address that accepts JSON by POST, which keeps the address secret.

Airflow's own HttpNotifier could send it, too. But whole webhook addresses are often secret (Slack, Teams, Discord), and
it shows them in its errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import requests
from airflow.sdk import BaseNotifier, Context
from airflow.sdk.log import mask_secret

from sluice.errors import ActionRequiredError, RetryableError

_TIMEOUT = 30.0  # seconds


class WebhookNotifier(BaseNotifier):
    """Posts the alert as JSON.

    Args:
        http_conn_id: an Airflow connection of type http, from the provider apache-airflow-providers-http. Its host may
            be the whole address; login, password, headers and TLS settings are obeyed.
        endpoint: the path to append to the connection's address.
        url: the address itself, instead of a connection; better as a template, such as `{{ var.value.webhook }}`.
        body: the request's body, as text or as a value that JSON can hold; templates work in it. All of the alert by
            default.
        headers: further headers.
    """

    template_fields: Sequence[str] = ("http_conn_id", "endpoint", "url", "body", "headers")

    def __init__(
        self,
        *,
        http_conn_id: str | None = None,
        endpoint: str | None = None,
        url: str | None = None,
        body: Any = "{{ sluice.json }}",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        if (http_conn_id is None) == (url is None):
            raise ValueError("give either http_conn_id or url")
        self.http_conn_id = http_conn_id
        self.endpoint = endpoint
        self.url = url
        self.body = body
        self.headers = headers or {}

    def notify(self, context: Context) -> None:  # noqa: ARG002  # its templates are rendered by now
        """Send it.

        Raises:
            RetryableError: no answer came, or it was 429 or 5xx.
            ActionRequiredError: it was refused, or the connection is missing. Neither error names more of the address
                than its host.
        """
        session, address = self._session()
        _mask(address)
        host = urlsplit(address).hostname
        again = "the message is sent again; if it comes back, see whether the host can be reached from the workers."
        try:
            answer = session.post(address, timeout=_TIMEOUT, **self._payload())
        except requests.RequestException as error:
            raise RetryableError(
                f"The webhook could not be reached: {type(error).__name__}.", next_step=again, host=host
            ) from None
        if answer.status_code == 429 or answer.status_code >= 500:
            raise RetryableError(
                "The webhook did not take the message.", next_step=again, host=host, status=answer.status_code
            )
        if not answer.ok:
            raise ActionRequiredError(
                "The webhook refused the message.",
                next_step="correct its address, its log-in or the notifier's `body`.",
                host=host,
                status=answer.status_code,
            )

    def _session(self) -> tuple[requests.Session, str]:
        if self.url is not None:
            return requests.Session(), self.url
        from airflow.providers.http.hooks.http import HttpHook  # only this needs that provider

        hook = HttpHook(method="POST", http_conn_id=str(self.http_conn_id))
        session = hook.get_conn()
        address: str = hook.url_from_endpoint(self.endpoint)
        return session, address

    def _payload(self) -> dict[str, Any]:
        if isinstance(self.body, str):
            return {"data": self.body.encode(), "headers": {"Content-Type": "application/json", **self.headers}}
        return {"json": self.body, "headers": self.headers}


def _mask(address: str) -> None:
    """Keep everything but the host out of logs, including urllib3's."""
    parts = urlsplit(address)
    for secret in (address, parts.path.strip("/"), parts.query, parts.password):
        if secret and len(secret) > 4:
            mask_secret(secret)
