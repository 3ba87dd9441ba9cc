# Everything runs in this folder: Python 3.11 and make are all that has to be there.
# 'make help' lists the targets.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
RUN    := $(VENV)/bin/python
SITE   := .venv-docs
LISTER := .venv-release
DATA   := $(or $(SLUICE_HOME),.sluice)
# Tests wait for Kafka and for processes a quarter of their time: three at a time keep two cores busy; a fourth takes more in warming up than it finds.
WORKERS ?= 3
SOURCES := plugins spark_jobs dags tests bench tools examples

# uv takes half of pip's time, and knows nothing of pip's settings: with an index or a proxy of these, pip does it all,
# and also where uv fails.
PIP := $(RUN) -m pip install --disable-pip-version-check --require-hashes

# What is in requirements.lock, and what is in requirements-aws.lock, which is needed on AWS alone.
EXTRAS        := dev http local mariadb openlineage postgres protobuf statsd
EXTRAS_OF_AWS := glue msk s3

# Stamps: what they stand for is done again only when what it was made from has changed.
PACKAGES := $(VENV)/.packages
JARS     := $(DATA)/class-paths/ivy.sha256
ARCHIVES := $(DATA)/archive/stamp
MKDOCS   := $(SITE)/.packages
SBOM     := $(LISTER)/.packages

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install up down status demo demo-clusters demo-connectors release test test-thorough test-postgresql matrix test-fast remedies simulate mutants chaos fuzz lint format docs bench lock clean distclean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(PACKAGES) $(JARS) $(ARCHIVES) ## Install Python packages, Java and the jars into this folder (once, some minutes)

