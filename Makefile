# `make test` needs no MySQL on the machine: tests/sandbox/mysql-sandbox finds or downloads one.

SANDBOX := tests/sandbox/mysql-sandbox
# Each end-to-end test runs two servers and the daemon, and waits half of its time: three a core, as far as there
# are 2 GiB of memory for each.
TEST_THREADS ?= $(shell awk -v most=$$((3 * $$(nproc))) '/^MemAvailable/ { n = int($$2 / 2097152) } \
	END { print (n < 2 ? 2 : n > most ? most : n) }' /proc/meminfo)

# A selection that takes some minutes on two cores; `csa-bench bench --help` has the rest.
BENCH_DRAIN ?= --quick --rows 10000 --transactions 15000
BENCH_ONLINE ?= --quick --rows 10000 --seconds 10 --load updates-1,write-only
BENCH_IDLE ?= --quick

# The programs of the demonstration, and options such as `--keep`.
DEMO ?= target/demo
DEMO_OPTIONS ?=

# The tools that build the Debian package and check dependencies, kept with the downloads.
CACHE := $(or $(CSA_SANDBOX_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/csa-daemon)
CARGO_DEB := $(CACHE)/tools/bin/cargo-deb
CARGO_DENY := $(CACHE)/tools/bin/cargo-deny
DOCS_PROGRAMS := $(CACHE)/docs
RELEASE_PROGRAMS := $(CACHE)/release
CARGO_LLVM_COV := $(CACHE)/tools/bin/cargo-llvm-cov

.PHONY: build test test-slow test-deployments test-all test-repeat coverage lint docs deny demo bench bench-full performance flames sandbox versions gateway tools kubernetes deb image release clean

build:
	cargo build --workspace

sandbox:
	$(SANDBOX) fetch >/dev/null
	$(SANDBOX) fetch --mariadb >/dev/null

# Servers of fixed versions; Maven downloads them.
versions:
	for version in 5.7 8.0.15 8.0.31 mariadb-11.4; do \
		$(SANDBOX) fetch --version $$version >/dev/null || exit 1; \
	done

# An API server, kubectl and helm, built with Go for the tests of config/kubernetes: some ten minutes, and 3 GB of caches.
kubernetes:
	for tool in kube-apiserver kubectl helm; do tests/sandbox/go-tool $$tool >/dev/null || exit 1; done

# The server of the archive's tests. A test that builds it waits for it at the lowest priority.
gateway:
	tests/sandbox/go-tool versitygw >/dev/null

tools: $(CARGO_DEB)

$(CARGO_DEB):
	cargo install --locked --root $(CACHE)/tools cargo-deb@3.8.0

$(CARGO_LLVM_COV):
	cargo install --locked --root $(CACHE)/tools cargo-llvm-cov@0.6.21

$(CARGO_DENY):
	cargo install --locked --debug --root $(CACHE)/tools cargo-deny@0.20.2

# target/debian/csa-daemon_*.deb
deb: tools
	cargo build --release -p csa-daemon
	config/debian/build target/release/csa-daemon

# target/csa-daemon-image.tar, for `docker load`, podman or skopeo
image:
	cargo build --release -p csa-daemon
	config/container/build target/release/csa-daemon

# target/release-VERSION: packages, images, sums and notices for x86_64 and arm64 (CONTRIBUTING.md, A release)
release: tools $(RELEASE_PROGRAMS)/installed
	config/release/build

$(RELEASE_PROGRAMS)/installed: config/release/requirements.txt
	@python3 -m venv --clear $(RELEASE_PROGRAMS) || \
		{ echo 'make release: python3 has no working venv module (on Debian: apt install python3-venv)' >&2; exit 1; }
	@$(RELEASE_PROGRAMS)/bin/pip install --quiet --disable-pip-version-check --requirement $< || \
		{ echo 'make release: pip did not install Zig and cargo-zigbuild from its index' >&2; exit 1; }
	@touch $@

# Built with the tests in one go: alone, the programs have other features and all is compiled twice.
# Slow tests are left to `test-slow`, and what runs the guides, the packages and the deployments to `test-deployments`.
# Tests hand servers on to later ones; for each test its own, run `cargo test` or set this to nothing.
TEST_TIMES := target/test-times
REUSE_SERVERS ?= $(abspath target/test-servers)
CARGO_TEST = cargo test --config 'target."cfg(all())".runner = "$(abspath tests/timed)"' --workspace --no-fail-fast
# A session of its own, which ends with the first run: Ctrl-C does not reach what a shell runs in the background.
BESIDE = CSA_TEST_TIMES=$$CSA_TEST_TIMES.beside setsid timeout 3600 nice -n 19 $(CARGO_TEST) $(1) >$(TEST_TIMES).log 2>&1 & \
	beside=$$!; trap 'kill -- -$$beside 2>/dev/null' EXIT; trap 'exit 130' INT TERM;
# Runs the tests $(1), with the tests $(2) beside them at the lowest priority, and reports on all whatever the outcome.
define RUN_TESTS
@rm -f $(TEST_TIMES)* $(REUSE_SERVERS)
@export CSA_TEST_TIMES=$(abspath $(TEST_TIMES)) $(if $(REUSE_SERVERS),CSA_REUSE_SERVERS=$(REUSE_SERVERS)); \
	$(if $(2),$(call BESIDE,$(2))) \
	$(CARGO_TEST) $(1); status=$$?; \
	$(if $(2),wait $$beside || status=$$?; cat $(TEST_TIMES).log; cat $(TEST_TIMES).beside >>$(TEST_TIMES);) \
	tests/timed --report 10 $(TEST_TIMES); exit $$status
endef

test: sandbox versions
	cargo build --workspace --bins --tests
	$(call RUN_TESTS,--tests -- --test-threads=$(TEST_THREADS) --skip deployments::)

# The tests marked `#[ignore = "slow"]`, which `test` leaves out.
test-slow: sandbox versions
	cargo build --workspace --bins --tests
	$(call RUN_TESTS,--tests -- --ignored --test-threads=$(TEST_THREADS) --skip deployments::)

# Guides, packages, containers and alerts, as they are written.
test-deployments: sandbox versions tools gateway
	cargo build --workspace --bins --tests
	$(call RUN_TESTS,--test e2e -- --test-threads=$(TEST_THREADS) deployments::)

# All of these, for CI. In turn, each would end with long tests that leave a processor idle. What the tests with servers leave
# of the processors is for the simulations, which have no servers and no clocks to wait for.
test-all: sandbox versions tools gateway
	cargo build --workspace --bins --tests
	$(call RUN_TESTS,--lib --bins --test e2e --test chaos --test power -- --include-ignored --test-threads=$(TEST_THREADS),\
		--test sim -- --include-ignored)

# Repeats suites on a busy machine, to find tests that fail by chance. `SUITES` are options of `cargo test`:
# `make test-repeat N=20 SUITES='--test e2e -- --include-ignored fencing'`.
N ?= 50
SUITES ?= --lib
test-repeat: sandbox
	cargo build --workspace --bins --tests
	tests/repeat $(N) cargo test --workspace $(SUITES)

# Lines that the unit tests and the simulations run, file by file. It compiles everything once more, and needs
# `rustup component add llvm-tools`.
coverage: $(CARGO_LLVM_COV)
	$(CARGO_LLVM_COV) llvm-cov --workspace --lib --test sim --ignore-filename-regex '/(tests|benches)/' --summary-only \
		-- --include-ignored

lint:
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets -- -D warnings
	tests/lint/prose
	tests/lint/links
	tests/lint/promises
	tests/lint/rooms
	# No program that is released can have a planted bug (crates/provider/src/seams/planted.rs), or shorten its pauses.
	! cargo tree --package csa-daemon --package csa-bench --edges features,no-dev | grep -E 'planted|test-util'

# target/site: docs/ as a site with a search; a link that leads nowhere is an error. Python installs MkDocs once.
docs: $(DOCS_PROGRAMS)/installed
	$(DOCS_PROGRAMS)/bin/mkdocs build --strict --config-file config/mkdocs/mkdocs.yml
	@echo 'target/site/index.html; its search needs a web server: python3 -m http.server --directory target/site'

$(DOCS_PROGRAMS)/installed: config/mkdocs/requirements.txt
	@python3 -m venv --clear $(DOCS_PROGRAMS) || \
		{ echo 'make docs: python3 has no working venv module (on Debian: apt install python3-venv)' >&2; exit 1; }
	@$(DOCS_PROGRAMS)/bin/pip install --quiet --disable-pip-version-check --requirement $< || \
		{ echo 'make docs: pip did not install MkDocs from its index; docs/README.md has the same pages without a search' >&2; exit 1; }
	@touch $@

# Licences, sources and known vulnerabilities of every dependency, by deny.toml. The list of
# vulnerabilities is downloaded; where that fails, a message says that this one check did not run.
deny: $(CARGO_DENY)
	$(CARGO_DENY) check --hide-inclusion-graph bans licenses sources
	@if $(CARGO_DENY) fetch db >/dev/null 2>&1; then \
		$(CARGO_DENY) check --hide-inclusion-graph advisories; \
	else \
		echo 'NOT CHECKED: the list of known weaknesses (advisories) can not be downloaded on this machine' >&2; \
	fi

# One MySQL serves all three servers; with CSA_MYSQLD=/path/to/mysqld, one of this machine.
demo:
	@$(SANDBOX) fetch >/dev/null
	@echo 'building csa-daemon and the demonstration: some minutes the first time'
	cargo build --profile demo -p csa-daemon -p csa-bench
	$(DEMO)/csa-bench demo $(DEMO_OPTIONS)

bench: sandbox
	cargo build --release -p csa-daemon -p csa-bench
	target/release/csa-bench bench --mode drain $(BENCH_DRAIN)
	target/release/csa-bench bench --mode online $(BENCH_ONLINE)
	target/release/csa-bench bench --mode idle $(BENCH_IDLE)

# The published sizes: all loads, all profiles, 4, 16 and 64 workers. Hours on two cores.
bench-full: sandbox
	cargo build --release -p csa-daemon -p csa-bench
	target/release/csa-bench bench --profile default,relaxed,mirror,nologs,compressed,one-to-one,one-to-one-relaxed,one-to-one-unordered,one-to-one-nobinlog,one-to-one-nologs
	target/release/csa-bench bench --mode online --seconds 60
	target/release/csa-bench bench --mode idle

# The table of docs/performance.md: some two hours on two cores. Scripts of sysbench are in it where sysbench is installed.
# PERFORMANCE has the rounds and MTA's workers.
PERFORMANCE ?= --rounds 3 --mta-workers 64
performance: sandbox
	cargo build --release -p csa-daemon -p csa-bench
	target/release/csa-bench bench $(PERFORMANCE) --load updates-1,updates-10 --profile default,mirror,relaxed,nologs,compressed
	target/release/csa-bench bench $(PERFORMANCE) --load write-only,insert-only,hot-row,fk,wide-row
	target/release/csa-bench bench $(PERFORMANCE) --load bulk --bulk-rows 100
	target/release/csa-bench bench $(PERFORMANCE) --load bulk --bulk-rows 1000
	target/release/csa-bench bench $(PERFORMANCE) --load updates-1 --tables 10000 --rows 10
	target/release/csa-bench bench $(PERFORMANCE) --load updates-1,updates-10 --profile one-to-one,one-to-one-relaxed,one-to-one-unordered
	target/release/csa-bench bench $(PERFORMANCE) --load updates-1 --profile one-to-one-nobinlog,one-to-one-nologs
	@! command -v sysbench || target/release/csa-bench sysbench $(PERFORMANCE) oltp_write_only oltp_update_index oltp_insert
	target/release/csa-bench publish target/bench/drain-*.json

# Where the processors' time goes while a backlog drains; needs perf. Frame pointers make the stacks of csa-daemon whole.
FLAMES ?= --quick --rounds 1 --rows 50000 --load updates-10 --profile default
flames: sandbox
	RUSTFLAGS="-C force-frame-pointers=yes" cargo build --release --target-dir target/frames -p csa-daemon -p csa-bench
	target/frames/release/csa-bench bench $(FLAMES) --flame target/flames

clean:
	-$(SANDBOX) destroy --all
	cargo clean
