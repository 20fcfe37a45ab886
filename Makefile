# Needs python3 (3.11 or newer, with venv) and make; everything else goes into .venv.
PYTHON ?= python3
EXTRAS ?= dev
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready-$(EXTRAS)
OUT    ?= out/demo
TRAIN_STEPS ?= 150000
# By file, so that what its tests share is made once; in order, so that long ones do not come last.
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

.PHONY: help setup test test-all test-ci fuzz wheel browser demo pictures lint format bench study docs clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.ready-%: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "cramerl needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	@touch $@

setup: $(READY)  ## create .venv and install (other targets do this first; a second call does nothing)

test: $(READY)  ## run the test suite
	$(PYTEST) -m 'not slow and not gpu'

test-all: $(READY)  ## run every test, the slow ones and those for an accelerator too
	$(PYTEST)

test-ci: $(READY)  ## run every test that needs no accelerator, the slow ones too
	$(PYTEST) -m 'not gpu'

fuzz: $(READY) browser  ## minutes to hours of bad input, tampered folders and kills; FUZZ="--jobs 2 --kills 10" for a part
	$(BIN)/python tests/fuzz/fuzz.py $(FUZZ)

wheel: $(READY)  ## build the wheel and try it in an empty environment, with each extra
	rm -rf dist out/wheel
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist .
	$(BIN)/python tests/check_wheel.py dist/cramerl-*.whl out/wheel

browser:  ## a Chromium for the tests of pages, from Debian's packages (without one they are skipped)
	@command -v chromium > /dev/null && command -v chromedriver > /dev/null \
	  || { apt-get update -q && apt-get install -y -q --no-install-recommends chromium chromium-driver; } > /dev/null 2>&1 \
	  || echo "no Chromium could be installed: the tests of pages will be skipped"

demo: $(VENV)/.ready-all  ## see what it does, at the size of a laptop, in a few minutes; writes out/demo/, with a page of it
	$(BIN)/cramerl demo --out $(OUT) --train-steps $(TRAIN_STEPS) --overwrite

pictures: $(READY) demo browser  ## the pictures of README.md and docs, from what `make demo` makes
	$(BIN)/python docs/pictures.py $(OUT)

lint: $(READY)  ## formatting, lint, import directions and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/pyright

format: $(READY)  ## put the formatting right
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## speed, as ratios measured in one run
	$(BIN)/python benchmarks/core.py
	$(BIN)/python benchmarks/linear.py
	$(BIN)/python benchmarks/deep.py

# Not compared in its tables: defaults-*, which have tables of their own; the search, whose seeds choose settings and rank no
# agents; and the agents that come with the package, which are no evidence.
NOT_RANKED := results/defaults-% results/study-search results/shipped-agents

study: $(or $(wildcard $(VENV)/.ready-all),$(READY))  ## what docs/study.md and its pages show, from results/
	$(BIN)/cramerl report $(filter-out $(NOT_RANKED),$(patsubst %/,%,$(wildcard results/*/))) --out out/study
	cp out/study/tables.md docs/study/
	$(BIN)/python results/defaults_tables.py > docs/study/defaults.md
	$(BIN)/python results/study_page.py

docs: $(READY)  ## build the documentation into docs/_build
	$(BIN)/python -m sphinx -W -q -b html docs docs/_build
	@echo "open docs/_build/index.html"

clean:  ## remove everything that was made but runs/
	rm -rf $(VENV) out docs/_build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
