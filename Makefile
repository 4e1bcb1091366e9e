# make help

PROFILE  ?= default
DATA_DIR ?= $(HVDPERF_DATA_DIR)
ARGS     ?=

# TF=2.15.1 is an environment for CPUs with that TensorFlow, beside the others, HOROVOD=0.28.0 one
# with that Horovod, PYTHON=3.12 one with that Python. From here on they are empty for what is in .venv.
TF ?=
HOROVOD ?=
PYTHON ?=
KNOWN_TF = $(shell sed -n 's/^"tf\(.*\)" = \[$$/\1/p' pyproject.toml)
CPU_TF   = $(shell sed -n 's/^cpu = .*"tf\([^"]*\)".*/\1/p' pyproject.toml)
GPU_TF   = $(shell sed -n 's/^ *"tensorflow\[and-cuda\]==\(.*\)",/\1/p' pyproject.toml)
OWN_TF   = $(if $(filter 1,$(GPU)),$(GPU_TF),$(CPU_TF))
ifneq ($(TF),)
ifneq ($(words $(TF)) $(filter $(KNOWN_TF),$(TF)),1 $(TF))
$(error TF=$(TF): with this Horovod only these versions of TensorFlow work: $(KNOWN_TF))
endif
endif
ifneq ($(HOROVOD),)
KNOWN_HOROVOD = $(shell sed -n '/^\[horovod\]/,/^\[tensorflow\]/s/^"\(.*\)" = .*/\1/p' hvdperf/timeline/releases.toml)
ifneq ($(words $(HOROVOD)) $(filter $(KNOWN_HOROVOD),$(HOROVOD)),1 $(HOROVOD))
$(error HOROVOD=$(HOROVOD): known are $(KNOWN_HOROVOD))
endif
endif
KNOWN_PYTHON := 3.11 3.12 3.13
ifneq ($(PYTHON),)
ifneq ($(words $(PYTHON)) $(filter $(KNOWN_PYTHON),$(PYTHON)),1 $(PYTHON))
$(error PYTHON=$(PYTHON): known are $(KNOWN_PYTHON))
endif
endif
# A named version means an environment for CPUs, even if it is that of .venv.
NAMED := $(TF)$(HOROVOD)$(PYTHON)
# One environment for CPUs and one for GPUs, side by side. Where the one for GPUs has been built it
# is used without saying GPU=1 again; GPU=0 turns to the other.
GPU ?= $(if $(NAMED),0,$(if $(wildcard .venv-gpu/.ready),1,0))
override PYTHON := $(filter-out $(firstword $(KNOWN_PYTHON)),$(PYTHON))
OWN_HOROVOD = $(shell sed -n 's/^ *"horovod==\(.*\)",/\1/p' pyproject.toml)
override HOROVOD := $(filter-out $(OWN_HOROVOD),$(HOROVOD))
# An environment of another Horovod says its TensorFlow, too.
override TF := $(if $(HOROVOD),$(or $(TF),$(OWN_TF)),$(filter-out $(OWN_TF),$(TF)))

MPI  ?=
VENV := $(if $(filter 1,$(GPU)),.venv-gpu,.venv$(TF:%=-tf%)$(HOROVOD:%=-hvd%)$(PYTHON:%=-py%))
ifeq ($(and $(TF),$(GPU)),1)
$(error TF=$(TF) GPU=1: on GPUs only TensorFlow $(OWN_TF) can be built)
endif
ifeq ($(and $(PYTHON),$(GPU)),1)
$(error PYTHON=$(PYTHON) GPU=1: on GPUs only Python $(firstword $(KNOWN_PYTHON)) has been tried)
endif

READY    := $(VENV)/.ready
SAMPLES  := data/samples
# What pytest ended with in `make perf`; none while it runs.
STATUS   := results/exit_status
DATA     := $(if $(DATA_DIR), --data-dir '$(DATA_DIR)')
ACTIVATE := HVDPERF_VENV=$(VENV); . ./activate || exit

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help stack env data perf report history backfill wheel schemas test test-all lint docs bench simulate trust truth clean distclean

help: ## list the targets
	@echo 'make TARGET [TF=2.15.1] [GPU=1] [ARGS="..."]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo 'PROFILE=smoke|default|nightly|FILE  what perf measures (now $(PROFILE))'
	@echo 'DATA_DIR=DIR                        real data instead of samples'
	@echo 'ARGS="..."                          more options for pytest, or for bench'
	@echo 'TF=VERSION                          another TensorFlow: $(filter-out $(OWN_TF),$(KNOWN_TF))'
	@echo 'PYTHON=VERSION                      another Python: $(wordlist 2,9,$(KNOWN_PYTHON))'
	@echo 'GPU=1 [MPI=system]                  the environment for GPUs, see ci/setup_gpu.sh'

