"""Which settings and servers of a connection are known to leave alone what a promise rests on. Pure.

The list is of known settings, not of dangerous ones: drivers get new settings with each release.
"""

from __future__ import annotations

import re

from sluice.databases.address import JdbcAddress
from sluice.errors import ActionRequiredError

_PLAIN = re.compile(r"[A-Za-z_][\w.]{0,60}")


def require_known(address: JdbcAddress, *, exact: bool = False) -> None:
    """Check that a connection leads where it says, and has values written and read as they are.

    Args:
        address: the database's.
        exact: whether windows are read of it, whose end is asked of one server: then no setting may choose another one.
            A sink looks and commits in one transaction, so it may be led to one of several.

    Raises:
        ActionRequiredError: a setting isn't known to be harmless, or several servers may answer.
    """
    dialect = address.dialect
    if dialect.appends_only:  # which settings its driver has isn't known; what matters of them is tried
        return
    where, _, query = address.url.partition("?")
    in_url = [part.partition("=") for part in query.split("&") if part]
    known = {"user", "password", *dialect.settings, *(() if exact else dialect.choosing)}
    # Sluice's value of a setting comes before that of `properties`, and after that of the URL.
    names = [name if equals else "" for name, equals, _ in in_url if name not in known]
    names += [name for name in address.properties if name not in known | dialect.properties.keys()]
    given = {**address.properties, **{name: value for name, _, value in in_url}}
    unknown = [
        # What has no value may be a part of a password with an `&` in it.
        name if _PLAIN.fullmatch(name) else "one without a name"
        for name in names
        if not (exact and name in dialect.choosing and dialect.is_of_the_writer(name, given[name]))
    ]
    unknown += dialect.unknown_values(given)
    for_whom = "consistency exact" if exact else "the JDBC sink"
    if unknown:
        raise ActionRequiredError(
            f"A setting of the connection isn't one that {for_whom} is known to keep its promise with: "
            f"{', '.join(dict.fromkeys(unknown))}.",
            next_step="take it out of the connection's URL, or of `properties` or another key of its extra field; "
            "docs/jdbc-sink.md lists the settings that are known, under `Settings of the driver`. "
            + (dialect.one_writer_advice if exact else ""),
            connection=address.connection,
        )
    several = dialect.several_servers(where, given, exact=exact)
    if several is not None:
        raise ActionRequiredError(
            f"The connection's URL lets the driver choose among servers, which {for_whom} can't do with: {several}.",
            next_step=dialect.one_writer_advice,
            connection=address.connection,
        )
