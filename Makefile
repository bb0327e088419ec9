# `make test` needs no MySQL on the machine: tests/sandbox/mysql-sandbox finds or downloads one.

SANDBOX := tests/sandbox/mysql-sandbox
# Each end-to-end test runs two servers and the daemon.
TEST_THREADS ?= 2

.PHONY: build test lint demo bench sandbox clean

build:
	cargo build --workspace

sandbox:
	$(SANDBOX) fetch >/dev/null

test: sandbox
	cargo build --workspace
	cargo test --workspace -- --test-threads=$(TEST_THREADS)

lint:
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets -- -D warnings

demo: sandbox
	cargo build --release -p csa-daemon -p csa-bench
	target/release/csa-bench demo

bench: sandbox
	cargo build --release -p csa-daemon -p csa-bench
	target/release/csa-bench bench

clean:
	-$(SANDBOX) destroy --all
	cargo clean
