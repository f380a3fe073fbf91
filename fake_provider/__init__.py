"""A fake LLM provider limited in tokens per minute, with a truthful ledger.

Useful alone: `python -m fake_provider`. It never imports `agentload`. The core is sans-I/O (told the time,
handed its random source): start at `core`. The shell (`app`, `endpoint`, `control`, …) only waits and sends.
"""
