"""Entry point of `sluice verify`; see sluice.coordinator.verification.verify_table."""

from sluice.coordinator.verification.verify_table import main

if __name__ == "__main__":
    raise SystemExit(main())
