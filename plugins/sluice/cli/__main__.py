"""`python -m sluice.cli`, where the `sluice` script is not on the path."""

from sluice.cli import main

if __name__ == "__main__":
    main()
