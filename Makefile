# Everything a person does here, one word each. Every target first installs the packages it misses.
PREFIX ?= /usr/local
ARGS ?=

.PHONY: build build-pgo run test test-long bench perf fuzz mutants tidy format install \
        package-sdks clean help

build: ## the release binary, at build/once
	@tools/deps build
	@tools/build build --buildtype=release -Dtests=false -Dwerror=false

build-pgo: ## the same with link-time optimisation and a profile, at build-pgo/once; takes longer
	@tools/deps build bench
	@tools/build_pgo

run: build ## once serve on 127.0.0.1:7411 (ARGS="--config once.yaml"; build/once demo for a show)
	@exec build/once serve $(ARGS)

test: ## everything, short tier, under sanitizers (ARGS="--suite unit -k buf" for a part)
	@tools/deps build test
	@tools/test $(ARGS)

test-long: ## the long tiers: more seeds, more crashes, clang-tidy, the planted bugs
	@tools/deps build test
	@tools/test --long $(ARGS)

bench: ## speed and size, as ratios measured in one run (ARGS="--quick --only B4")
	@tools/deps build bench
	@bench/run $(ARGS)

perf: ## a profile of one benchmark, ready for a flame graph (ARGS=B7; B4 otherwise)
	@tools/deps build bench
	@bench/run --perf $(or $(ARGS),B4)

fuzz: ## every libFuzzer target for a minute each (ARGS="--seconds 600 -k json")
	@tools/deps build test
	@tools/fuzz $(ARGS)

mutants: ## plant each known bug and see its test catch it
	@tools/deps build test
	@tools/mutants $(ARGS)

tidy: ## the test about the source
	@tools/deps build test
	@tools/tidy $(ARGS)

format: ## clang-format every C file in place
	@tools/deps build test
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs -r clang-format -i

install: build ## binary, libraries, headers, pkg-config, man page, completions (PREFIX, DESTDIR)
	@meson configure build --prefix='$(abspath $(PREFIX))'
	@ninja -C build
	@DESTDIR='$(DESTDIR)' meson install -C build --no-rebuild
	@test -n '$(DESTDIR)' || test "$$(id -u)" != 0 || ldconfig

package-sdks: ## the archives of the SDKs, into build-sdks: wheel, sdist, npm tarball, Go module
	@tools/deps test
	@GO_MODULE="$(GO_MODULE)" tools/package_sdks build-sdks

clean: ## remove every build directory
	@rm -rf build build-*

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile
