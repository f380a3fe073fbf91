"""Small profiles made for mutants that no bundled profile exposes."""

from __future__ import annotations

_LATENCY = "latency: {first_token_ms: 100, first_token_cv: 0.4, inter_token_ms: 10}"
"""As in the bundled profiles: 250 ms for a call of 16 tokens."""

PRIORITY = f"""\
# Two classes on one pool: the high one wants more than there is, the low one always has work waiting.
name: priority
about: A premium class at 125 % of capacity beside a batch class that is due 30 %.
phases:
  - {{name: warm-up, seconds: 2, record: false}}
  - {{name: flood, seconds: 14}}
provider: {{slots: 16, {_LATENCY}}}                      # 16 ÷ 0.25 s = 64 calls/s
gateway:
  pools:
    shared:
      slots: 16
      classes:
        premium: {{nominal_share: 0.7, max_queue: 64}}
        batch: {{nominal_share: 0.3, max_queue: 64}}
tenants:
  - name: premium
    count: 4
    class: premium
    arrivals: {{kind: poisson, rate: 20}}
    workload: &small {{kind: chat, input_tokens: 24, max_tokens: 48, output_tokens: {{min: 8, max: 24}}}}
  - {{name: batch, class: batch, users: 24, workload: *small, client: obeys}}
checks:
  - no-starvation: {{max_wait_s: 3}}
  - bounded-queue
  - retry-after-present
  - status-codes
"""

LIAR = f"""\
# Neither says how long its answers will be; one's are ten times as long.
name: undeclared
about: Two equal tenants that declare nothing, one with short answers and one with long ones.
phases:
  - {{name: warm-up, seconds: 3, record: false}}
  - {{name: load, seconds: 20}}
provider: {{slots: 16, {_LATENCY}}}
gateway:
  pools:
    shared:
      slots: 16
      tenant_slots: 12
      classes:
        standard: {{max_queue: 256}}
tenants:
  - {{name: short, users: 24, workload: {{kind: fixed, input_tokens: 24, output_tokens: 8}}, client: obeys}}
  - {{name: long, users: 24, workload: {{kind: fixed, input_tokens: 24, output_tokens: 80}}, client: obeys}}
checks:
  - weighted-share
  - service-gap
  - no-starvation
"""

IMPATIENCE = f"""\
# Clients leave while they are queued, before the first byte and in the middle of a stream; then the same load
# as before must be served as before.
name: impatience
about: Two steady tenants before, during and after a burst of clients that leave.
phases:
  - {{name: warm-up, seconds: 4, record: false}}         # the provider's bucket must be empty by its end
  - {{name: baseline, seconds: 6}}
  - {{name: abort, seconds: 6}}
  - {{name: probe, seconds: 6}}
provider:
  tokens_per_minute: 153600                              # ÷ 60 ÷ 48 = 53.3 calls/s, 13.3 of 16 at once
  bucket_s: 0.5
  slots: 16
  {_LATENCY}
gateway:
  pools:
    shared:
      slots: 16
      classes:
        standard: {{max_queue: 256}}
tenants:
  - name: steady
    count: 2
    users: 16
    workload: {{kind: chat, input_tokens: 24, max_tokens: 48, output_tokens: {{min: 8, max: 24}}}}
    client: obeys
  - name: hasty
    during: [abort]
    arrivals: {{kind: poisson, rate: 60}}
    workload: {{kind: chat, input_tokens: 24, max_tokens: 48, output_tokens: {{min: 8, max: 24}}}}
    client: {{kind: quitter, leave_s: 0.4}}
  - name: reader
    during: [abort]
    arrivals: {{kind: poisson, rate: 8}}
    workload: {{kind: fixed, input_tokens: 24, max_tokens: 64, output_tokens: 64, stream: true}}
    client: {{kind: quitter, leave_tokens: 8}}
checks:
  - capacity-leak
  - cancel-upstream
  - no-ghosts
  - provider-limit
  - status-codes
"""

FAILING_PROVIDER = f"""\
# The provider fails in three ways, one after another, under more load than it allows.
name: failing-provider
about: Errors, an outage that says when to come back, and streams that break off, at 150 % of capacity.
phases:
  - {{name: warm-up, seconds: 2, record: false}}
  - {{name: errors, seconds: 6}}
  - {{name: outage, seconds: 4}}
  - {{name: cuts, seconds: 6}}
provider:
  tokens_per_minute: 153600                              # ÷ 60 ÷ 48 tokens a call = 53.3 calls/s
  bucket_s: 2
  slots: 32
  {_LATENCY}
faults:
  - {{kind: error-rate, phase: errors, rate: 0.6}}
  - {{kind: outage, phase: outage, retry_after_s: 2}}
  - {{kind: error-in-stream, phase: cuts}}
gateway:
  pools:
    shared:
      slots: 32
      classes:
        standard: {{max_queue: 64}}
tenants:
  - name: plain
    arrivals: {{kind: poisson, rate: 40}}
    workload: {{kind: chat, input_tokens: 24, max_tokens: 48, output_tokens: {{min: 8, max: 24}}}}
  - name: streamed
    arrivals: {{kind: poisson, rate: 40}}
    workload: {{kind: fixed, input_tokens: 24, max_tokens: 48, output_tokens: 16, stream: true}}
checks:
  - provider-limit
  - retry-amplification
  - upstream-retry-after
  - stream-integrity
  - status-codes
"""

