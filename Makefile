# Everything happens in .venv, from the pinned and hashed versions in requirements.txt.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test check bench soak lock

demo: $(STAMP)
	$(BIN)/python -m tests.demo

test: check
	$(BIN)/pytest -n 2 --dist loadfile $(ARGS)

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy klutchctl reconciler konnector bind tests \
	  fleet-example/services/postgresql_operator
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python -m tests.bench $(ARGS)

SEEDS ?= 20

soak: $(STAMP)
	SEEDS=$(SEEDS) CHURN_SECONDS=600 IDLE_SECONDS=600 $(BIN)/pytest -n 2 --dist loadfile tests/properties \
	  tests/contract/test_apply_crashes.py tests/contract/test_backend_crashes.py \
	  tests/contract/test_informer_churn.py tests/contract/test_konnector_churn.py \
	  tests/contract/test_konnector_faults.py tests/contract/example_provider/test_operator_crashes.py \
	  tests/integration/test_road.py \
	  --hypothesis-profile=soak --timeout=0 $(ARGS)

lock: $(STAMP) # needs uv on PATH
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-annotate --upgrade \
	  --python-version 3.11 --extra sandbox --group dev pyproject.toml -o requirements.txt

$(STAMP): requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(STAMP)
