# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LITELLM := .venv-litellm

.PHONY: demo test check style mypy pyright contracts unit live litellm bench selftest golden wheel clean

demo: $(VENV)/.runtime  ## install, then the main job: one tenant floods, do the quiet ones notice?
	$(BIN)/agentload run noisy-neighbor

test: $(STAMP) check  ## everything CI runs: live runs (most of their time is waiting), then what computes (a quarter of that waits, too)
	$(BIN)/python -m pytest tests/live -n 2
	$(BIN)/python -m pytest --ignore tests/live -n 3

check: $(STAMP)  ## style, types, import contracts; two at a time
	$(MAKE) --no-print-directory --jobs 2 --output-sync=target style mypy pyright contracts

style: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

mypy: $(STAMP)
	$(BIN)/mypy

pyright: $(STAMP)
	$(BIN)/pyright --pythonpath $(BIN)/python

contracts: $(STAMP)
	$(BIN)/lint-imports

unit: $(STAMP)  ## the quick tests alone
	$(BIN)/python -m pytest -m "not live and not slow" -n 2

live: $(STAMP)  ## the tests that start real processes, the minutes-long ones included
	$(BIN)/python -m pytest -m "live or slow" -o addopts="-p no:locust --import-mode=importlib -ra"

litellm: $(STAMP) $(LITELLM)/.installed  ## LiteLLM as a gateway and as a client, in an environment of its own: ten minutes
	AGENTLOAD_LITELLM=$(abspath $(LITELLM)/bin/litellm) $(BIN)/python -m pytest tests/live/test_litellm.py \
		tests/live/test_litellm_client.py -o addopts="-p no:locust --import-mode=importlib -ra"

bench: $(STAMP)  ## costs side by side in one run; prints ratios, judges nothing
	$(BIN)/python -m bench

selftest: $(STAMP)  ## who judges the judge? every mutant, twin and seed: half an hour on two cores
	$(BIN)/agentload selftest

golden: $(STAMP)  ## after a change that is meant to change verdicts: the kill matrix that a test compares
	$(BIN)/agentload selftest --quick --golden tests/golden/kill_matrix.json

wheel: $(STAMP)
	$(BIN)/python -m build --wheel --outdir dist

clean:
	rm -rf $(VENV) $(LITELLM) dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(STAMP): $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@ $(VENV)/.runtime

# Not among our own packages: it brings a hundred more, and pins many of them.
$(LITELLM)/.installed:
	$(PYTHON) -m venv $(LITELLM)
	$(LITELLM)/bin/python -m pip install --quiet --disable-pip-version-check 'litellm[proxy]'
	touch $@
