# Everything happens in .venv, from the pinned and hashed versions in requirements.txt.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/klutchctl

# What programs import is compiled once, not at each of their many starts.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo again test stories compiled check types house docs pictures bench soak nodes pipelines mutants images lock audit release sign scan

demo: $(STAMP)
	$(BIN)/python -m tests.demo

# Of a demo that KEEP=1 left running: start what does not run any more.
again: $(STAMP)
	$(BIN)/python -m tests.demo again

# Tests wait much: three processes keep two cores busy. The servers of tests take most of the time;
# they collect garbage less often.
PYTEST := GOGC=200 $(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder

test: check
	$(PYTEST) $(ARGS)

# What `make test` leaves out: tests/stories.txt says why.
stories: $(STAMP)
	$(PYTEST) --stories $(ARGS)

# To collect tests is to compile them.
compiled: $(STAMP)
	$(BIN)/pytest -qq -n 0 --collect-only

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --no-print-directory -j 2 types house

types:
	MYPY_CACHE_DIR=$(CACHE)/mypy $(BIN)/mypy klutchctl reconciler konnector bind tests \
	  $(addprefix fleet-example/services/postgresql_,server operator broker)
	$(BIN)/lint-imports

house:
	$(BIN)/python -m tests.support.house
	$(BIN)/python -m tests.support.prose

# The site of the books, in a folder of dist/site for its version, from klutchctl/docs and what the code generates. A dead link
# fails, and so does a reason that its search does not know.
DOCS := $(CACHE)/docs
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
docs: $(DOCS)/.installed
	rm -rf $(DOCS)/source dist/site && mkdir -p dist
	$(DOCS)/bin/python -m tests.support.site $(DOCS)/source
	sed 's|^site_url: .*|&$(VERSION)/|' klutchctl/mkdocs.yml > $(DOCS)/source/mkdocs.yml
	cd $(DOCS)/source && ../bin/zensical build --clean --strict
	$(DOCS)/bin/python -m tests.support.site $(DOCS)/source/site/search.json
	mkdir dist/site && mv $(DOCS)/source/site dist/site/$(VERSION)
	cp dist/site/$(VERSION)/404.html dist/site
	echo '[{"version": "$(VERSION)", "title": "$(VERSION)", "aliases": []}]' > dist/site/versions.json
	echo '<meta http-equiv="refresh" content="0; url=$(VERSION)/">' > dist/site/index.html

# The pictures that are older than what they show, or those that ARGS names. Look at each, then commit them.
pictures: $(STAMP)
	$(BIN)/python -m tests.support.pictures $(ARGS)

$(DOCS)/.installed: klutchctl/docs/requirements.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-compile --require-hashes -r $<
	touch $@

bench: $(STAMP)
	$(BIN)/python -m tests.bench $(ARGS)

SEEDS ?= 20
SOAK := --hypothesis-profile=soak --timeout=0 -o faulthandler_timeout=0

# All tests with all their cases, more random stories, and longer ones.
soak: $(STAMP)
	SEEDS=$(SEEDS) CHURN_SECONDS=600 $(PYTEST) \
	  $(SOAK) $(ARGS)

# Of `make soak`: what is shipped, as pods. As root on Linux, with what tests/nodes/machine.py names.
nodes: $(STAMP)
	$(BIN)/pytest -n 0 $(SOAK) tests/integration/test_nodes.py \
	  tests/integration/test_upgrades.py $(ARGS)

# Of `make soak`: the real Flux and Argo CD, which are built once; Argo CD needs a redis-server.
pipelines: $(STAMP)
	$(BIN)/pytest -n 0 $(SOAK) tests/pipelines $(ARGS)

# Defects of the product, one at a time, that the tests have to notice.
mutants: $(STAMP)
	$(BIN)/python -m tests.mutants $(ARGS)

# The images, as OCI archives, and an SBOM beside each.
images: $(STAMP)
	$(BIN)/python -m tests.images $(ARGS)

COMPILE := uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-annotate \
  --python-version 3.11

# An image holds the requirements.txt beside its Containerfile, and is built with
# requirements-build.txt: the same versions as in requirements.txt.
lock: $(STAMP) # needs uv on PATH
	$(COMPILE) --upgrade --extra gpg --extra otel --extra sandbox --group dev pyproject.toml -o requirements.txt
	$(COMPILE) -c requirements.txt --extra gpg --extra otel pyproject.toml -o klutchctl/deploy/requirements.txt
	$(COMPILE) -c requirements.txt --group klutch-bind -o bind/deploy/requirements.txt
	$(COMPILE) -c requirements.txt --group konnector -o konnector/deploy/requirements.txt
	$(COMPILE) -c requirements.txt --group build -o requirements-build.txt
	$(COMPILE) -c requirements.txt --group docs pyproject.toml -o klutchctl/docs/requirements.txt

# The file names all there is to install; most of it is never imported, so it is compiled in use.
# What is unpacked meanwhile is in .venv: a pip that is killed leaves it.
$(STAMP): export TMPDIR := $(CURDIR)/.venv/tmp
$(STAMP): requirements.txt pyproject.toml
	rm -rf .venv/tmp && mkdir -p .venv/tmp
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-compile --require-hashes \
	  -r requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	rm -rf .venv/tmp
	touch $(STAMP)

# Whether a pinned package has a known vulnerability. The database is PyPI's: a mirror has none.
AUDIT := $(CACHE)/audit
audit:
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/pip install --quiet pip-audit==2.10.1
	$(AUDIT)/bin/pip-audit --strict --disable-pip --no-deps \
	  $(addprefix -r ,$(wildcard requirements*.txt */deploy/requirements.txt */docs/requirements.txt))

# A release of HEAD, in dist/: the same bytes each time. No key is in reach of what builds.
release: $(STAMP)
	$(BIN)/python -m tests.release $(ARGS)

# Signs the digests of dist/, or of the folder ARGS, with KEY=FILE, or the key in $RELEASE_KEY.
sign: $(STAMP)
	$(BIN)/python -m tests.release.sign $(if $(KEY),--key $(KEY)) $(ARGS)

# Whether Debian has mended what an image of dist/ has; its debsecan asks the database of Debian.
scan: $(STAMP)
	$(BIN)/python -m tests.release.scan $(ARGS)
