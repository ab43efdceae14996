# Every target sets up what it needs in .venv, once, and again only when the dependency files change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet -c constraints.txt
# Two OpenMP threads that spin collapse when the cores are shared.
export OMP_WAIT_POLICY ?= PASSIVE
export HF_HUB_OFFLINE ?= 1

.PHONY: help demo test shuffled test-vision quick bench libraries reproduction docs package clean

help:  ## say what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /: /'

$(VENV)/python.stamp:
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/%.stamp: $(VENV)/python.stamp pyproject.toml constraints.txt
	$(INSTALL) -e '.[$*]'
	@touch $@

demo: $(VENV)/demo.stamp  ## a plain and a random-set network on known and unknown digits: a table, a picture
	$(BIN)/randomset demo

test: $(VENV)/test.stamp  ## lint, types, and every test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadgroup --max-worker-restart 0

# A test that passes only by chance, or only after another one, fails under some seed or order.
SEED ?= 1
shuffled: $(VENV)/test.stamp  ## every test with other random numbers and in another order (SEED=2, 3, … for more)
	RANDOMSET_TEST_SEED=$(SEED) RANDOMSET_TEST_ORDER=$(SEED) OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadgroup --max-worker-restart 0 -q

# torchvision's wheel breaks others beside a torch for the CPU, so it has an environment of its own.
.venv-vision/stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-vision
	.venv-vision/bin/python -m pip install --quiet -c constraints.txt -e '.[test-vision]'
	@touch $@

test-vision: .venv-vision/stamp  ## the tests that need torchvision and timm
	OMP_NUM_THREADS=1 .venv-vision/bin/pytest -p no:cacheprovider tests/vision

quick: $(VENV)/test.stamp  ## the fast part of the tests
	RANDOMSET_QUICK=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --max-worker-restart 0 -m "not slow" -q

bench: $(VENV)/test.stamp  ## the claims of speed, measured side by side
	for script in prediction power_set repair overlap budgeter training methods reliability_cost; do \
	  env -u OMP_WAIT_POLICY $(BIN)/python -m benchmarks.$$script || exit 1; done

# The other libraries need torchvision, and old packages for second derivatives.
.venv-libraries/stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-libraries
	.venv-libraries/bin/python -m pip install --quiet -c constraints.txt -e '.[libraries]'
	@touch $@

LIBRARIES = OMP_NUM_THREADS=1 TQDM_DISABLE=1 .venv-libraries/bin/python -m
libraries: .venv-libraries/stamp  ## other libraries beside this one, on digits and on belief functions: some minutes
	$(LIBRARIES) benchmarks.libraries --task digits --epochs 30
	$(LIBRARIES) benchmarks.libraries --task digits --seconds 5
	$(LIBRARIES) benchmarks.libraries_belief

SCALE ?= cpu
SEEDS ?= 3
reproduction: $(VENV)/test.stamp  ## every table and figure of the paper: hours (SCALE=tiny takes a minute)
	$(BIN)/python -m reproduction run all --scale $(SCALE) --seeds $(SEEDS)

docs: $(VENV)/docs.stamp  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open site/index.html"

# As a user gets it: built, installed beside its core dependencies alone, used, and seen by a type checker.
package: $(VENV)/package.stamp  ## build wheel and sdist, and try the wheel in an environment of its own
	rm -rf dist .venv-package
	$(BIN)/python -m hatchling build -d dist
	$(PYTHON) -m venv .venv-package
	.venv-package/bin/python -m pip install --quiet -c constraints.txt dist/*.whl
	.venv-package/bin/python -I tests/packaging/core_only.py
	.venv-package/bin/python -m pip install --quiet -c constraints.txt mypy
	cd dist && ../.venv-package/bin/python -m mypy --strict --no-incremental --config-file= ../tests/packaging/consumer.py
	.venv-package/bin/python -I tests/packaging/consumer.py

clean:  ## remove what the other targets made
	rm -rf $(VENV) .venv-vision .venv-libraries .venv-package site demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
