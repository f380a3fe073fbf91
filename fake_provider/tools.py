"""A fake tool without sockets or clocks: it takes its time, has side effects, and keeps a ledger of both.

POST /_tool/NAME with the JSON body `{"seconds"?, "side_effect"?, "payload"?}` takes `seconds`, then has its
side effect (if it has one), then answers `{"tool", "call", "effect", "replayed", "ref"}`. It is idempotent by
`Idempotency-Key`: a second call with a key joins the first, or is answered at once with `replayed: true`, and
has no effect. Without a key every call has its effect. A caller that leaves changes nothing: the effect comes
all the same, as with real tools.

What `payload` may ask for, when it is an object:

- `ref`: string or number, kept in the ledger: the caller's own name of this piece of work. Effects by `ref`
  are what a check counts: a gateway that sends another key each time has two effects of one `ref`.
- `hang`: true, or how many of the first calls hang: the effect comes, the answer does not.
- `fail_first`: how many of the first calls fail, without effect, with `fail_status` (default 500).

"First" counts calls with the same key (without one: with the same `ref`). The ledger is GET `/_fake/tools`.
The headers `X-Job-Id`, `X-Job-Step` and `X-Attempt` are kept in it.
"""

from __future__ import annotations

from typing import Annotated, Any, cast

import msgspec

from fake_provider.budget import NS

MAX_ENTRIES = 200_000
COMPLETED, FAILED, CANCELLED, OPEN = "completed", "failed", "cancelled", "open"


class ToolBody(msgspec.Struct):
    """What the tool is sent."""

    seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    side_effect: bool = False
    payload: Any = None


class ToolRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call, read."""

    tool: str
    key: str | None
    job: str | None = None
    step: int | None = None
    attempt: int | None = None
    body: ToolBody


class ToolEntry(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One call in the ledger; times are nanoseconds on the provider's own monotonic clock."""

    call: int
    """From 1, in order of arrival."""
    tool: str
    arrived_ns: int
    ended_ns: int | None = None
    ending: str = OPEN
    """`completed`, `failed` (answered with an error), `cancelled` (the caller left), or `open`."""
    status: int = 0
    """What the caller was answered; 0: nothing."""
    key: str | None = None
    job: str | None = None
    step: int | None = None
    attempt: int | None = None
    ref: str | None = None
    side_effect: bool = False
    """It was asked to have an effect."""
    effect_ns: int | None = None
    """When this call had its effect. None: it had none."""
    duplicate: bool = False
    """Its key had come before."""


class ToolCounts(msgspec.Struct):
    """Sums of the ledger."""

    calls: int = 0
    effects: int = 0
    duplicates: int = 0
    """Calls whose key had come before."""
    unkeyed: int = 0
    """Calls with a side effect and without a key."""
    failed: int = 0
    hung: int = 0
    cancelled: int = 0
    """Calls whose caller left."""
    entries_dropped: int = 0


class ToolVisit:
    """One call under way. `effect_due_ns` and `answer_due_ns`: when to say so; None: never."""

    __slots__ = ("answer_due_ns", "effect_due_ns", "entry", "replayed", "status")

    def __init__(self, entry: ToolEntry) -> None:
        self.entry = entry
        self.status = 200
        self.replayed = False
        self.effect_due_ns: int | None = None
        self.answer_due_ns: int | None = None


