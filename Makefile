# Everything that a clone needs. The two commands: make demo, make test.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Most tests wait for a server or a process, so a few more than there are cores pay.
TESTERS ?= 3

.PHONY: demo run test lint types docs tests coverage faults soak bench clean

demo: $(READY)  ## Start the example with its database and worker, feed it, show what came of it.
	$(BIN)/python -m example_app.demo

run: $(READY)  ## The same, and leave it serving.
	$(BIN)/python -m example_app.demo --serve

test: lint types docs tests  ## What CI runs.

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

docs: $(READY)  ## Build docs/_build/index.html; a warning is an error.
	$(BIN)/sphinx-build -n -W --keep-going -q docs docs/_build

tests: $(READY)
	$(BIN)/pytest -m "not faults" -n $(TESTERS) --dist worksteal --durations=15 $(ARGS)

coverage: $(READY)  ## The same tests, with what they leave unvisited. Twice as slow.
	$(BIN)/coverage erase
	$(BIN)/pytest -m "not faults" -n $(TESTERS) --dist worksteal --cov --cov-report=term $(ARGS)

faults: $(READY)  ## Kill and stop whole workers, and see that nothing is lost.
	$(BIN)/pytest -m "faults and not undisturbed" -n 2 --dist worksteal --durations=15 $(ARGS)
	$(BIN)/pytest -m "faults and undisturbed" $(ARGS) || test $$? = 5  # none of them was asked for

soak: $(READY)  ## 20 minutes (SOAK_MINUTES) of mixed load and kills: what grows, and what is lost.
	$(BIN)/python -m benchmarks.soak

bench: $(READY)  ## Print the speed as ratios against raw pymongo in the same run.
	$(BIN)/python -m benchmarks

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --group dev --editable ".[disk]"
	touch $@

clean:
	rm -rf $(VENV) .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis docs/_build instance