STREAMS = f"""\
# More streams are wanted at once than the gateway may have in flight; the provider would take them all.
name: streams
about: Long streams from two tenants, three times as many as there are slots.
phases:
  - {{name: warm-up, seconds: 2, record: false}}
  - {{name: load, seconds: 12}}
provider: {{{_LATENCY}}}
gateway:
  pools:
    shared:
      slots: 16
      classes:
        standard: {{max_queue: 256}}
tenants:
  - name: reader
    count: 2
    users: 24
    workload: {{kind: fixed, input_tokens: 24, max_tokens: 64, output_tokens: 50, stream: true}}
    client: obeys
checks:
  - concurrency-cap
  - bounded-queue
  - own-answer
  - status-codes
"""

DEADLINES = f"""\
# Three times more than fits, and nobody waits for longer than a second and a half.
name: expiring
about: Deadlines of 0.5 and 1.5 s at three times the capacity.
phases:
  - {{name: warm-up, seconds: 2, record: false}}
  - {{name: load, seconds: 12}}
provider: {{slots: 16, {_LATENCY}}}                      # 16 ÷ 0.25 s = 64 calls/s
gateway:
  pools:
    shared:
      slots: 16
      classes:
        standard: {{max_queue: 256}}
tenants:
  - name: urgent
    count: 2
    arrivals: {{kind: poisson, rate: 48}}
    workload: {{kind: fixed, input_tokens: 24, max_tokens: 48, output_tokens: 16, deadline_s: 0.5}}
  - name: patient
    count: 2
    arrivals: {{kind: poisson, rate: 48}}
    workload: {{kind: fixed, input_tokens: 24, max_tokens: 48, output_tokens: 16, deadline_s: 1.5}}
checks:
  - deadline
  - bounded-queue
  - status-codes
"""

LARGE_CALLS = f"""\
# A bucket of four calls, plain and streamed, and twice as many wanted as the provider allows: one call too
# many is a quarter too much.
name: large-calls
about: Two tenants with calls of a quarter of the provider's bucket each.
phases:
  - {{name: warm-up, seconds: 2, record: false}}
  - {{name: load, seconds: 14}}
provider:
  tokens_per_minute: 153600                              # ÷ 60 ÷ 256 tokens a call = 10 calls/s
  bucket_s: 0.4
  slots: 32
  {_LATENCY}
gateway:
  pools:
    shared:
      slots: 32
      classes:
        standard: {{max_queue: 64}}
tenants:
  - name: plain
    arrivals: {{kind: poisson, rate: 10}}
    workload: {{kind: fixed, input_tokens: 24, max_tokens: 256, output_tokens: 60}}
  - name: streamed
    arrivals: {{kind: poisson, rate: 10}}
    workload: {{kind: fixed, input_tokens: 24, max_tokens: 256, output_tokens: 60, stream: true}}
checks:
  - provider-limit
  - no-starvation
  - bounded-queue
  - status-codes
"""

OBSERVED = f"""\
# Everything that can become of a request happens to some: answered, refused for its tenant or its class,
# evicted, late, given up by its client, failed at the provider.
name: observed
about: A flood, a quiet tenant, one in a hurry and one that leaves, and then errors at the provider.
phases:
  - {{name: warm-up, seconds: 2, record: false}}
  - {{name: flood, seconds: 8}}
  - {{name: errors, seconds: 4}}
  - {{name: calm, seconds: 3}}
provider: {{slots: 16, {_LATENCY}}}                      # 16 ÷ 0.25 s = 64 calls/s
faults:
  - {{kind: error-rate, phase: errors, rate: 0.3}}
gateway:
  pools:
    shared:
      slots: 16
      classes:
        standard: {{max_queue: 24, tenant_max_queue: 11}}
tenants:
  - name: flood
    count: 2
    during: [warm-up, flood]
    arrivals: {{kind: poisson, rate: 60}}
    workload: &small {{kind: chat, input_tokens: 24, max_tokens: 48, output_tokens: {{min: 8, max: 24}}}}
  - {{name: quiet, arrivals: {{kind: poisson, rate: 12}}, workload: *small}}
  - name: hurried
    arrivals: {{kind: poisson, rate: 8}}
    workload: {{kind: fixed, input_tokens: 24, max_tokens: 48, output_tokens: 16, deadline_s: 0.5}}
  - name: hasty
    arrivals: {{kind: poisson, rate: 4}}
    workload: *small
    client: {{kind: quitter, leave_s: 0.2}}
checks:
  - observable
  - bounded-queue
  - status-codes
"""

STUCK = f"""\
# A burst that makes the queue deep and is gone at once; then the provider all but stands still.
name: stuck
about: A deep queue that moves, and a shallow one that does not.
phases:
  - {{name: warm-up, seconds: 1, record: false}}
  - {{name: calm, seconds: 4}}
  - {{name: burst, seconds: 1}}
  - {{name: between, seconds: 4}}
  - {{name: stuck, seconds: 10}}
  - {{name: after, seconds: 5}}
provider: {{slots: 32, overflow: queue, {_LATENCY}}}     # 32 ÷ 0.25 s = 128 calls/s
faults:
  - {{kind: slots-cut, phase: stuck, to: 1}}             # 4 calls/s
gateway:
  pools:
    shared:
      slots: 32
      tenant_slots: 32                                   # the burst is to be gone in a second
      classes:
        standard: {{max_queue: 512}}
tenants:
  - name: steady
    count: 2
    arrivals: {{kind: poisson, rate: 8}}
    workload: &small {{kind: chat, input_tokens: 24, max_tokens: 48, output_tokens: {{min: 8, max: 24}}}}
  - {{name: burst, during: [burst], arrivals: {{kind: poisson, rate: 280}}, workload: *small}}
checks:
  - queue-age-alert
  - status-codes
"""
