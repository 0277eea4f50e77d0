# Shortcuts for common tasks. `make demo` and `make check` work in a fresh clone: they
# install missing packages (packaging/deps.sh), build and run. CMake does the building.

BUILD := build
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
DLCORE := $(BUILD)/bin/dlcore
DEMO_NET := models/lenet-fashion.ini

.PHONY: all demo demo-train demo-hints check test lint docs bench install deb rpm bundle format clean help deps deps-demo

all: ## Build the command, its library and the plugins
	@command -v cmake >/dev/null && command -v ninja >/dev/null || \
	    { echo "cmake and ninja are needed: run packaging/deps.sh" >&2; exit 1; }
	@{ test -f $(BUILD)/build.ninja && ! test -f $(BUILD)/demo-only; } || cmake --preset release
	@rm -f $(BUILD)/demo-only
	@cmake --build $(BUILD) -j $(JOBS)

deps: ## Install the packages that building and testing need
	@packaging/deps.sh

deps-demo:
	@packaging/deps.sh --nocheck

# Builds only what training on CPUs needs, without looking for CUDA; `make` builds the rest.
demo: deps-demo ## Train a LeNet on Fashion-MNIST, on two ranks
	@test -f $(BUILD)/build.ninja || \
	    { CUDACXX=none cmake --preset release && touch $(BUILD)/demo-only; }
	@cmake --build $(BUILD) -j $(JOBS) --target cpu
	@$(MAKE) --no-print-directory demo-train
	@$(MAKE) --no-print-directory demo-hints

demo-train:
	$(DLCORE) train $(DEMO_NET) --epochs 1 --ranks=2 --transport=host-staged

# tests/docs runs each of these commands. A longer run has another learning rate schedule,
# so the first hint starts from the weights, with a rate low enough not to undo them.
demo-hints:
	@last=$$(ls -t runs/*/*.safetensors | head -n 1); \
	echo; \
	echo "What to do next (every command has --help):"; \
	echo; \
	echo "  train it further   $(DLCORE) train $(DEMO_NET) --ranks=2 --epochs 6 \\"; \
	echo "                       --set solver.learning_rate=0.01 --weights $$last"; \
	echo "  test a checkpoint  $(DLCORE) test $(DEMO_NET) --weights $$last"; \
	echo "  inspect the net    $(DLCORE) check $(DEMO_NET)"; \
	echo "  another net        $(DLCORE) train models/lenet.ini --ranks=2"; \
	echo "  other transports   $(DLCORE) plugin list, then --transport NAME"; \
	echo "  check this machine $(DLCORE) doctor"; \
	echo "  run every test     make check"; \
	echo "  read more          README.md"

check: deps ## Run every lint and test: release, sanitizers, valgrind
	@tests/run.sh

test: ## Run the tests of the release build only
	@tests/run.sh release

lint: ## Run the lints: format, static analysis, layering, words
	@tests/run.sh lint

docs: all ## Write docs/net-ini.md and docs/sdk.md; needs all plugins, with CUDA
	@cmake --build $(BUILD) --target docs

bench: all ## Compare with PyTorch (hours); updates docs/results; BENCH="--nets resnet50"
	@bench/side_by_side.py --write docs/results/cpu-training.md $(BENCH)

install: all ## Install to PREFIX (/usr/local unless CMake was told another); honours DESTDIR
	@cmake --install $(BUILD) $(if $(PREFIX),--prefix "$(PREFIX)")

deb: ## Build Debian packages in build/deb
	@packaging/build-deb.sh

rpm: ## Build RPMs in build/rpm and run their tests
	@packaging/build-rpm.sh

bundle: ## Build one tar file in build/ that runs wherever it is unpacked
	@packaging/bundle/make.sh

format: ## Format every C file in place
	@tests/lint/files.sh c h cu cuh | tr '\n' '\0' | xargs -0r clang-format -i

clean: ## Remove the build folder
	@rm -rf $(BUILD)

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18
