"""The transaction coordinator: start, commit and abort one transaction interval (RFC-32's TransactionCoordinator).

Each step is a separate process, may die anywhere, and may run twice. The order of writes makes that safe: START-COMMIT
is in the control topic before the instant is on the timeline, END-COMMIT before Hudi's commit, and ABORT-COMMIT before
the roll-back, so that the next step knows of all work that may be half done.
"""

from sluice.coordinator.coordinator import Coordinator
from sluice.coordinator.planning import Position, Task
from sluice.coordinator.session import Outcome, Run, Started

__all__ = ["Coordinator", "Outcome", "Position", "Run", "Started", "Task"]
