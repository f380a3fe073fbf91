"""Where jobs are kept: `memory.py` (PURE) and `sqlite.py` (shell). The contract is `jobs/store.py`."""
