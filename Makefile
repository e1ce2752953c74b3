# `make demo` and `make test` need Python 3.11 and make, and nothing else: each makes .venv and installs what it needs.

VENV := .venv
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed-$(shell cat pyproject.toml constraints.txt 2>/dev/null | cksum | tr ' ' -)
DEMO := $(PY) -m airflow_backfill_provider.demo

.PHONY: help install demo demo-rollback up down test test-engines test-scheduler test-databricks test-celery chaos lint types format schema guarantees package lowest bench bench-airflow bench-engines bench-evidence bench-size bench-stops constraints clean
.DEFAULT_GOAL := help

help:
	@echo "make demo           correct five months of real flights through a real Airflow (ENGINE=postgres, delta or databricks-local: on that)"
	@echo "make demo-rollback  undo that, with rows that came later surviving"
	@echo "make up, make down  start and stop the demo's Airflow with its web UI"
	@echo "make test           every test, the scheduler ones included"
	@echo "make test-databricks  the tests on a local Spark, behind the real Databricks client"
	@echo "make test-celery    one backfill on two Celery workers that share no disk"
	@echo "make chaos          backfills under kills, cuts and failures: 240 lives, or SEEDS=n, FIRST=n, or SEED=n alone"
	@echo "                    BESIDE=600: everybody at once on one table, for so many seconds on each engine"
	@echo "make lint types     what CI checks first; make format mends what can be mended"
	@echo "make package        build wheel and sdist, install the wheel outside the clone, run its demo"
	@echo "make lowest         one backfill with the lowest versions that pyproject.toml allows"
	@echo "make schema         write the JSON Schema of a spec into docs/"
	@echo "make guarantees     run the contract suite and write what each engine guarantees into docs/"
	@echo "make bench          the whole life of a backfill against the bare SQL; bench-engines: of each engine"
	@echo "make bench-evidence a backfill with all the evidence against the same one without"
	@echo "make bench-airflow  a backfill through a scheduler against Airflow's own; DAYS=\"180 365\""
	@echo "make bench-size     what thousands of partitions cost beside their rows"
	@echo "make bench-stops    within how many seconds each stop stops, and each way on goes on"
	@echo "make constraints    pin versions: today's in constraints.txt, the lowest in .ci/lowest.txt"
	@echo "make clean          remove the demo, caches and .venv"

install: $(INSTALLED)

$(PY):
	@.ci/make-venv

$(INSTALLED): | $(PY)
	@echo "Installing into $(VENV) (a few minutes the first time)"
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev]' --constraint constraints.txt
	@rm -f $(VENV)/.installed-*
	@touch $@

demo: install
	@$(if $(filter postgres,$(ENGINE)),.ci/need-postgresql)
	@$(if $(filter databricks-local,$(ENGINE)),.ci/need-spark)
	@$(DEMO) run --engine $(or $(ENGINE),duckdb)

demo-rollback: install
	@$(DEMO) rollback

up: install
	@$(DEMO) up $(if $(ENGINE),--engine $(ENGINE))

down: install
	@$(DEMO) down

test: install
	@.ci/need-postgresql || echo "Without it, the tests on PostgreSQL are skipped."
	@.ci/need-pgbouncer || echo "Without it, the tests through a transaction pooler are skipped."
	@.ci/need-chromium || echo "Without it, the test of the report in a browser is skipped."
	@.ci/need-dbt || echo "Without it, the tests that run dbt are skipped."
	@$(MAKE) --no-print-directory -j 2 -k test-scheduler test-engines

# Two pytests at once: a scheduler's test mostly waits. Those on a local Spark have a target of their own.
test-engines: install
	$(PY) -m pytest --numprocesses auto --dist loadgroup --no-loadscope-reorder -m "not spark" tests/unit tests/contract tests/chaos

test-scheduler: install
	$(PY) -m pytest tests/airflow

test-databricks: install
	@.ci/need-spark
	$(PY) -m pytest -m spark tests/unit tests/contract

# In an environment of its own: Airflow finds Celery's provider wherever it is installed, and nothing else here needs it.
test-celery: install
	@.ci/need-postgresql
	@.ci/need-redis
	@.ci/need-celery
	PYTHONPATH=. .venv-celery/bin/python -m pytest tests/celery_workers

chaos: install
	@.ci/need-postgresql
	PYTHONPATH=tests:tests/contract:tests/unit/steps $(PY) tests/chaos/chaos.py $(foreach option,SEED SEEDS FIRST BESIDE,$(if $($(option)),--$(shell echo $(option) | tr A-Z a-z) $($(option))))

lint: install
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

format: install
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

types: install
	$(PY) -m mypy --strict

schema: install
	$(PY) -m airflow_backfill_provider.spec.schema > docs/spec.schema.json

guarantees: install
	@.ci/need-spark
	$(PY) -m pytest -p guarantees --numprocesses auto --dist loadgroup tests/contract

package: install
	@.ci/try-package

lowest: install
	@.ci/try-lowest

bench: install
	$(PY) benchmarks/whole_life.py

bench-engines: install
	@.ci/need-postgresql
	$(PY) benchmarks/whole_life.py --engines duckdb postgres delta --days 180 --scopes partition

bench-evidence: install
	$(PY) benchmarks/whole_life.py --evidence --days 30 180 --scopes partition

bench-airflow: install
	@.ci/need-postgresql
	$(PY) benchmarks/through_airflow.py $(if $(ENGINE),--engine $(ENGINE)) $(if $(DAYS),--days $(DAYS))

bench-size: install
	$(PY) benchmarks/size.py

bench-stops: install
	@.ci/need-postgresql
	$(PY) benchmarks/stops.py

constraints: | $(PY)
	@.ci/make-constraints

clean:
	@if [ -x $(PY) ] && [ -e .demo/airflow/processes.json ]; then $(DEMO) down; fi
	rm -rf $(VENV) .venv-dbt .venv-celery .demo .bench .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
