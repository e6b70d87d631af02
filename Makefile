# Every target sets up what it needs: a fresh clone plus Python >= 3.10 and make is enough.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed

.PHONY: demo test test-slow check lint types layers torture test-nfs opdb bench peer ray test-browser fuzz clean docs

$(STAMP): setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q -c constraints.txt setuptools wheel
	$(PY) -m pip install -q -c constraints.txt --no-build-isolation --config-settings editable_mode=compat -e '.[test]'
	@touch $@

# The main job on a local directory: a faulty simulated device is trained, watched and found out.
demo: $(STAMP)
	$(PY) -m spool_check demo

test: $(STAMP)
	$(PY) -m pytest -n 2 --dist loadgroup -m 'not slow'

test-slow: $(STAMP)
	$(PY) -m pytest -n 2 --dist loadgroup -m slow

check: lint types layers

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(STAMP)
	$(VENV)/bin/mypy

layers: $(STAMP)
	$(PY) -m pytest -q tests/house

# Writers and readers that are killed, paused and starved of disk. SEED plays a run again.
BUNDLES ?= 5000
SEED ?=
torture: $(STAMP)
	PYTHONPATH=. $(PY) tests/support/torture.py --bundles $(BUNDLES) $(if $(SEED),--seed $(SEED))

# A real NFS server and two clients in a guest kernel; root on Debian, ten minutes. Kept in .nfs-lab.
test-nfs: $(STAMP)
	$(PY) tests/nfs/lab.py test

# All of torch's operator database; the table of what passes. Fails when a call is lost or wrongly judged. Ten minutes.
opdb: $(STAMP)
	$(PY) -W ignore tests/support/opdb.py > docs/coverage.md

bench: $(STAMP)
	$(PY) benchmarks/publish.py
	$(PY) benchmarks/waiting.py --waiting 1000 10000 100000
	$(PY) benchmarks/capture.py
	$(PY) benchmarks/end_to_end.py
	$(PY) benchmarks/compare.py
	$(PY) benchmarks/lan.py
	$(PY) benchmarks/batch.py --bundles 1000 10000

# The reference pages that are made from the code.
docs: $(STAMP)
	$(PY) docs/make_reference.py
	$(PY) -m fused_ops.document > docs/fused_ops.md

# The tool that users come from, in an environment of its own: the oracle of tests marked "peer".
peer: $(STAMP)
	sh tests/peer_env.sh

# Judging on a Ray cluster: Ray is an extra, so its tests run only after this has installed it.
ray: $(STAMP)
	$(PY) -m pip install -q -c constraints.txt ray
	$(PY) -m pytest -m ray

# The HTML report in a real browser. Chromium is not installed from here: where none is found, this says how to get one.
test-browser: $(STAMP)
	$(PY) -m pip install -q -c constraints.txt playwright
	@test -n "$$CHROMIUM$$(command -v chromium)$$(command -v chromium-browser)$$(command -v google-chrome)" || \
		{ echo "test-browser: no Chromium here; install one (Debian: apt-get install chromium) or name it in CHROMIUM="; exit 1; }
	$(PY) -m pytest -m browser

# The frames of LAN mode, coverage-guided, where the fuzzer can be installed. A finding fails.
FUZZ_SECONDS ?= 60
fuzz: $(STAMP)
	@if $(PY) -m pip install -q atheris==3.0.0; then \
		$(PY) tests/lan/fuzz_frames.py -max_total_time=$(FUZZ_SECONDS) -max_len=4096; \
	else echo "fuzz: atheris cannot be installed here; nothing was fuzzed"; fi

clean:
	rm -rf $(VENV) .venv-peer build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .demo
