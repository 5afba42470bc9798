# Two commands do everything on a fresh clone: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Ray is 240 MB, for one test: `make ray` installs it.
DISTRIBUTIONS := kernel sdk $(filter-out plugins/ray,$(wildcard plugins/*)) $(dir $(wildcard contrib/*/pyproject.toml)) .
EDITABLE := $(foreach each,$(DISTRIBUTIONS),-e ./$(each))
STAMP := $(VENV)/.installed
JOBS ?= 2
KILLS ?= 200
SEED ?= 1
MINUTES ?= 10

.PHONY: run test conform faults soak ray check format benchmarks docs clean

run: $(STAMP)
	$(BIN)/nlpkernel run examples/first.toml --overwrite
	$(BIN)/nlpkernel generate runs/first --prompt "def " --tokens 120 --temperature 0.8 --seed 1

test: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup $(ARGS)

faults: $(STAMP)
	FAULTS_KILLS=$(KILLS) FAULTS_SEED=$(SEED) $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup tests/faults $(ARGS)

soak: $(STAMP)
	$(BIN)/python tests/benchmarks/soak.py --minutes $(MINUTES) $(ARGS)

# The checks of conformance in runs, of all plugins or of some: make conform PLUGINS=plugins/clean
PLUGINS ?= sdk $(filter-out plugins/ray,$(wildcard plugins/*)) $(patsubst %/,%,$(dir $(wildcard contrib/*/pyproject.toml)))
LEVELS ?= static behaviour
conform: $(STAMP)
	printf '%s\n' $(PLUGINS) | xargs -P $(JOBS) -I{} sh -c 'cd {} && OMP_NUM_THREADS=1 $(CURDIR)/$(BIN)/nlpkernel conform \
		$$(sed -n "s/^name = \"\(.*\)\"/\1/p" pyproject.toml | head -n 1) --quiet --row $(patsubst %,--level %,$(LEVELS))'

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)
	$(BIN)/python -m nlpkernel_sdk.docs docs/reference

$(STAMP): requirements/constraints.txt requirements/development.txt $(wildcard pyproject.toml */pyproject.toml plugins/*/pyproject.toml contrib/*/pyproject.toml)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements/constraints.txt -r requirements/development.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -c requirements/constraints.txt $(EDITABLE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e ./plugins/ray
	touch $@

ray: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements/constraints.txt ray
	$(BIN)/python -m pytest plugins/ray/tests/test_ray.py

clean:
	rm -rf $(VENV) runs
