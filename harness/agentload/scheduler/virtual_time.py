"""Start-time fair queueing, one flow at a time: who has had how much, per weight.

Goyal, Vin, Cheng, "Start-time Fair Queuing", SIGCOMM 1996. A flow is whatever takes turns: a tenant inside
its class, or a class beside others. Its tag is the virtual time at which its next piece of work starts; the
flow with the least tag goes next, and pays `work / weight`.
"""

from __future__ import annotations


class Flow:
    """A weight and a tag (micro-units of work per unit of weight)."""

    __slots__ = ("epoch", "tag", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.tag = 0.0
        self.epoch = 0
        """Counts how often the tag was lifted, that is, how often charges were forgiven."""

    def lift(self, to: float) -> None:
        """Join at `to`, unless the tag is already later: idling banks no credit, and debt survives it."""
        if self.tag < to:
            self.tag = to
            self.epoch += 1

    def charge(self, work: int, epoch: int, now_v: float) -> None:
        """Charge work (negative: refund it) that was first charged in `epoch`, at virtual time `now_v`.

        A lift forgives what came before it. To refund such a charge as well would give it back twice: one
        over-estimated job could then buy hundreds of turns, so the refund stops at the present.
        """
        tag = self.tag + work / self.weight
        if work < 0 and epoch != self.epoch and tag < now_v:
            tag = min(self.tag, now_v)
        self.tag = tag
