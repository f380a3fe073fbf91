"""Which process on this host is the target: for its memory, and for faults that its owner allows."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import msgspec
from pydantic import Field, field_validator, model_validator

from agentload.model import Noun
from agentload.targets._keys import is_command


class ProcessSection(Noun):
    """`process:` of a target file."""

    pid: int | None = Field(default=None, gt=1, le=2**22)
    pid_file: str | None = Field(default=None, min_length=1)
    name: str | None = Field(default=None, min_length=1, max_length=255)
    restart: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(one is not None for one in (self.pid, self.pid_file, self.name)) != 1:
            raise ValueError("needs one of pid, pid_file or name")
        return self

    @field_validator("restart")
    @classmethod
    def _is_command(cls, command: str | None) -> str | None:
        return command and is_command(command)

    def ref(self, folder: Path) -> ProcessRef:
        """As the target file in that folder means it."""
        pid_file = self.pid_file and str(folder / self.pid_file)
        absolute = str(folder.absolute())
        return ProcessRef(
            pid=self.pid, pid_file=pid_file, name=self.name, restart=self.restart, folder=absolute
        )


class ProcessRef(msgspec.Struct, frozen=True, kw_only=True):
    """One of the three says which process; its children belong to it."""

    pid: int | None = None
    pid_file: str | None = None
    """A path from here."""
    name: str | None = None
    restart: str | None = None
    """The command that starts it again, run without a shell in `folder`; without one it is never killed."""
    folder: str = "."
    """Of the target file."""

    def without_arguments(self) -> ProcessRef:
        """For what is written down: arguments may be secrets."""
        name = None if self.restart is None else self.restart.split()[0]
        return msgspec.structs.replace(self, restart=name)
