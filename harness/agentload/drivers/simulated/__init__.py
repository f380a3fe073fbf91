"""The simulated driver: client, gateway and provider in virtual time, without sockets, threads or clocks.

The same profile, plan, behaviours, scheduler, request lifecycles and provider core as a live run; only what
carries messages between them is other: a heap of events (`kernel`) and a fixed delay (`network`). Everything
in this package is pure: the same seed gives the same run, to the nanosecond, in every process.
"""
