# Each target makes what it needs on a fresh machine: Python 3.11 or newer and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NAME ?=
ARGS ?=
# A newer pip than Python brings along installs in two thirds of the time.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# What is never imported need not be compiled.
INSTALL := $(PIP) --no-build-isolation --no-compile

.PHONY: demo demo-network test test-times test-all check bench docs wheel sbom clean

# What is imported is compiled once, whatever the machine says: tests start many processes.
unexport PYTHONDONTWRITEBYTECODE

# Half of the packages each, by two at once: pip reads, fetches and unpacks one after the other.
# The third adds what is missing, and says what is wrong.
$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip setuptools
	awk 'NR % 2' constraints.txt | $(INSTALL) --no-deps -r /dev/stdin & \
	awk 'NR % 2 == 0' constraints.txt | $(INSTALL) --no-deps -r /dev/stdin; wait
	$(INSTALL) -e ".[report,network,neural,dev]"
	touch $@

demo: $(VENV)/ready
	$(BIN)/weft demo

# With FATE's files where they are, else with a table that scikit-learn brings along.
demo-network: $(VENV)/ready
	WEFT_DATA="$${WEFT_DATA:-../shared/data}" $(BIN)/weft demo-network

# As many workers as the cores that tests are timed on: a third took two thirds more of the processor.
ONE := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest
# A federation of processes, which wait for each other most of the time: beside the other tests, where a
# worker would wait with them. What was said of it comes at the end.
WAITING := tests/network/test_processes.py
define run_tests
@said=$$(mktemp); $(ONE) $(WAITING) $(1) > "$$said" 2>&1 & waiting=$$!; \
$(ONE) -n 2 --dist worksteal --ignore=$(WAITING) $(1); others=$$?; \
wait $$waiting; processes=$$?; cat "$$said"; rm -f "$$said"; \
[ $$others = 0 ] && [ $$processes = 0 ]
endef

test: $(VENV)/ready
	$(run_tests)

# With the processor seconds of the dearest tests, and of what Numba compiled, at the end.
test-times: $(VENV)/ready
	$(call run_tests,--processor-times)

# With every combination of parameters, of which `test` tries some: before a release.
test-all: $(VENV)/ready
	$(call run_tests,-m "")

check: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# All benchmarks, or one: make bench NAME=simulation. ARGS=--smoke runs their code on tiny data.
bench: $(VENV)/ready
	@set -e; for script in $(if $(NAME),benchmarks/$(NAME).py,$(wildcard benchmarks/*.py)); do \
		OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python $$script $(ARGS); done

# The documents as a site in site/, which opens without a server. An environment of its own: nothing
# else needs what builds it.
DOCS := .venv-docs
$(DOCS)/ready: docs/requirements.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -r docs/requirements.txt
	touch $@

docs: $(DOCS)/ready
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet --strict
	@echo "Open site/index.html"

# The wheel in dist/, installed into a new environment with nothing but what it asks for, and used.
WHEEL := .venv-wheel
wheel: $(VENV)/ready
	rm -rf dist build $(WHEEL)
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	$(PYTHON) -m venv $(WHEEL)
	$(WHEEL)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	$(PYTHON) packaging/use_wheel.py $(WHEEL)/bin/weft
	rm -rf build $(WHEEL)
	@ls dist

# What is installed here, as a CycloneDX bill of materials.
sbom: $(VENV)/ready
	mkdir -p dist
	$(BIN)/python packaging/bill_of_materials.py > dist/weft.cdx.json
	@echo dist/weft.cdx.json

# Compiled functions name the modules that they call: after a module has moved, they are of no use.
clean:
	find src -name '*.nb[ic]' -delete
	rm -rf $(VENV) $(DOCS) $(WHEEL) dist build site .pytest_cache .mypy_cache .ruff_cache .hypothesis
