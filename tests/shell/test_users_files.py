"""Users' own Locust files are looked at before anything is started: one line for whatever is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentload.drivers import users_files
from agentload.errors import ProfileError
from own_users import PROFILE, USERS, loaded

FILES = {
    "missing.py": "import os\n\nimport nope_nobody_has_this\n",
    "quits.py": "import sys\n\n\ndef main():\n    sys.exit(3)\n\n\nmain()\n",
    "nothing.py": "print('{}')\n",
    "near.py": "from locust import HttpUser\n\n\nclass Quik(HttpUser):\n    tasks = [print]\n",
    "foreign.py": "class Quick:\n    pass\n",
    "idle.py": "from locust import HttpUser\n\n\nclass Quick(HttpUser):\n    pass\n",
    "abstract.py": "from locust import HttpUser\n\n\nclass Quick(HttpUser):\n    abstract = True\n",
}
EXPECTED = [
    "missing.py:3: ModuleNotFoundError: No module named 'nope_nobody_has_this'",
    "quits.py:5: SystemExit: 3",
    "nothing.py: has no class 'Quick' (it defines no User at all)",
    "near.py: has no class 'Quick' (did you mean 'Quik'?)",
    "foreign.py:1: Quick is not a subclass of locust.User",
    "idle.py:4: Quick has no task: decorate a method with @task",
    "abstract.py:4: Quick is abstract: name a subclass of it",
]


def test_every_file_that_cannot_be_played_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    head, _, _ = PROFILE.partition("  - name: own\n")
    tenants = [
        f"  - {{name: t{n}, locust: {{file: {file}, class: Quick}}}}\n" for n, file in enumerate(FILES)
    ]
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    chosen = loaded(tmp_path, head + "".join(tenants) + "checks: [own-answer]\n")
    with pytest.raises(ProfileError) as raised:
        users_files.check(chosen)
    assert list(raised.value.lines) == EXPECTED


def test_a_file_that_ends_the_process_is_named(tmp_path: Path) -> None:
    chosen = loaded(
        tmp_path, users="import os, sys\nprint('so long', file=sys.stderr, flush=True)\nos._exit(7)\n"
    )
    with pytest.raises(ProfileError) as raised:
        users_files.check(chosen)
    assert str(raised.value) == f"{tmp_path / 'users.py'}: ended the process that imports it (7): so long"


def test_a_good_file_is_fine_with_its_neighbours_and_what_lies_where_it_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, users = tmp_path / "project", tmp_path / "project" / "load"
    users.mkdir(parents=True)
    (project / "shared_by_all.py").write_text("KEY = 1\n")
    (users / "near_by.py").write_text("from shared_by_all import KEY\n")
    monkeypatch.chdir(project)
    users_files.check(loaded(users, users=f"from near_by import KEY\n{USERS}"))
