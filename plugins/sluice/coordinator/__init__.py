"""The transaction coordinator: start, commit and abort one transaction interval (RFC-32's TransactionCoordinator).

Each step is a process of its own, may die anywhere, and may run twice. The order of writes makes that safe:
START-COMMIT stands in the control topic before the instant stands on the timeline, END-COMMIT before Hudi's commit, and
ABORT-COMMIT before the roll-back, so that whoever comes next knows of everything that may be half done.
"""

from sluice.coordinator.coordinator import Coordinator
from sluice.coordinator.planning import Position, Task
from sluice.coordinator.session import Outcome, Run, Started

__all__ = ["Coordinator", "Outcome", "Position", "Run", "Started", "Task"]
