"""What requests turn out to cost, learnt from what they cost before, in bounded memory."""

from __future__ import annotations

import math
from collections import OrderedDict

from agentload.scheduler.config import EstimationConfig
from agentload.scheduler.work import Request

SERVICE_WINDOW = 50
"""Durations are averaged over fewer values than tokens: a provider slows down within seconds."""
STALE_NS = 30_000_000_000
"""An expected duration that nothing has confirmed for so long refuses nobody: refusing everything on the
strength of it would stop the learning, and the refusals would never end."""


KINDS = 32
"""Kinds of requests (workflow and model) that are remembered of one tenant."""


class MovingMean:
    """The mean of what was seen, with the weight of a window: exact for the first `window` values, then
    exponential with that time constant. It needs no list of them."""

    __slots__ = ("_window", "count", "mean")

    def __init__(self, window: int) -> None:
        self._window = window
        self.count = 0
        """Values seen, at most the window."""
        self.mean = 0.0

    def copy(self) -> MovingMean:
        """Another one that has seen the same."""
        other = MovingMean(self._window)
        other.count, other.mean = self.count, self.mean
        return other

    def add(self, value: float) -> None:
        """Take one more value into account."""
        count = self.count
        if count < self._window:
            self.count = count = count + 1
        self.mean += (value - self.mean) / count


class ServiceTime:
    """Time in service, as seen lately."""

    __slots__ = ("_seen_ns", "deviation", "moving", "usual")

    def __init__(self) -> None:
        self.usual = MovingMean(SERVICE_WINDOW)
        """Of calls that ended by themselves."""
        self.moving = self.usual
        """Of all calls; those that were cut off would have taken longer. The same mean until one was."""
        self.deviation = MovingMean(SERVICE_WINDOW)
        """By how much one of these differs from the mean."""
        self._seen_ns = 0

    def add(self, now_ns: int, service_ns: int) -> None:
        """A call took that long."""
        if self.usual.count:
            self.deviation.add(abs(service_ns - self.usual.mean))
        self.usual.add(service_ns)
        if self.moving is not self.usual:
            self.moving.add(service_ns)
        self._seen_ns = now_ns

    def cut_off(self, now_ns: int, service_ns: int) -> None:
        """A call was cut off after so long: it tells something if it should have ended by then."""
        if service_ns > (self.expected_ns(now_ns) or 0):
            if self.moving is self.usual:
                self.moving = self.usual.copy()
            self.moving.add(service_ns)
            self._seen_ns = now_ns

    def expected_ns(self, now_ns: int) -> int | None:
        """What to expect of the next one, or None when there is nothing recent to go by."""
        if not self.moving.count or now_ns - self._seen_ns > STALE_NS:
            return None
        return round(self.moving.mean)

    def enough_ns(self, now_ns: int) -> int | None:
        """What most need no more than: the mean and twice the mean deviation. None as above.

        (Jacobson, "Congestion avoidance and control", SIGCOMM 1988, takes four times, for a timeout.) Who is
        begun with no more than the mean left misses its deadline every other time. While calls are cut off,
        only their mean counts: with a margin on top, what was cut off by deadlines would refuse all that have
        the same deadline, and nothing would ever be learnt again.
        """
        expected_ns = self.expected_ns(now_ns)
        if expected_ns is None:
            return None
        return max(expected_ns, round(self.usual.mean + 2 * self.deviation.mean))


class Experience:
    """What one kind of request was like."""

    __slots__ = ("output_tokens", "service")

    def __init__(self, window: int) -> None:
        self.output_tokens = MovingMean(window)
        self.service = ServiceTime()


class _Tenant:
    """What one tenant's requests were like: all of them, and each kind by itself."""

    __slots__ = ("all_output_tokens", "kinds")

    def __init__(self, window: int) -> None:
        self.all_output_tokens = MovingMean(window)
        self.kinds: OrderedDict[tuple[str, str], Experience] = OrderedDict()
        """By workflow and model, the least recently used first."""


NEWCOMERS = 1_000
"""Tenants that came once and are waited for to come again, at most."""


