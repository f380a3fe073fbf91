"""Small profiles for mutants of what is asked at the door: budgets that are raced for, and retries."""

from __future__ import annotations

_LATENCY = "latency: {first_token_ms: 100, first_token_cv: 0.4, inter_token_ms: 10}"

BUDGET_RACE = f"""\
# Sixty requests at one instant, against a budget for some fifty.
name: budget-race
about: Bursts of sixty against a budget of 2,000 tokens; all come before the first has ended.
phases:
  - {{name: load, seconds: 8}}
provider: {{slots: 64, {_LATENCY}}}
gateway:
  pools:
    shared:
      slots: 64
      tenant_slots: 64
      classes:
        standard: {{max_queue: 256}}
  tenants:
    agent: {{budget: {{tokens: 2000}}}}
tenants:
  - name: agent
    arrivals: {{kind: bursts, size: 60, every_s: 2, spread_s: 0.05}}
    workload: {{kind: fixed, input_tokens: 24, max_tokens: 16, output_tokens: 16}}
    client: {{kind: obeys}}
checks:
  - budget: {{tokens: 2000}}
  - retry-after-present
  - status-codes
"""

RETRIES = f"""\
# The clients of one come back before they are told to, the calls of the other always fail.
name: retries
about: Clients that come early, and clients that never give up, all of which call each attempt their first.
phases:
  - {{name: warm-up, seconds: 2, record: false}}
  - {{name: load, seconds: 14}}
provider: {{slots: 8, {_LATENCY}}}                       # 8 ÷ 0.25 s = 32 calls/s
faults:
  - {{kind: error-rate, phase: load, rate: 1, tenant: stubborn}}
gateway:
  pools:
    shared:
      slots: 8
      classes:
        standard: {{max_queue: 8, tenant_max_queue: 6}}
tenants:
  - name: early
    arrivals: {{kind: poisson, rate: 36}}
    workload: &small {{kind: chat, input_tokens: 24, max_tokens: 48, output_tokens: {{min: 8, max: 24}}}}
    client: {{kind: forgetful, gap_s: 0.3, max_attempts: 4}}
  - name: stubborn
    arrivals: {{kind: poisson, rate: 2}}
    workload: *small
    client: {{kind: forgetful, gap_s: 0.4, max_attempts: 12}}
checks:
  - retry-identity
  - retry-after-present
  - status-codes
"""