class ToolDesk:
    """All tools, and their ledger.

    `arrive` says when an effect and an answer are due. At `effect_due_ns` tell `effect`, whatever has become
    of the caller; at `answer_due_ns` tell `answer` and send what it returns; when the caller leaves, `left`.
    """

    def __init__(self, run: int = 0) -> None:
        self.reset(run)

    def reset(self, run: int) -> None:
        """An empty ledger. Effects of earlier calls are of no interest any more."""
        self.run = run
        self.counts = ToolCounts()
        self.entries: list[ToolEntry] = []
        self._visits: dict[str, int] = {}
        self._first: dict[str, ToolVisit] = {}
        """The call that has, or will have, the effect of a key."""

    def arrive(self, now_ns: int, request: ToolRequest) -> ToolVisit:
        """A call has come in."""
        wants = _wants(request.body.payload)
        visit = ToolVisit(self._enter(now_ns, request, wants))
        number = self._count(request, visit.entry)
        takes_ns = round(request.body.seconds * NS)
        first = None if request.key is None else self._first.get(request.key)
        if first is not None:
            return self._join(now_ns, visit, first)
        visit.answer_due_ns = now_ns + takes_ns
        if number <= _times(wants.get("fail_first")):
            visit.status = _status(wants.get("fail_status"))
            return visit
        if request.key is not None:
            self._first[request.key] = visit
        if request.body.side_effect:
            visit.effect_due_ns = now_ns + takes_ns
        if number <= _times(wants.get("hang")):
            visit.answer_due_ns = None
            self.counts.hung += 1
        return visit

    def effect(self, now_ns: int, visit: ToolVisit) -> None:
        """The side effect happens."""
        visit.effect_due_ns = None
        visit.entry.effect_ns = now_ns
        self.counts.effects += 1

    def answer(self, now_ns: int, visit: ToolVisit) -> tuple[int, bytes]:
        """Status and body."""
        entry = visit.entry
        entry.status, entry.ended_ns = visit.status, now_ns
        entry.ending = COMPLETED if visit.status < 400 else FAILED
        if visit.status >= 400:
            self.counts.failed += 1
            return visit.status, msgspec.json.encode({"error": {"message": "told to fail"}})
        said = {
            "tool": entry.tool,
            "call": entry.call,
            "effect": entry.effect_ns is not None,
            "replayed": visit.replayed,
            "ref": entry.ref,
        }
        return visit.status, msgspec.json.encode(said)

    def left(self, now_ns: int, visit: ToolVisit) -> None:
        """The caller has gone. What has been begun goes on."""
        if visit.entry.ending == OPEN:
            visit.entry.ending, visit.entry.ended_ns = CANCELLED, now_ns
            self.counts.cancelled += 1

    def ledger(self, now_ns: int) -> dict[str, Any]:
        """Everything, as GET `/_fake/tools` shows it."""
        return {"now_ns": now_ns, "run": self.run, "counts": self.counts, "entries": self.entries}

    # ----------------------------------------------------------------- inside

    def _enter(self, now_ns: int, request: ToolRequest, wants: dict[str, Any]) -> ToolEntry:
        self.counts.calls += 1
        ref = wants.get("ref")
        entry = ToolEntry(
            call=self.counts.calls,
            tool=request.tool,
            arrived_ns=now_ns,
            key=request.key,
            job=request.job,
            step=request.step,
            attempt=request.attempt,
            ref=None if ref is None else str(ref)[:128],
            side_effect=request.body.side_effect,
        )
        if len(self.entries) < MAX_ENTRIES:
            self.entries.append(entry)
        else:
            self.counts.entries_dropped += 1
        return entry

    def _count(self, request: ToolRequest, entry: ToolEntry) -> int:
        """Which call of its kind it is, from 1."""
        name = f"key {request.key}" if request.key is not None else f"ref {entry.ref}"
        number = self._visits[name] = self._visits.get(name, 0) + 1
        if request.key is None:
            self.counts.unkeyed += request.body.side_effect
        elif number > 1:
            entry.duplicate = True
            self.counts.duplicates += 1
        return number

    def _join(self, now_ns: int, visit: ToolVisit, first: ToolVisit) -> ToolVisit:
        """The first call's result: when it is there."""
        visit.replayed = True
        visit.answer_due_ns = max(now_ns, first.effect_due_ns or now_ns, first.answer_due_ns or now_ns)
        return visit


def _wants(payload: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}


def _times(value: Any) -> float:
    """`true` is always, a number so many times, all else never."""
    if value is True:
        return float("inf")
    return value if isinstance(value, int | float) else 0


def _status(value: Any) -> int:
    return value if isinstance(value, int) and 400 <= value <= 599 else 500
