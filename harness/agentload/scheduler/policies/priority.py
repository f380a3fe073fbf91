"""Strict priority between classes, first come, first served inside: what many queues call priority."""

from __future__ import annotations

from typing import ClassVar

from agentload.scheduler.policies.fifo import Fifo


class Priority(Fifo):
    """Strict priority between classes, in the order of the configuration; first come, first served inside.

    Lacks shares between classes: the dispatcher leaves out nominal shares and virtual time and takes the
    first class that has anything to start, so that a lower one gets nothing for as long as a higher one has
    work waiting. Floors (min_units, classes that are not lendable) are capacity and not order: what is
    configured of them is still kept free. Inside a class it lacks all that `fifo` lacks.
    """

    strict_classes: ClassVar[bool] = True
