#!/usr/bin/env bash
# Adds the new inputs of the last run in work/ to each target's corpus, the fewest with the same coverage.
set -euo pipefail
cd "$(dirname "$0")"

host=$(rustc -vV | sed -n 's/^host: //p')
built=${CARGO_TARGET_DIR:-target}/$host/release
for directory in work/*/; do
    target=$(basename "$directory")
    fewest=$(mktemp -d)
    "$built/$target" -merge=1 "$fewest" "$directory" 2>/dev/null
    tar --sort=name --mtime=@0 --owner=0 --group=0 -czf "corpus/$target.tar.gz" -C "$fewest" .
    rm -rf "$fewest"
done
