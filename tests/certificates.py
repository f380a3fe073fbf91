"""A certificate authority of one's own, made by the `openssl` command, and what it has signed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PAST = ["-startdate", "20200101000000Z", "-enddate", "20200201000000Z"]


def authority(folder: Path) -> Path:
    """Its folder: `ca.pem`, `other-ca.pem`, and a `.pem` and `.key` for good, expired, other and client."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make certificates")
    for name in ("ca", "other-ca"):
        _openssl(
            folder,
            "req",
            "-x509",
            *_new_key(name),
            "-days",
            "2",
            "-subj",
            f"/CN={name}",
            "-out",
            f"{name}.pem",
        )
    (folder / "index.txt").touch()
    (folder / "ca.cnf").write_text(CONFIG)
    for name, names, dates in (
        ("good", "DNS:localhost,IP:127.0.0.1", ["-days", "2"]),
        ("expired", "DNS:localhost,IP:127.0.0.1", PAST),
        ("other", "DNS:elsewhere.example", ["-days", "2"]),
        ("client", "DNS:agentload.example", ["-days", "2"]),
    ):
        (folder / "names.cnf").write_text(f"subjectAltName={names}\n")
        _openssl(folder, "req", *_new_key(name), "-subj", f"/CN={name}", "-out", f"{name}.csr")
        signed = ["-in", f"{name}.csr", "-out", f"{name}.pem", "-extfile", "names.cnf", *dates]
        _openssl(folder, "ca", "-batch", "-notext", "-config", "ca.cnf", *signed)
    return folder


CONFIG = """\
[ca]
default_ca = own
[own]
database = index.txt
new_certs_dir = .
rand_serial = yes
certificate = ca.pem
private_key = ca.key
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
"""


def _new_key(name: str) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key"]


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
