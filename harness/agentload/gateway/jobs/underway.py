"""What is under way for which job: requests at the gateway's core, calls of tools, slots of the gate. PURE.

A job has at most one of a request and a call. Its news is listened to as long as it is in these books: once
it is forgotten, what still comes of it is nobody's.
"""

from __future__ import annotations

from agentload.gateway.jobs.gate import ToolGate


class Underway:
    """Jobs by number; ids of requests and calls are negative, so that none is a client's."""

    def __init__(self, gate: ToolGate) -> None:
        self._gate = gate
        self._last_id = 0
        self._jobs: dict[int, int] = {}
        """Number of the job, by the id of its request or call."""
        self._requests: dict[int, int] = {}
        self._calls: dict[int, int] = {}
        self._slots: dict[int, str] = {}
        """Tenant whose slot of the gate a job holds."""

    def __len__(self) -> int:
        return len(self._requests) + len(self._slots)

    @property
    def requests(self) -> list[int]:
        """Jobs with a request."""
        return list(self._requests)

    @property
    def jobs(self) -> list[int]:
        """Jobs with a request, or a slot of the gate."""
        return [*self._requests, *self._slots]

    def job(self, some_id: int) -> int | None:
        """The job that a request or call is for; None when nobody listens to it any more."""
        return self._jobs.get(some_id)

    def request_of(self, number: int) -> int | None:
        """The job's request."""
        return self._requests.get(number)

    def ask(self, number: int) -> int:
        """The id of a new request of the job."""
        self._requests[number] = self._next_id(number)
        return self._last_id

    def call(self, number: int) -> int:
        """The id of a new call of the job's tool."""
        self._calls[number] = self._next_id(number)
        return self._last_id

    def hold_slot(self, number: int, tenant: str) -> None:
        """The gate let the job through, which holds a slot until its call is forgotten."""
        self._slots[number] = tenant

    def forget_request(self, number: int) -> int | None:
        """The request has ended, or nobody wants it any more. Its id."""
        request_id = self._requests.pop(number, None)
        if request_id is not None:
            del self._jobs[request_id]
        return request_id

    def forget_call(self, number: int) -> int | None:
        """The call has ended, or was never made, or nobody wants it: the slot is free. Its id."""
        call_id = self._calls.pop(number, None)
        if call_id is not None:
            del self._jobs[call_id]
        if number in self._slots:
            self._gate.free(self._slots.pop(number))
        return call_id

    def _next_id(self, number: int) -> int:
        self._last_id -= 1
        self._jobs[self._last_id] = number
        return self._last_id
