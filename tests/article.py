"""The configuration as the article prints it, indented as YAML must be."""

from __future__ import annotations

ARTICLE = """\
pools:
  agent-shared:
    capacity_units: 100
    classes:
      guaranteed:
        nominal_share: 0.50
        min_units: 30
        max_queue: 200
        response_when_full: reject
      standard:
        nominal_share: 0.35
        min_units: 20
        max_queue: 500
        response_when_full: defer
      batch:
        nominal_share: 0.15
        min_units: 5
        max_queue: 1000
        response_when_full: defer

retry:
  max_attempts: 6
  base_seconds: 2
  max_seconds: 120
  jitter: full

estimation:
  max_reservation_units: 40
  update_window: 500
  safety_multiplier: 1.25
"""
CLASSES = {"guaranteed": (0.50, 30, 200), "standard": (0.35, 20, 500), "batch": (0.15, 5, 1000)}
