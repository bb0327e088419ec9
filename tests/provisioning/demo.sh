#!/usr/bin/env bash
# The demonstration of README.md, with the programs under test and a short load.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# The demo's own build takes minutes.
cat >"$WORK/bin/cargo" <<TEXT
#!/bin/sh
[ "\$*" = "build --profile demo -p csa-daemon -p csa-bench" ] && grep -q '^\[profile.demo\]' Cargo.toml
TEXT
chmod +x "$WORK/bin/cargo"
[[ -x ${DAEMON%/*}/csa-bench ]] || die "csa-bench is missing: cargo build --workspace --bins"
export DEMO=${DAEMON%/*} DEMO_OPTIONS='--seconds 4 --burst-seconds 1 --rows 1000 --rate 200'
IN=$ROOT guide README.md 'Try it' 1 >"$WORK/demo.log" || die "$(<"$WORK/demo.log")"
tables=$(sed -n 's/^EQUAL: //p' "$WORK/demo.log")
[[ -n $tables ]] || die "nothing was compared: $(<"$WORK/demo.log")"
say "source and target are equal ($tables)"
