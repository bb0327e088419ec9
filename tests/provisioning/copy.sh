#!/usr/bin/env bash
# The daemon copies the source while it is written to. Runs the guide exactly as written.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

start_server source
start_server target
fill_types
fill_shop
# Copied JSON is text: a DECIMAL that SQL put in comes back as a DOUBLE.
on source <<<"DELETE FROM everything.documents WHERE JSON_EXTRACT(doc, '$.n') IS NOT NULL"
start_load
say "source on port $PORT_SOURCE, target on port $PORT_TARGET"
guide provisioning.md 'Copy'
finish

systemctl start csa-daemon
guide provisioning.md 'Copy again' 1
# The guide has one database.
on target <<<"DROP DATABASE everything"
guide provisioning.md 'Copy again' 2
guide provisioning.md 'Copy again' 3
guide provisioning.md 'Copy again' 4
wait_level
compare
systemctl stop csa-daemon
