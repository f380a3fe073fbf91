"""The command line: parses, calls one function, prints. Imports nothing heavy until a command needs it."""

from __future__ import annotations

# Importing them adds their commands, in the order in which `--help` lists them.
from agentload.cli import loads, targets, looks, studies, servers  # isort: skip
from agentload.cli.root import app, plugins_first

__all__ = ["app", "loads", "looks", "plugins_first", "servers", "studies", "targets"]
