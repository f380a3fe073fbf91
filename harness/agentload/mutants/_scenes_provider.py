"""Small profiles in which the provider is what fails."""

from __future__ import annotations

_LATENCY = "latency: {first_token_ms: 100, first_token_cv: 0.4, inter_token_ms: 10}"
"""As in the bundled profiles: 250 ms for a call of 16 tokens."""
_SMALL = "{kind: chat, input_tokens: 24, max_tokens: 48, output_tokens: {min: 8, max: 24}}"

SILENT_OUTAGE = f"""\
# The provider is away and does not say for how long. Who calls it as fast as it refuses makes it worse, and
# burns everything that waits; who asks once in a while finds it back soon.
name: silent-outage
about: An outage of four seconds without Retry-After, at 80 % load.
phases:
  - {{name: warm-up, seconds: 2, record: false}}
  - {{name: baseline, seconds: 6}}
  - {{name: outage, seconds: 4}}
  - {{name: after, seconds: 8}}
provider: {{slots: 16, {_LATENCY}}}                      # 16 ÷ 0.25 s = 64 calls/s
faults:
  - {{kind: outage, phase: outage}}
gateway:
  pools:
    shared:
      slots: 16
      classes:
        standard: {{max_queue: 256}}
tenants:
  - name: app
    count: 4
    arrivals: {{kind: poisson, rate: 13}}
    workload: {_SMALL}
    client: {{kind: openai-sdk}}
checks:
  - retry-amplification
  - recovery: {{baseline: baseline, after: after, within_s: 3}}
  - status-codes
"""

STRAY_REFUSALS = f"""\
# One call in thirty is refused, without a word on when to come back, as large providers do on any day.
name: stray-refusals
about: 3 % of the calls are answered 503, at 150 % of capacity.
phases:
  - {{name: warm-up, seconds: 2, record: false}}
  - {{name: load, seconds: 14}}
provider: {{slots: 16, {_LATENCY}}}
faults:
  - {{kind: error-rate, phase: load, rate: 0.03, status: 503}}
gateway:
  pools:
    shared:
      slots: 16
      classes:
        standard: {{max_queue: 64}}
tenants:
  - name: app
    count: 4
    arrivals: {{kind: poisson, rate: 24}}
    workload: {_SMALL}
checks:
  - overload-goodput
  - work-conserving
  - retry-amplification
  - status-codes
"""

MODELS = f"""\
# One model has a limit of its own, and more is wanted of it than that; of the other there is enough.
name: models
about: A model that is limited to 4 calls a second, asked for 8; another one beside it, without a limit.
phases:
  - {{name: warm-up, seconds: 2, record: false}}
  - {{name: load, seconds: 14}}
provider:
  slots: 32                                              # 32 ÷ 0.25 s = 128 calls/s
  bucket_s: 1
  model_limits:
    large: {{tokens_per_minute: 57600}}                  # ÷ 60 ÷ 240 tokens a call = 4 calls/s, 4 at once
  {_LATENCY}
gateway:
  pools:
    shared:
      slots: 32
      classes:
        standard: {{max_queue: 64}}
tenants:
  - name: large
    count: 2
    model: large
    arrivals: {{kind: poisson, rate: 4}}
    workload: {{kind: fixed, input_tokens: 24, max_tokens: 240, output_tokens: 60}}
  - name: small
    model: small
    arrivals: {{kind: poisson, rate: 20}}
    workload: {_SMALL}
checks:
  - provider-limit
  - no-starvation: {{max_wait_s: 3}}
  - status-codes
"""

RESETS = f"""\
# Every connection breaks before an answer: nobody knows what the provider has done.
name: resets
about: Eight seconds in which the provider resets every connection.
phases:
  - {{name: warm-up, seconds: 2, record: false}}
  - {{name: calm, seconds: 4}}
  - {{name: resets, seconds: 8}}
provider: {{slots: 32, {_LATENCY}}}
faults:
  - {{kind: reset, phase: resets}}
gateway:
  pools:
    shared:
      slots: 32
      classes:
        standard: {{max_queue: 64}}
tenants:
  - name: app
    count: 2
    arrivals: {{kind: poisson, rate: 16}}
    workload: {_SMALL}
checks:
  - retry-amplification
  - status-codes
"""
