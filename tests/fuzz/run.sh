#!/usr/bin/env bash
# Fuzzes each target for some time, beginning with its corpus: run.sh [SECONDS] [TARGET…]
# Needs a C++ compiler (libFuzzer comes with a crate); no nightly toolchain. `save.sh` adds new inputs
# in work/ to the corpus.
set -euo pipefail
cd "$(dirname "$0")"

seconds=${1:-60}
(($# == 0)) || shift
targets=("$@")
((${#targets[@]})) || targets=(event rows values gtid_set frame)

export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
host=$(rustc -vV | sed -n 's/^host: //p')
# A target triple keeps build scripts free of the instrumentation.
cargo build --release --target "$host"
built=${CARGO_TARGET_DIR:-target}/$host/release
for target in "${targets[@]}"; do
    mkdir -p "work/$target" "findings/$target"
    tar -xzf "corpus/$target.tar.gz" -C "work/$target"
    "$built/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="findings/$target/" "work/$target" >"findings/$target.log" 2>&1 || {
        tail -n 40 "findings/$target.log" >&2
        echo "$target: a finding in findings/$target" >&2
        exit 1
    }
    grep -E 'stat::number_of_executed_units|DONE' "findings/$target.log" | sed "s/^/$target: /"
done
