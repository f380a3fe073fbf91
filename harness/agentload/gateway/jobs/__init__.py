"""Durable jobs: work that is accepted with a 202 and survives the gateway.

A job is a list of steps, run one after the other: a chat call to the provider, through admission like any
other request of its tenant and class, or a call of a tool over HTTP. `model.py` has the nouns, `states.py`
the transitions, `lifecycle.py` one job, `delivery.py` a try at one of its steps, `core.py` all of them,
`front.py` puts them beside a GatewayCore. All of that is PURE; `shell.py`, `endpoint.py` and
`stores/sqlite.py` are the shell. Off unless configured (`jobs:` in the configuration file, or
`--jobs-db PATH`): then the addresses below answer 404 with a hint.

Endpoints
=========
Who is asking is read as for chat: `Authorization: Bearer KEY` or `X-Tenant`. Errors have OpenAI's shape,
`{"error": {"message", "type", "param", "code"}}`, with the code in `X-Admission-Reason` too; every answer has
`Cache-Control: no-store`.

POST /v1/jobs
    Body: `{"steps": [STEP, …], "workflow"?: str, "service_class"?: str, "deadline_ms"?: number,
    "max_attempts"?: int, "max_total_tokens"?: int}`. The headers `X-Workflow`, `X-Service-Class`,
    `X-Deadline-Ms` and `X-Max-Attempts` say the same; the body wins. STEP is one of
    `{"chat": {"model", "messages", "max_tokens"?, …}}` (never streamed) and
    `{"tool": {"name": str, "seconds"?: number, "side_effect"?: bool, "payload"?: any JSON,
    "timeout_s"?: number}}`.
    `Idempotency-Key` (per tenant, up to 255 characters): the same key with the same body gives the same job
    again, whatever has become of it; with another body 409 `idempotency_conflict`.
    202 once the job is safe in the store, with `Location: /v1/jobs/ID` and the body
    `{"id", "state", "position", "eta_s"}`.
    400 malformed (`invalid_json`, `invalid_request`, `unknown_service_class`) or `too_many_steps`; 413
    `body_too_long`; 504 `deadline_unmeetable` (its tools alone are expected to take longer); 429
    `tenant_queue_full` or `class_queue_full`; 503 `jobs_full`, `store_unavailable` (nothing was written) or
    `shutting_down`; 429 and 503 carry `Retry-After`.

POST /v1/chat/completions with `Prefer: respond-async` (RFC 7240)
    The same for a job of this one chat step: 202 with `Preference-Applied: respond-async`. Without jobs the
    preference is ignored, as the RFC has it.

GET /v1/jobs/ID
    200 with `{"id", "object": "job", "state", "workflow", "service_class", "created_ms", "deadline_ms",
    "position", "eta_s", "steps_total", "steps_done", "attempts", "max_attempts", "deliveries",
    "not_before_ms", "estimated_work_units", "idempotency_key", "total_tokens", "reason", "message",
    "ended_ms", "result", "results"}`; null where there is nothing to say.
    `*_ms` are Unix times. `position`: 1 is the next of its class to go, 0 is in service, null is ended.
    `eta_s`: seconds until it is expected to be completed. `attempts`: failed deliveries, at most
    `max_attempts`; `deliveries`: how often a step of it was begun. `estimated_work_units`: what all its
    steps declared. `results`: for each step done
    `{"step", "kind": "chat"|"tool", "status", "output", "input_tokens", "output_tokens", "seconds"}`;
    `result`: the output of the last step of a completed job.
    404 `unknown_job`, also for the job of another tenant.

DELETE /v1/jobs/ID
    200 with the body of GET. Whatever runs is stopped at once (its call to the provider or tool is closed).
    A job that had ended stays as it is. 503 `store_unavailable`: it was stopped but this is not yet safe.

GET /debug/jobs
    For this machine only: `{"now_ns", "open", "kept", "bytes", "states", "waiting", "oldest_wait_ns",
    "lease_age_ns", "reclaims", "retries", "step_limits", "tool_calls", "tool_ns", "counters": {"accepted",
    "begun", "reclaimed", "retried", "parked", "fenced", "store_failures", …}}`.

States
======
`queued`: waits for its turn. `deferred`: waits for a set time (`not_before_ms`): admission refused its step,
a step failed and is tried again later, or its class (with `response_when_full: defer`) was full when it came.
`running`: a step is in service, under a lease. `completed`, `failed` (with `reason`), `expired` (its
deadline), `cancelled`: ended, and never changed again. Between two steps a job is `queued`.

Reasons of `failed`: `attempts_exhausted` (with the last failure in `message`), `spend_limit`,
`step_refused` (the provider or tool will never do it), and those of admission that invite no retry
(`too_wide`, `budget_spent`, …).

Promises
========
A 202 is sent after the row is safe (SQLite: WAL, synchronous=FULL, group commit). A step is begun after its
lease is safe: state, owner, token, expiry and delivery count in one transaction. Its result is safe before
the job moves on. A tool is called with `Idempotency-Key: JOB:STEP`, the same at every delivery. Every write
names the fencing token under which it was decided; the store refuses one whose token is not the row's, and
any write to an ended row. A lease that lapses (no heartbeat) or is orphaned (the gateway died) is a failed
delivery: the step goes through admission again. What admission refuses is parked and asks again after its
Retry-After, until the deadline. So every accepted job ends: deliveries that fail are bounded by
`max_attempts`, everything else by the deadline.

The tool endpoint of the fake provider
======================================
POST {provider}/_tool/NAME with the body `{"seconds", "side_effect", "payload"}`. See `fake_provider/tools.py`
for what the payload may ask for (`hang`, `fail_first`, `fail_status`, `ref`), and for the ledger at
GET `/_fake/tools`: `{"now_ns", "run", "counts": {"calls", "effects", "duplicates", "unkeyed", …},
"entries": [{"call", "tool", "arrived_ns", "ended_ns", "ending", "status", "key", "job", "step", "attempt",
"ref", "effect", "duplicate"}, …]}`. It is called with the headers `Idempotency-Key`, `X-Job-Id`, `X-Job-Step`
(from 0) and `X-Attempt` (from 0).
"""
