"""The reference gateway: how it should be done, so that a red run can be told from a broken harness.

`core` and what it imports are pure. `exchange`, `driver`, `upstream`, `app`, `metrics` and `serve` are the
shell around it, which decides nothing.
"""
