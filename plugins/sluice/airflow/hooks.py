"""Hooks of the types of Airflow connections that no other provider has, so that the form for connections shows them."""

from __future__ import annotations

from airflow.sdk import BaseHook

from sluice.airflow.connections import source_connections
from sluice.databases.connection import address_of, asked
from sluice.errors import SluiceError


class MariaDbHook(BaseHook):
    """A connection of type `mariadb`, which the JDBC source and sink read.

    Args:
        mariadb_conn_id: the connection's id.
    """

    conn_name_attr = "mariadb_conn_id"
    default_conn_name = "mariadb_default"
    conn_type = "mariadb"
    hook_name = "MariaDB"

    def __init__(self, mariadb_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self._connection = mariadb_conn_id

    def test_connection(self) -> tuple[bool, str]:
        """Whether the database answers a query, and what is wrong otherwise: what the form's button Test shows."""
        try:
            (connection,) = source_connections([self._connection])
            with asked(address_of(connection), who="Airflow's test of a connection") as ask:
                ((version,),) = ask("SELECT version()")
        except SluiceError as error:
            return False, str(error)
        return True, f"{version} answers."
