# make demo   GPT-2 on real text, 4 workers that gossip beside the same run with All-Reduce: table and plot
# make test   everything that is checked before a change lands
#
# Both make their own virtual environment, .venv, from python3 (3.10 or newer); PYTHON=... names another one.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready
# Tests that start worker processes share one of the two lanes (tests/conftest.py), so that they are not starved.
LANES  ?= 2
# One thread each: several workers share the cores of one machine.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: demo test install clean

demo: install
	$(BIN)/hf-decentral demo --output_dir runs/demo --json runs/demo/demo.json $(ARGS)

test: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n $(LANES) --dist loadgroup $(ARGS)

install: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test,report]'
	touch $(READY)

clean:
	rm -rf $(VENV) build dist runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
