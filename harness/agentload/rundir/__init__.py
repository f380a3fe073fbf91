"""The folder a run leaves behind: written while it runs, so that a crash loses a line and not a run.

    manifest.json    what was run: profile, seed, driver, target, versions, command line, plan fingerprint
    records.jsonl    one RequestRecord per line, one per attempt
    ledger.jsonl     one LedgerEntry per line, on the run's clock
    samples.jsonl    one Sample per line
    jobs.jsonl       one JobRecord per line, where the profile has durable jobs
    tools.jsonl      one ToolRecord per line, likewise
    generator.json   GeneratorHealth, written at the end
    latency.hlog     HdrHistogram V2 log, written by the driver
    logs/            what the processes said

`load` reads it back for `agentload judge`: the plan is not stored but drawn again from profile and seed.

`manifest.py` is what was run, `folder.py` the files, `reader.py` the way back.
"""

from __future__ import annotations

from agentload.rundir.folder import RunDir, file_name, make_folder, new_folder
from agentload.rundir.manifest import Manifest, RunFolderError, manifest_of, meta, read_manifest
from agentload.rundir.reader import load
from agentload.storage import DamagedFileError, JsonLines, StorageError, storage_error, write_file

__all__ = [
    "DamagedFileError",
    "JsonLines",
    "Manifest",
    "RunDir",
    "RunFolderError",
    "StorageError",
    "file_name",
    "load",
    "make_folder",
    "manifest_of",
    "meta",
    "new_folder",
    "read_manifest",
    "storage_error",
    "write_file",
]
