"""The order among tenants of a class: one policy per file, named like it (`round_robin.py`: round-robin).

The contract is `agentload.scheduler.fair_queue.FairQueue`. Each policy's docstring says which safeguards it
lacks, because that is what they are compared for.
"""

from __future__ import annotations

from agentload.registry import Seam
from agentload.scheduler.fair_queue import FairQueue

SEAM: Seam[FairQueue] = Seam(__name__, FairQueue)
