"""Entry point of a worker; see sluice.participant.launch.applications.worker."""

from sluice.participant.launch.applications.worker import leave, main

if __name__ == "__main__":
    leave(main())