class Estimator:
    """Experience by tenant, workflow and model; what is new of a tenant is thought of as its other work.

    The workflow is what the caller writes into a header: one that writes another name every time must neither
    stay unknown for ever nor push out what was learnt of others. So the tenant as a whole is remembered, too,
    and it has KINDS kinds at most; beyond `max_keys` kinds in all, the tenant least recently served is
    forgotten whole. Who came once teaches nothing until it comes again, and most visitors never do: they are
    kept apart, few of them, so that memory does not grow with each.
    """

    def __init__(self, config: EstimationConfig, max_keys: int) -> None:
        self._config = config
        self._margin = config.safety_multiplier
        self._max_keys = max_keys
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()
        """The least recently served first."""
        self._newcomers: OrderedDict[str, _Tenant] = OrderedDict()
        """Of one kind each."""
        self._kinds = 0
        """Of tenants that are no newcomers."""

    def __len__(self) -> int:
        return self._kinds + len(self._newcomers)

    def output_tokens(self, request: Request) -> int:
        """Expected output: what was declared, corrected by what this kind of request really produced.

        A caller that declares much is charged what it usually needs, with a safety margin; one that declares
        less than it produces is charged what it produces. Never less than was learnt. For a kind that is new
        the tenant's mean is the least; it earns no discount by what other kinds needed.
        """
        declared, name = request.max_output_tokens, request.tenant
        tenant = self._tenants.get(name) or self._newcomers.get(name)
        if tenant is None or not tenant.all_output_tokens.count:
            return self._config.default_output_tokens if declared is None else declared
        experience = tenant.kinds.get((request.workflow, request.model))
        if experience is None or not experience.output_tokens.count:
            return self._of_a_new_kind(tenant.all_output_tokens.mean, declared)
        learnt = experience.output_tokens.mean
        expected = learnt * self._margin
        if declared is not None and declared < expected:
            expected = declared
        return math.ceil(expected if expected > learnt else learnt)

    def _of_a_new_kind(self, learnt: float, declared: int | None) -> int:
        if declared is None:
            return math.ceil(learnt * self._margin)
        return max(declared, math.ceil(learnt))

    def service_ns(self, now_ns: int, request: Request) -> int | None:
        """Time that is enough for this kind of request, or None when there is nothing recent to go by."""
        name = request.tenant
        tenant = self._tenants.get(name) or self._newcomers.get(name)
        experience = None if tenant is None else tenant.kinds.get((request.workflow, request.model))
        return None if experience is None else experience.service.enough_ns(now_ns)

    def served(self, now_ns: int, request: Request, output_tokens: int, service_ns: int) -> None:
        """Learn from a call that was answered whole."""
        tenant, experience = self._experience(request)
        tenant.all_output_tokens.add(output_tokens)
        experience.output_tokens.add(output_tokens)
        experience.service.add(now_ns, service_ns)

    def lasted(self, now_ns: int, request: Request, service_ns: int) -> None:
        """Learn from a call that was cut off."""
        self._experience(request)[1].service.cut_off(now_ns, service_ns)

    def _experience(self, request: Request) -> tuple[_Tenant, Experience]:
        name, kind = request.tenant, (request.workflow, request.model)
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._newcomers.pop(name, None)
            if tenant is None:
                return self._first_seen(name, kind)
            self._tenants[name] = tenant
            self._kinds += len(tenant.kinds)
        self._tenants.move_to_end(name)
        experience = tenant.kinds.get(kind)
        if experience is None:
            experience = self._new_kind(tenant, kind)
        tenant.kinds.move_to_end(kind)
        return tenant, experience

    def _first_seen(self, name: str, kind: tuple[str, str]) -> tuple[_Tenant, Experience]:
        if self._newcomers and len(self._newcomers) >= min(NEWCOMERS, self._max_keys - self._kinds):
            self._newcomers.popitem(last=False)
        elif len(self) >= self._max_keys:
            self._forget_tenant()
        tenant = self._newcomers[name] = _Tenant(self._config.update_window)
        experience = tenant.kinds[kind] = Experience(self._config.update_window)
        return tenant, experience

    def _new_kind(self, tenant: _Tenant, kind: tuple[str, str]) -> Experience:
        if len(tenant.kinds) >= KINDS:
            tenant.kinds.popitem(last=False)
        else:
            self._kinds += 1
        experience = tenant.kinds[kind] = Experience(self._config.update_window)
        while len(self) > self._max_keys and (self._newcomers or len(self._tenants) > 1):
            if self._newcomers:
                self._newcomers.popitem(last=False)
            else:
                self._forget_tenant()
        return experience

    def _forget_tenant(self) -> None:
        _, forgotten = self._tenants.popitem(last=False)
        self._kinds -= len(forgotten.kinds)
