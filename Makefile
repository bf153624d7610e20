# The two commands are `make dev` and `make test`. All that they need beside Python and make, they install themselves.

PYTHON ?= python3

.PHONY: dev test check bench chaos venv

# The whole system on this machine. `make dev AGENTS=path/to/folder PORT=8001`
dev: venv
	@exec .venv/bin/runyard dev $(if $(AGENTS),--agents "$(AGENTS)") $(if $(PORT),--port "$(PORT)")

# Every test. Postgres, Redis and RabbitMQ are used where they listen, and started where they do not.
test: venv
	@.venv/bin/python -m scripts.services
	@.venv/bin/python -m scripts.browser
	@.venv/bin/python -m scripts.proxy
	@.venv/bin/python -m scripts.manifests
	@.venv/bin/python -m scripts.alerts
	@.venv/bin/python -m scripts.suites

# Lint, types, the direction of imports, then every test.
check: venv
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/hadolint Dockerfile
	@$(MAKE) --no-print-directory test

bench: venv
	@.venv/bin/python -m scripts.services
	@.venv/bin/python -m benchmarks

# A hundred runs while workers are killed (docs/reliability.md). `make chaos SEED=7`
chaos: venv
	@.venv/bin/python -m scripts.services
	@.venv/bin/python -m scripts.chaos $(if $(SEED),--seed "$(SEED)")

venv:
	@command -v $(PYTHON) >/dev/null || { echo "error: no $(PYTHON) on PATH: install Python 3.11 or newer" >&2; exit 1; }
	@$(PYTHON) scripts/bootstrap.py
