# The commands of Trainyard. `make help` lists them.
.DEFAULT_GOAL := help
.PHONY: help setup up rehearse logs status exec tensorboard dashboard stop resume rerun fetch down verify-empty preview report profile init doctor bundle config xla test test-rest test-all test-long coverage mutants check bench bench-trainer shell install lock golden docs clean
SHELL := /bin/sh
STACK ?= local
export STACK
# Block Ctrl-C until setup/__init__.py handles it. Otherwise Ctrl-C during the start of Python prints a traceback.
# GNU env before version 8.31 cannot block signals.
BLOCK := $(shell env --block-signal=INT true 2> /dev/null && echo env --block-signal=INT)
PYTHON := $(BLOCK) .venv/bin/python
# Run the program `trainyard` with the arguments $(1). The program prints the command that it runs.
define run
@setup/python .venv requirements.txt
@$(PYTHON) -m commands.cli $(1)
endef
DEV := .venv-dev/bin
PREFIX ?= $(HOME)/.local
# With this variable, Python stores no bytecode, and each start of Pulumi's program compiles the clouds' SDKs again.
unexport PYTHONDONTWRITEBYTECODE
# `trainyard` sets these for its child processes, such as the shell of `trainyard shell`. Ignore them here.
unexport TRAINYARD_COMMAND TRAINYARD_PROJECT
# YES and FRESH spend money or delete checkpoints. Accept them only on the command line: other programs may set them.
ifneq ($(origin YES),command line)
unexport YES
endif
ifneq ($(origin FRESH),command line)
unexport FRESH
endif

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## set up this machine for the stack (also part of make up)
	@setup/root setup
	$(call run,setup)

up: ## set up this machine, create or update the stack, follow its jobs (JOB=NAME for an example, VERBOSE=1 for all output)
	@setup/root up $(STACK)
	$(call run,up)

# Use NAME only from the command line, because some machines set it in the environment.
rehearse: ## create, run and destroy STACK=dev in a simulated cloud (FAULT=stockout:nodepool:gpus to inject a fault, NAME= to run two at once)
	@setup/root rehearse
	$(call run,rehearse $(if $(findstring command,$(origin NAME)),--name $(NAME)))

logs: ## follow the logs of all ranks (JOB=NAME for one job)
	@setup/root logs $(STACK)
	$(call run,logs)

status: ## show jobs, hosts and ranks: state, step, loss, rate, problems
	@setup/root status $(STACK)
	$(call run,status)

exec: ## open a shell in the pod of RANK=0 (JOB=NAME if the stack has several jobs)
	@setup/root exec $(STACK)
	$(call run,exec)

tensorboard: ## show curves and profiles from the bucket at http://localhost:6006 (PORT=, JOB=NAME for the curves of one job)
	@setup/root tensorboard $(STACK)
	$(call run,tensorboard)

dashboard: ## show jobs, ranks, curves, nodes and cost of all stacks in the browser (PORT=)
	@setup/root dashboard $(STACK)
	$(call run,dashboard)

stop: ## stop JOB=NAME after a checkpoint; the cluster stays
	@setup/root stop $(STACK)
	$(call run,stop)

resume: ## resume a stopped JOB=NAME from its checkpoint, and follow it
	@setup/root resume $(STACK)
	$(call run,resume)

rerun: ## run JOB=NAME again (FRESH=1 deletes its checkpoints first, YES=1 does not ask)
	@setup/root rerun $(STACK)
	$(call run,rerun)

fetch: ## copy the checkpoint, metrics and run record of JOB=NAME to this machine (TO=FOLDER)
	@setup/root fetch $(STACK)
	$(call run,fetch)

down: ## destroy the stack and verify that nothing is left on this machine
	@setup/root down $(STACK)
	$(call run,down)

verify-empty: ## list leftovers of a destroyed stack in its cloud, or on this machine, with a JSON receipt; exit status 1 if there are any
	@setup/root verify-empty $(STACK)
	$(call run,verify-empty)

preview: ## show a change of a stack: resources, cost, quota, broken rules; no credentials needed
	$(call run,preview)