$(PACKAGES): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
	  || { echo "Python 3.11 is needed, and '$(PYTHON)' isn't it. Name one: make install PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(RUN) || { echo "==> Creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "==> Installing the packages of requirements.lock"
	@sed -n '/^uv==/,/# via/p' requirements.lock > $(VENV)/.uv.txt
	@$(PIP) --quiet --requirement $(VENV)/.uv.txt
	@if $(RUN) -m pip config list | grep -qE 'index-url|proxy|client-cert' \
	  || ! $(VENV)/bin/uv pip install --python $(RUN) --compile-bytecode --require-hashes --requirement requirements.lock; \
	then $(PIP) --requirement requirements.lock; fi
	@echo "==> Installing Sluice itself, as this folder"
	@rm -rf plugins/sluice.egg-info  # of releases that setuptools installed: its entry points would be found, too
	$(RUN) -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(JARS): $(PACKAGES) $(addprefix plugins/sluice/local/,ivy.xml jars.sha256)
	@echo "==> Fetching the jars of Spark, Hudi and Kafka"
	@$(RUN) -m sluice.local jars
	@touch $@

$(ARCHIVES): $(JARS) $(addprefix plugins/sluice/local/archive,.py _intervals.py _application.py)
	@echo "==> Archiving the JVMs' classes, so that every interval starts in half the time"
	@$(RUN) -m sluice.local archives
	@touch $@

up: install ## Start Kafka and Airflow, and print where to log in
	@$(RUN) -m sluice.local up

down: ## Stop them; the data stays
	@if test -x $(RUN); then $(RUN) -m sluice.local down; fi

status: install ## Show what runs
	@$(RUN) -m sluice.local status

demo: install ## Load a year of real flights by Airflow's scheduler, and compare every row with Kafka
	@$(RUN) -m sluice.local.demo

demo-clusters: install ## Move a stream from one Kafka cluster to another while records arrive, and compare every row
	@$(RUN) -m sluice.local.demo.clusters

demo-connectors: install ## Load files into a database, that into a topic, and that into Hudi, Parquet, Avro and a database while jobs are killed; compare every row
	@$(RUN) -m sluice.local.demo.connectors

test: install ## Run the most telling tests of the guarantees (three at a time; name some with ARGS="-k offsets")
	$(RUN) -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

test-thorough: install ## Run the other tests, which take an hour (ARGS="--minutes 30" for half of one)
	$(RUN) -m pytest -n $(WORKERS) --dist loadfile --thorough $(ARGS)

test-postgresql: install ## Run the tests of PostgreSQL on its releases 12, 13 and 17, whose programs come from Maven Central (one with ARGS="12")
	$(RUN) -m tests.postgresql $(ARGS)

matrix: install ## Run the tests of Airflow's side on each release of Airflow and Python that Sluice runs on (one with ARGS="3.2-py3.12")
	$(RUN) -m tests.matrix $(ARGS)

test-fast: install ## Run only the tests that start no process: seconds
	$(RUN) -m pytest -n 2 --dist loadfile tests/unit $(ARGS)

remedies: install ## Try every remedy on every kind of table in every circumstance: 160 cells, of which 'make test' and 'make test-thorough' have 20
	$(RUN) -m pytest -n $(WORKERS) --dist load --all-cells tests/guarantees/test_remedies.py $(ARGS)

simulate: install ## Play ten thousand broken histories of the protocol (others with ARGS="--first 10000 --histories 200000")
	$(RUN) -m tests.simulation $(ARGS)

mutants: install ## Change the core in 60 random places, each in turn, and see which changes no test notices (others with ARGS="--seed 7 --sample 20")
	$(RUN) -m tests.mutants $(ARGS)

chaos: install ## Kill, freeze and starve real processes for 300 rounds, and compare all rows (fewer with ARGS="--rounds 20")
	$(RUN) -m tests.chaos $(ARGS)

fuzz: install ## Hand hostile inputs to every parser and route for an hour (less with ARGS="--minutes 5"; what it finds, it says how to play again)
	$(RUN) -m tests.fuzz $(ARGS)

lint: $(PACKAGES) ## Check style, types, who imports whom, and the pages' links and words
	$(RUN) -m ruff check $(wildcard $(SOURCES))
	$(RUN) -m ruff format --check $(wildcard $(SOURCES))
	$(RUN) -m mypy $(wildcard plugins spark_jobs dags)
	$(RUN) tools/layers.py
	$(RUN) tools/answers.py
	$(RUN) tools/capabilities.py
	$(RUN) tools/openapi.py
	$(RUN) tools/settings.py
	$(RUN) tools/links.py
	$(RUN) tools/words.py

format: install ## Format the sources, and correct what can be corrected by itself
	$(RUN) -m ruff check --fix-only $(wildcard $(SOURCES))
	$(RUN) -m ruff format $(wildcard $(SOURCES))

docs: $(MKDOCS) ## Build the site of docs/, with search, into build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/python -m mkdocs build --strict
	@echo "The site is in build/site; for its search, serve it: python3 -m http.server --directory build/site"

# An environment beside the other, so that 'make install' takes none of these packages.
$(MKDOCS): docs/requirements.lock
	@test -x $(SITE)/bin/python || { echo "==> Creating $(SITE)"; $(PYTHON) -m venv $(SITE); }
	@echo "==> Installing the packages of docs/requirements.lock"
	@$(SITE)/bin/python -m pip install --disable-pip-version-check --quiet --require-hashes --requirement docs/requirements.lock
	@touch $@

bench: install ## Measure; results go to bench/results
	$(RUN) -m bench.run $(ARGS)

release: $(PACKAGES) $(SBOM) ## Build wheel and sdist into dist/, with constraints, a list of all packages (CycloneDX) and checksums
	rm -rf dist
	$(RUN) -m hatchling build -d dist
	$(VENV)/bin/uv pip compile requirements.lock requirements-aws.lock --no-deps --no-header --no-annotate --quiet \
	  --output-file dist/constraints.txt
	$(LISTER)/bin/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml \
	  --output-reproducible --output-file dist/sluice.cdx.json
	cd dist && sha256sum -- * > SHA256SUMS

# Likewise an environment beside the other.
$(SBOM): tools/requirements.lock
	@test -x $(LISTER)/bin/python || { echo "==> Creating $(LISTER)"; $(PYTHON) -m venv $(LISTER); }
	@echo "==> Installing the packages of tools/requirements.lock"
	@$(LISTER)/bin/python -m pip install --disable-pip-version-check --quiet --require-hashes --requirement tools/requirements.lock
	@touch $@

lock: install ## Resolve requirements.lock, that of AWS, and those of docs/ and tools/ anew from pyproject.toml
	$(VENV)/bin/uv pip compile pyproject.toml $(addprefix --extra ,$(EXTRAS)) --generate-hashes --no-emit-index-url \
	  --python-version 3.11 --upgrade --quiet --output-file requirements.lock
	$(RUN) tools/extras.py $(EXTRAS_OF_AWS) | $(VENV)/bin/uv pip compile - --constraint requirements.lock --generate-hashes \
	  --no-emit-index-url --python-version 3.11 --upgrade --quiet --output-file requirements-aws.lock
	$(VENV)/bin/uv pip compile --group pyproject.toml:docs --generate-hashes --no-emit-index-url \
	  --python-version 3.11 --upgrade --quiet --output-file docs/requirements.lock
	$(VENV)/bin/uv pip compile --group pyproject.toml:release --generate-hashes --no-emit-index-url \
	  --python-version 3.11 --upgrade --quiet --output-file tools/requirements.lock

clean: ## Remove what running has left, tables and topics included; packages and jars stay
	@if test -x $(RUN); then $(RUN) -m sluice.local clean; fi
	rm -rf build dist spark-warehouse metastore_db derby.log
	rm -rf .pytest_cache .mypy_cache .ruff_cache

distclean: clean ## Also remove packages, Java and jars
	rm -rf $(VENV) $(SITE) $(LISTER) .sluice
