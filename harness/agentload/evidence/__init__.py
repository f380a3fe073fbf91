"""What a run shows: logical requests, queues, shares, promises, and the statistics that weigh them. PURE.

Worked out from records, ledger and samples; the checks judge it, and the reports draw it.
"""
