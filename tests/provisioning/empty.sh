#!/usr/bin/env bash
# The source's binary logs hold its whole history. Runs the guide exactly as written.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

start_server source
start_server target
fill_types
fill_shop
start_load
say "source on port $PORT_SOURCE, target on port $PORT_TARGET"
guide provisioning.md 'Complete binary logs'
finish
