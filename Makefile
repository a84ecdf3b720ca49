# The commands of Trainyard. `make help` lists them.
.DEFAULT_GOAL := help
.PHONY: help setup xla up rehearse logs status exec tensorboard down verify-empty preview test check bench bench-trainer shell lock image golden clean
SHELL := /bin/sh
STACK ?= local
export STACK
# Ctrl-C while Python itself starts would print a traceback. Blocked, it waits until setup/interrupted.py is there. GNU env
# has the option since 8.31; without it the traceback stays possible for a tenth of a second.
BLOCK := $(shell env --block-signal=INT true 2> /dev/null && echo env --block-signal=INT)
PYTHON := $(BLOCK) .venv/bin/python
DEV := .venv-dev/bin
# Without bytecode every start of Pulumi's program compiles the clouds' SDKs again, and every process of a job's tests torch.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make this machine able to run the stack (make up does it too)
	@setup/root setup
	@setup/python .venv requirements.txt
	@$(PYTHON) -m setup

up: ## set up, bring the stack up, follow its jobs to their end
	@setup/root up $(STACK)
	@setup/python .venv requirements.txt
	@$(PYTHON) -m commands.up

# NAME from the command line alone: some machines have one of their own in the environment.
rehearse: ## the whole life of a cloud stack against a simulated cloud: STACK=dev, FAULT=stockout:nodepool:gpus, NAME= for a second at once
	@setup/root rehearse
	@setup/python .venv requirements.txt
	@$(PYTHON) -m commands.rehearse $(STACK) $(if $(findstring command,$(origin NAME)),--name $(NAME))

logs: ## the jobs' logs, every rank (JOB=NAME for one)
	@setup/root logs $(STACK)
	@setup/python .venv requirements.txt
	@$(PYTHON) -m commands.follow

status: ## one table: jobs, hosts, ranks, state, step, loss, rate, what is wrong
	@setup/root status $(STACK)
	@setup/python .venv requirements.txt
	@$(PYTHON) -m commands.status

exec: ## a shell in the pod of RANK=0, of JOB=NAME where there are several
	@setup/root exec $(STACK)
	@setup/python .venv requirements.txt
	@$(PYTHON) -m commands.exec

tensorboard: ## the jobs' curves and profiles from the bucket, at http://localhost:6006 (PORT=, JOB=NAME for one)
	@setup/root tensorboard $(STACK)
	@setup/python .venv requirements.txt
	@setup/python .venv-tensorboard requirements-tensorboard.txt
	@$(PYTHON) -m commands.tensorboard

down: ## destroy the stack and prove that nothing is left
	@setup/root down $(STACK)
	@setup/python .venv requirements.txt
	@$(PYTHON) -m commands.down

verify-empty: ## list by the cloud's own API what a destroyed stack has left; a JSON receipt, status 1 if anything
	@setup/root verify-empty $(STACK)
	@setup/python .venv requirements.txt
	@$(PYTHON) -m commands.verify_empty

preview: ## what the change of a stack does, costs, needs and breaks; no credentials needed
	@setup/python .venv requirements.txt
	@$(PYTHON) -m commands.preview

xla: ## the environment of the trainer's tests and benchmark on PyTorch/XLA, 6 GB (x86-64); make test runs them once it is there
	@[ "$$(uname -m)" != x86_64 ] || setup/python .venv-xla trainer/requirements-xla.txt

test: ## unit, component, golden, plugin and trainer tests, and one end to end on a real local cluster
	@setup/root test
	@setup/python .venv requirements.txt
	@setup/python .venv-dev requirements-dev.txt
	@$(PYTHON) -m setup
	@$(DEV)/python -m commands.test

check: ## ruff, mypy --strict, import contracts, shellcheck, actionlint, zizmor, hadolint, detect-secrets, pip-audit
	@setup/python .venv-dev requirements-dev.txt
	@$(DEV)/python -m commands.check

bench: ## every speed claim, as ratios measured in one run
	@setup/root bench
	@setup/python .venv requirements.txt
	@setup/python .venv-dev requirements-dev.txt
	@$(PYTHON) -m setup
	@$(DEV)/python -m bench

bench-trainer: xla ## the trainer's speed claims alone
	@setup/python .venv-dev requirements-dev.txt
	@$(DEV)/python -m bench.trainer

shell: ## a shell in which pulumi, kubectl and python are the stack's own
	@setup/root shell $(STACK)
	@setup/python .venv requirements.txt
	@$(PYTHON) -m setup
	@$(PYTHON) -m commands.shell

golden: ## rewrite the golden manifests from the code as it is
	@$(DEV)/python -m tests.golden.rewrite

lock: ## compile requirements*.in into hash-locked requirements*.txt
	@setup/lock

clean: ## remove this checkout's environments and caches of checks; built tools and images stay
	@rm -rf .venv .venv-dev .venv-tensorboard .venv-xla .venv-stores .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
