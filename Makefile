# Every target does its own set-up. Paths are relative, so that a clone may live in any folder.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-python test-long lint format bench bench-quiet docs site dist screenshots figures model sim sim-long sim-bugs year year-bugs chaos soak mutants lock clean
MAKEFLAGS += --no-print-directory

help:  ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' Makefile

setup:  ## make .venv with all that is needed to run, test and benchmark
	@scripts/setup
	@if [ "$(MAKECMDGOALS)" = setup ]; then echo "ready: .venv/bin/calve works. Next: make demo, or in a folder of your own: calve init" >&2; fi

demo: setup  ## a whole export on embedded defaults, read back and verified
	@.venv/bin/calve demo $(DEMO)

test:  ## run the tests, all but the long ones (TESTS="tests/cli -k words" for some)
	@scripts/setup tests
	@scripts/test $(TESTS)

test-fast: setup  ## run those that need no JVM, no service and no program: for every save
	@scripts/test fast

test-python: PYTHON ?= python3.13
test-python: export VENV = .venv-$(notdir $(PYTHON))
test-python:  ## run those on another Python, in an environment of its own (PYTHON=/path/to/python3.13)
	@PYTHON=$(PYTHON) scripts/setup
	@scripts/test fast

test-long:  ## run what takes longer: more rounds of kills, more generated tables, bigger tables
	@scripts/setup long
	@scripts/test long

lint: setup  ## ruff, mypy strict, import contracts
	@.venv/bin/ruff check src tests bench scripts formal
	@.venv/bin/ruff format --check --quiet src tests bench scripts formal || { echo "hint: make format" >&2; exit 1; }
	@.venv/bin/mypy
	@.venv/bin/lint-imports --cache-dir .import_linter_cache

format: setup  ## put the code into its form
	@.venv/bin/ruff check --fix --quiet src tests bench scripts formal
	@.venv/bin/ruff format --quiet src tests bench scripts formal

bench: setup  ## run every benchmark (BENCH="export --quick" for one, in a minute)
	@.venv/bin/python bench/run.py $(BENCH)

bench-quiet: setup  ## run those with a target for speed, on a machine that does nothing else; then fit docs/scale.md
	@.venv/bin/python bench/run.py publish export plan scale-simulation server export-arrow export-jvm backup wide \
		memory latency small-parts start big-part export-native two-workers
	@.venv/bin/python scripts/scale.py

docs: setup  ## write the generated pages anew and check every link
	@.venv/bin/python scripts/generate_docs.py
	@.venv/bin/python scripts/check_links.py

site: setup  ## build the documentation site into site/, and check every link, anchor and picture of it
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet
	@.venv/bin/python scripts/check_site.py
	@echo "site/index.html" >&2

dist: setup  ## make a release in dist/: sdist, wheel, the list of parts, checksums
	@scripts/dist

screenshots:  ## take the pictures of the dashboard in docs/images anew, from a demo that is at work
	@scripts/setup browser
	@.venv/bin/python scripts/screenshots.py

figures:  ## run the tests and count what they break, for docs/reliability.md
	@scripts/setup tests
	@rm -rf .cache/tally
	@CALVE_TALLY="$(CURDIR)/.cache/tally" scripts/test
	@.venv/bin/python scripts/tally.py .cache/tally
	@.venv/bin/python scripts/generate_docs.py

sim: SEEDS ?= 200
sim: setup  ## whole installations over modelled services (SEED=17 for one, told step by step; SEEDS=500)
	@PYTHONPATH=tests .venv/bin/python -m support.simulator $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(MORE)

sim-long: setup  ## 10,000 histories
	@PYTHONPATH=tests .venv/bin/python -m support.simulator --seeds 10000

sim-bugs: setup  ## plant each mistake and look for it; writes the table of docs/simulator.md
	@PYTHONPATH=tests .venv/bin/python -m support.simulator --every-bug $(MORE)

chaos: MINUTES ?= 5
chaos:  ## break real programs and services for MINUTES while they work, then read everything by value (SEED=17)
	@scripts/setup tests
	@PYTHONPATH=tests CALVE_CACHE=$${CALVE_CACHE:-$(CURDIR)/.cache} .venv/bin/python -u -m support.chaos \
		--minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(MORE)

soak: HOURS ?= 3
soak:  ## small exports, backups and optimizes for HOURS: memory, handles, files and rows of the store must stay level
	@scripts/setup tests
	@PYTHONPATH=tests CALVE_CACHE=$${CALVE_CACHE:-$(CURDIR)/.cache} .venv/bin/python -u -m support.soak --hours $(HOURS) $(MORE)

year: SEEDS ?= 20
year: setup  ## years of tiering over modelled services (SEED=2 for one, told step by step; SEEDS=100)
	@PYTHONPATH=tests .venv/bin/python -m support.year $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(MORE)

year-bugs: setup  ## remove each rule of releases once and look for it; writes the table of docs/year.md
	@PYTHONPATH=tests .venv/bin/python -m support.year --every-bug $(MORE)

mutants: setup  ## change one place of a module at a time; some test must notice (MODULE=calve.control.decide MORE=--again)
	@PYTHONPATH=tests .venv/bin/python -m support.mutants $(MODULE) $(MORE)

model: setup  ## check the model of publishing with TLC, and that it finds every planted mistake
	@.venv/bin/python formal/check.py

lock: setup  ## compile requirements.lock (LOCK=--upgrade for newer versions)
	@scripts/lock $(LOCK)

clean:  ## remove what was made, the environment too
	@rm -rf .venv .venv-* .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis calve-demo site dist
