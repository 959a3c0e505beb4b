# Everything a developer runs. Needs Python 3.10 or later, gcc and make; all else goes to .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PLAIN := $(VENV)/.plain
SANITIZE := TT_SANITIZE=address,undefined
SANITIZED := build/sanitized
comma := ,
JOBS ?= 2
# The tests start a thousand processes: modules are compiled once, not in each of them.
unexport PYTHONDONTWRITEBYTECODE

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "ttanalyze needs Python 3.10 or later")'
	$(PYTHON) -m venv $(VENV)

# Modules are compiled when they are imported, which most of those installed never are. Where the
# tests come first, what only they need is installed in the same step.
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check install --no-compile -c requirements-dev.lock
REMOTE_TEST = $(VENV)/.remote-test
TESTS = $(filter test test-all,$(MAKECMDGOALS))
$(STAMP): $(BIN)/python pyproject.toml setup.py requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(PIP) --editable '.[dev$(if $(TESTS),$(comma)cluster$(comma)remote-test)]'
	touch $@ $(if $(TESTS),$(REMOTE_TEST))

build: $(STAMP) ## the environment in .venv, the recorder and the simulator
	$(BIN)/python setup.py --quiet build_ext --inplace

examples: build ## the example programs
	$(MAKE) --silent --no-print-directory -C examples

# The demo needs no more than the package itself.
$(PLAIN): $(BIN)/python pyproject.toml setup.py requirements-dev.lock $(wildcard interpose/*/*.[ch])
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements-dev.lock --editable .
	touch $@

demo: $(if $(wildcard $(STAMP)),build,$(PLAIN)) ## the tour of `ttanalyze demo`
	@$(BIN)/python -m ttanalyze demo --out demo

lint: build ## ruff, mypy, clang-format and clang-tidy
	$(MAKE) --no-print-directory checks

# One process of mypy: those of --num-workers must begin within three seconds, or it fails.
checks:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@find interpose -name '*.[ch]' | xargs $(BIN)/clang-format --dry-run -Werror
	@find interpose -name '*.c' -not -path '*/sim/*' | \
		xargs -P $(JOBS) -n 16 $(BIN)/clang-tidy --quiet -p build/native/plain 2>/dev/null
	$(BIN)/mypy

browser: ## Chromium, in which the tests draw the report page (as root, where there is apt-get)
	@command -v chromium chromium-browser google-chrome >/dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		  apt-get -qq update && apt-get -qq install --yes chromium >/dev/null; } || \
		echo "no Chromium: the tests do not draw the report page"

# On a machine that only tests, what they need besides Python is installed. Tests of a file run in
# one process, which makes what they share once; a file of few but long tests does not come last.
# They run make themselves, without the flags of this one.
PYTEST = env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL \
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
test: examples $(REMOTE_TEST) ## lint and the tests that need no GPU and end soon; of many parameters a sample
	$(MAKE) --no-print-directory --jobs=2 checks quick-tests

quick-tests:
	$(PYTEST) -m 'not gpu and not long' --sample 8 --ignore tests/gpu

$(REMOTE_TEST): $(STAMP)
	$(PIP) --editable '.[cluster,remote-test]'
	touch $@

test-all: examples $(REMOTE_TEST) ## lint and all tests that need no GPU, the native ones under sanitizers as well
	$(MAKE) --no-print-directory --jobs=2 checks all-tests
	$(MAKE) --no-print-directory sanitize

all-tests: $(if $(CI),browser)
	$(PYTEST) -m 'not gpu' --ignore tests/gpu

sanitize: build ## the native tests under the address and undefined behaviour sanitizers
	$(SANITIZE) $(BIN)/python setup.py --quiet build --build-lib $(SANITIZED)
	$(SANITIZE) TT_LIB=$(CURDIR)/$(SANITIZED)/ttanalyze/lib \
		ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0:handle_segv=0:handle_sigbus=0:handle_sigfpe=0 \
		LD_PRELOAD=$$($${CC:-gcc} -print-file-name=libasan.so) $(PYTEST) -m 'native and not large and not gpu'

SECONDS ?= 60
fuzz: build ## SECONDS for each parser in C (needs clang) and for all readers in Python
	$(BIN)/python -m tests.fuzz.readers --seconds $(SECONDS) --jobs $(JOBS)
	$(BIN)/python -m tests.fuzz.parsers --seconds $(SECONDS) --jobs $(JOBS)

soak: build ## an hour of recording on the simulator: neither memory nor descriptors may grow
	$(BIN)/python -m tests.soak

test-threads: build ## the recorder's threads under ThreadSanitizer
	$(PYTEST) tests/test_data_races.py

$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet -c requirements-dev.lock --editable '.[docs]'
	touch $@

docs: build $(VENV)/.docs ## the pages that follow from the code, and a site of all pages in build/site
	$(BIN)/python -m docs.tools
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

$(VENV)/.mutate: $(STAMP)
	$(BIN)/python -m pip install --quiet -c requirements-dev.lock --editable '.[mutate]'
	touch $@

mutate: build $(VENV)/.mutate ## a sample of mutants of the answers' core, and which of them no test notices
	$(BIN)/python -m tests.mutate --sample $(or $(SAMPLE),20) --seed $(or $(SEED),1) $(MODULES)

GPU_JOBS ?= 8
gpu-test: examples ## the same programs and the framework cases on a GPU; PART=1/2: half of them
	$(BIN)/python -m pytest -n $(GPU_JOBS) -m gpu --part $(or $(PART),1/1)

bench: examples ## what recording costs
	$(BIN)/python bench/run.py

PROGRAMS ?= wild
wild: build ## programs of others, built in $(PROGRAMS), bare and recorded (see bench/wild.py)
	$(BIN)/python bench/wild.py $(PROGRAMS)

man: build ## man pages of all verbs in man, which a wheel installs
	$(BIN)/python -m docs.tools.man man

$(VENV)/.release: $(STAMP)
	$(BIN)/python -m pip install --quiet -c requirements-dev.lock --editable '.[release]'
	touch $@

# The compiler of Zig brings the C library of each target. A wheel for x86-64 only: ARCHS=x86_64.
ARCHS ?= x86_64 aarch64
GLIBC := 2.28
wheel: build man $(VENV)/.release ## dist/: wheels for x86-64 and aarch64 with glibc 2.28 or newer, and the source archive
	rm -rf build/wheel dist && mkdir -p build/wheel dist
	$(BIN)/python -m build --sdist --outdir dist
	for arch in $(ARCHS); do \
		CC="$(CURDIR)/$(BIN)/python -I -m ziglang cc -target $$arch-linux-gnu.$(GLIBC)" \
			$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel \
			--config-settings=--build-option=--plat-name=linux_$$arch dist/*.tar.gz && \
		PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --exclude libcuda.so.1 \
			--wheel-dir dist build/wheel/*linux_$$arch.whl || exit; \
	done

ptx: $(BIN)/python ## the PTX again from its sources (needs nvcc)
	$(BIN)/python interpose/capture/build_ptx.py
	$(BIN)/python interpose/instrument/build_patch.py
	$(MAKE) --no-print-directory -C examples ptx

clean: ## all that was built, but not .venv
	rm -rf build dist demo man ttanalyze/lib ttanalyze/_cuda.py ttanalyze/_format.py ttanalyze/_options.py examples/build *.egg-info
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

.PHONY: help build docs examples browser demo lint checks test quick-tests test-all all-tests sanitize fuzz soak test-threads mutate gpu-test bench wild man wheel ptx clean
