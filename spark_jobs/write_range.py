"""Entry point of a participant; see sluice.participant.launch.applications.write_range."""

from sluice.participant.launch.applications.write_range import main

if __name__ == "__main__":
    raise SystemExit(main())
