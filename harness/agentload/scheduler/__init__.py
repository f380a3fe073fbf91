"""The reference admission scheduler: pure, told the time, without sockets or threads.

Four separate decisions: admission (may it start or wait now), priority (which class is protected), fairness
(which tenant inside the class) and retry (when may the caller come back).
"""