xla: ## install PyTorch/XLA for the trainer's tests and benchmark, 6 GB (x86-64); make test then runs the XLA tests too
	@[ "$$(uname -m)" != x86_64 ] || setup/python .venv-xla trainer/requirements-xla.txt

test: ## run the fast tests and the tests of README's promises (LANE=fast for one lane, FILES=tests/unit for some files)
	@setup/root test
	@setup/python .venv requirements.txt
	@setup/python .venv-dev requirements-dev.txt
	@$(PYTHON) -m setup
	@$(DEV)/python -m commands.test $(or $(FILES),$(if $(LANE),--lane=$(LANE),--core))

test-rest: ## run the tests that make test leaves out, except those that take minutes each (WORKERS=0 for one process)
	@setup/python .venv requirements.txt
	@setup/python .venv-dev requirements-dev.txt
	@$(DEV)/python -m commands.test --rest $(if $(WORKERS),-n$(WORKERS))

test-all: ## run all tests, except those that take minutes each
	@setup/root test
	@setup/python .venv requirements.txt
	@setup/python .venv-dev requirements-dev.txt
	@$(PYTHON) -m setup
	@$(DEV)/python -m commands.test

test-long: ## run the tests that take minutes each: examples, faults of each kind of job, large rehearsals
	@setup/root test
	@setup/python .venv requirements.txt
	@setup/python .venv-dev requirements-dev.txt
	@$(PYTHON) -m setup
	@TRAINYARD_TESTS=long $(DEV)/python -m commands.test -mlong

coverage: ## measure the line and branch coverage of each lane of tests (LANE=fast for one lane)
	@$(DEV)/python -m commands.test --coverage $(LANE)

mutants: ## change pure modules in one place at a time, and list the changes that no fast test detects
	@$(DEV)/python -m tests.mutants $(FILES)

check: ## run ruff, mypy --strict, import contracts, shellcheck, actionlint, zizmor, hadolint, detect-secrets, pip-audit
	@setup/python .venv-dev requirements-dev.txt
	@$(DEV)/python -m commands.check

bench: ## measure the speed claims, except the trainer's, as ratios of times from the same run
	@setup/root bench
	@setup/python .venv requirements.txt
	@setup/python .venv-dev requirements-dev.txt
	@$(PYTHON) -m setup
	@$(PYTHON) -m setup --rehearsal gs
	@$(DEV)/python -m bench

bench-trainer: xla ## measure the speed claims of the trainer
	@setup/python .venv-dev requirements-dev.txt
	@$(DEV)/python -m bench.trainer

report: ## write an HTML page about JOB=NAME: curves, restarts, settings, price
	@setup/root report $(STACK)
	$(call run,report)

profile: ## write an HTML page about the trace that JOB=NAME recorded (RANK=0)
	@setup/root profile $(STACK)
	$(call run,profile)

init: ## write the first Pulumi.NAME.yaml of STACK=NAME
	$(call run,init --stack $(STACK))

doctor: ## check this machine, and show how to fix what is missing
	$(call run,doctor)

bundle: ## pack settings, outputs, state, events, recent logs and versions into one archive for a bug report, with secrets masked
	@setup/root bundle $(STACK)
	$(call run,bundle)

config: ## show all settings of the stack, including defaults
	$(call run,config)

shell: ## open a shell with the stack's pulumi, kubectl and python
	@setup/root shell $(STACK)
	$(call run,shell)

golden: ## rewrite the golden manifests from the current code
	@$(DEV)/python -m tests.golden.manifests

install: ## put the program trainyard on PATH, in ~/.local/bin (PREFIX= for another folder)
	@setup/python .venv requirements.txt
	@mkdir -p $(PREFIX)/bin && ln -sf $(CURDIR)/.venv/bin/trainyard $(PREFIX)/bin/trainyard
	@echo "$(PREFIX)/bin/trainyard"

lock: ## compile requirements*.in into hash-locked requirements*.txt
	@setup/lock

docs: ## build the documentation site in site/, to read offline
	@setup/python .venv-docs requirements-docs.txt
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --strict --quiet
	@echo "open site/index.html"

clean: ## remove this checkout's environments and check caches; keep built tools and images
	@rm -rf .venv .venv-dev .venv-tensorboard .venv-xla .venv-stores .venv-docs site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
