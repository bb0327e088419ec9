#!/usr/bin/env bash
# Targets that are no MySQL of this time: MySQL 5.7 and MariaDB, with the accounts and the collations of
# docs/provisioning.md. One source, one daemon, two channels.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

start_server source
start_server mysql57 --version 5.7
start_server mariadb --mariadb
fill_shop
start_load
guide provisioning.md 'Complete binary logs' 1
guide provisioning.md 'MySQL 5.7'
guide provisioning.md 'MariaDB'
guide operating.md 'First start' 1
export PORT_TARGET=$PORT_MYSQL57
guide operating.md 'First start' 2
guide provisioning.md 'Collations that the target lacks'
# This build of 5.7 has no TLS that is still in use.
echo $'[channel.target]\ntls = "disabled"' | "$ROOT/tests/provisioning/add-keys" "$CSA_DAEMON_CONFIG"
mkdir "${CSA_DAEMON_CONFIG%/*}/conf.d"
sed "1,/^\[\[channel/{/^\[\[channel/!d}; s/\"shop\"/\"maria\"/; s/4201/4202/; s/$PORT_MYSQL57/$PORT_MARIADB/; /^tls = /d" \
    "$CSA_DAEMON_CONFIG" >"${CSA_DAEMON_CONFIG%/*}/conf.d/maria.toml"
guide operating.md 'First start' 3
sleep 1
stop_load
(($(sales) > 0)) || die 'the load wrote nothing'
rows source >"$WORK/source.rows"
wanted=$(on source <<<"SELECT REPLACE(@@GLOBAL.gtid_executed, '\n', '')")
for target in shop:mysql57 maria:mariadb; do
    csa-daemon wait --channel "${target%:*}" --timeout "$PATIENCE" "$wanted" || die "$(csa-daemon status)"
    rows "${target#*:}" >"$WORK/target.rows"
    diff "$WORK/source.rows" "$WORK/target.rows" >"$WORK/differences" ||
        die "${target#*:} differs: $(head -c 2000 "$WORK/differences")"
done
systemctl stop csa-daemon
say "source and target are equal ($(wc -l <"$WORK/source.rows") rows, both targets)"
