"""Entry point of a table service; see sluice.participant.launch.applications.table_service."""

from sluice.participant.launch.applications.table_service import main

if __name__ == "__main__":
    raise SystemExit(main())