env: $(READY) ## build the environment: uv, TensorFlow, Open MPI, Horovod

$(READY): pyproject.toml ci/setup.sh ci/setup_gpu.sh
	@VENV=$(VENV) GPU=$(filter 1,$(GPU)) MPI=$(MPI) TF=$(TF) HOROVOD=$(HOROVOD) PYTHON=$(PYTHON) \
		bash ci/setup.sh

data: env ## write small files of every data set to data/samples, unless they exist
	@$(ACTIVATE); python -m hvdperf.models.inputs.sample_sets $(SAMPLES)

# make returns 2 whatever failed, and calls pytest's status an error of its own: scripts read the file.
perf: .forget-status env $(if $(DATA_DIR),,data) ## measure and judge: pytest perf/
	@$(ACTIVATE); status=0; \
	echo "perf: pytest perf/ --profile $(PROFILE)$(DATA) $(ARGS)"; \
	pytest perf/ --profile '$(PROFILE)'$(DATA) $(ARGS) || status=$$?; \
	mkdir -p results; echo $$status > $(STATUS); \
	echo "perf: pytest ended with status $$status, now in $(STATUS); if it is not 0, make returns 2"; \
	exit $$status

.forget-status:
	@rm -f $(STATUS)

report: env ## write the newest session, or ARGS=results/runs/..., as one page
	@$(ACTIVATE); hvdperf report $(ARGS)

# Four at a time keep two cores busy, since tests of several ranks and hosts wait for most of their time.
# What lint finds is the same with every TensorFlow. Where there can be no browser the tests that need
# one fail and say so; the others run. Python keeps what it has compiled, whatever the environment
# says: otherwise each of the hundreds of processes that tests start would compile all of its modules.
TESTS = $(ACTIVATE); bash ci/browser.sh || true; PYTHONDONTWRITEBYTECODE= pytest tests/ -n 4

test: env $(if $(TF),,lint) ## check the suite itself: lint (not with TF=), then tests/ without the long ones
	@$(TESTS) -m 'not long' $(ARGS)

# Some of the long tests start a Slurm of their own; without one they are skipped.
test-all: env $(if $(TF),,lint) ## the same with the long tests
	@bash ci/slurm.sh || true
	@$(TESTS) $(ARGS)

# Another stack for pytest perf/ --against.
stack: ## build another stack, TF=2.15.1 HOROVOD=0.28.0, and print its interpreter for --against
	@$(MAKE) --no-print-directory $(READY) >&2
	@echo $(CURDIR)/$(VENV)/bin/python

wheel: env ## write dist/hvdperf-*.whl, to install hvdperf in an environment of your own
	@$(ACTIVATE); python -m hatchling build -t wheel

schemas: env ## write results/schema/ and docs/reference/ after a change of the records
	@$(ACTIVATE); python -m docs.generate

lint: env ## ruff, mypy, and the linters of ci/
	@$(ACTIVATE); ruff check && ruff format --check && mypy && bash ci/lint.sh && python -m tests.test_house

# Strictly, and without a network. docs/reference/ is tracked, for readers of the repository.
docs: env ## write docs/reference/ and results/schema/ from the code, and build the site of docs/ into site/
	@$(ACTIVATE); python -m docs.generate && \
	python -m sphinx -q -W --keep-going -n -b html -d .cache/docs docs site && \
	echo 'docs: site/index.html'

bench: env ## measure what the suite itself costs: python -m bench costs
	@$(ACTIVATE); python -m bench costs $(ARGS)

simulate: env ## simulate error rates and durations of verdicts: the tables of docs/
	@$(ACTIVATE); python -m bench rates $(or $(ARGS),simulation)

trust: env data ## inject faults in 20 more sessions of up to 18 min, and count detections
	@$(ACTIVATE); python -m bench trust $(ARGS)

truth: env ## how often performance gates err on recorded faults; ARGS=results/runs/... adds sessions
	@$(ACTIVATE); python -m bench truth $(ARGS)

history: env ## import the sessions of results/, publish both histories, serve them
	@$(ACTIVATE); hvdperf history import || echo 'history: continuing without the import' >&2; \
	hvdperf history publish && python -m http.server --bind 127.0.0.1 --directory .asv/site $(ARGS)

backfill: env data ## build and measure every combination of versions
	@$(ACTIVATE); hvdperf history backfill $(ARGS)

clean: ## remove samples, caches, the site of docs/ and wheels
	rm -rf $(SAMPLES) site dist .cache/docs .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv*' -not -path './.uv/*' -prune -exec rm -rf {} +

distclean: clean ## remove the environments too
	rm -rf .venv .venv-* .uv .asv uv.lock
