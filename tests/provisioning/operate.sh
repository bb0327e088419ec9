#!/usr/bin/env bash
# The day of an operator, as README.md and the pages of docs have it: first steps, commands, a new name and
# more channels. A source loses nothing, a mistake and rows that differ are met, and a backup is restored.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

start_server source
start_server target
start_server shard1
start_server spare
fill_shop
guide provisioning.md 'Complete binary logs'
executed() { on "$1" <<<"SELECT REPLACE(@@GLOBAL.gtid_executed, '\n', '')"; }
state_is() { [[ $(csa-daemon --channel shop status --json) == *"\"state\":\"$1\""* ]]; }

# --- README.md: first steps ---------------------------------------------------------------------------
# An installation compiles for minutes; the program is the one under test.
cat >"$WORK/bin/cargo" <<TEXT
#!/bin/sh
[ "\$*" = "install --locked --path crates/daemon" ] && grep -q '^name = "csa-daemon"' "\$4/Cargo.toml"
TEXT
chmod +x "$WORK/bin/cargo"
# grants-source.sql; the account is that of another page.
{ echo 'SET SESSION sql_log_bin = 0;'; grep '^GRANT SELECT' "$EXAMPLES/grants-source.sql"; } | on source
IN=$ROOT guide README.md 'Replicating your own servers' 1
{ local_daemon; localize <"$CSA_DAEMON_CONFIG"; } | sed "s/= 3306/= $PORT_SOURCE/; s/= 3307/= $PORT_TARGET/" >"$WORK/edited"
cp "$WORK/edited" "$CSA_DAEMON_CONFIG"
for block in 2 3; do guide README.md 'Replicating your own servers' "$block"; done
until_true 'the channel runs' csa-daemon status
guide README.md 'Replicating your own servers' 4
start_load
guide README.md 'Replicating your own servers' 5
GTID_SET=$(executed source)
GTID=$(on source <<<'SELECT @@server_uuid'):${GTID_SET##*[:-]}
export GTID GTID_SET
guide operating.md 'Everyday commands' 1
grep -q '"traceEvents"' "$WORK/shop.json" || die "no timeline: $(head -c 300 "$WORK/shop.json")"
stop_load
on target <<<'SET sql_log_bin = 0; INSERT INTO shop.digit VALUES (77)'
on source <<<'INSERT INTO shop.digit VALUES (77)'
has_failed() { [[ $(csa-daemon status --json) == *'"state":"failed"'* ]]; }
until_true 'the channel fails' has_failed
GTID=$({ csa-daemon status --json || true; } | sed 's/.*"last_error":{[^{}]*"transaction":"\([^"]*\)".*/\1/')
guide operating.md 'Everyday commands' 2
until_true 'the channel runs again' csa-daemon status
wait_level
grep -q '^CHANNEL.*STATE' "$WORK/staying.2.log" || die "the watch shows nothing: $(<"$WORK/staying.2.log")"
end_staying

# --- a new name -----------------------------------------------------------------------------------------
guide operating.md 'First start' 2
guide channels.md 'Rename a channel'
start_load

# --- more channels --------------------------------------------------------------------------------------
on shard1 <<<"SET SESSION sql_log_bin = 0; CREATE USER 'repl'@'%' IDENTIFIED BY 'change me';
    GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT, SHOW VIEW, TRIGGER, EVENT ON *.* TO 'repl'@'%'"
on shard1 <<<'CREATE DATABASE shard_1; CREATE TABLE shard_1.t (id INT PRIMARY KEY); INSERT INTO shard_1.t VALUES (1), (2)'
for block in 1 2 3; do guide channels.md 'Channels in files' "$block"; done
until_true 'all channels run' csa-daemon status
guide channels.md 'Commands for several channels'
csa-daemon wait --channel shard-1 --timeout "$PATIENCE" "$(executed shard1)"
[[ $(on target <<<'SELECT SUM(id) FROM shard_1.t') == 3 ]] || die 'the shard was not applied'
# It leaves again: the guides below are for a daemon with one channel.
rm "${CSA_DAEMON_CONFIG%/*}/conf.d/shard-1.toml"
[[ $(csa-daemon reload) == *'"shard-1": removed'* ]] || die 'the channel was not removed'
on target <<<"DROP DATABASE shard_1; DELETE FROM csa.checkpoint WHERE channel = 'shard-1'"

guide security.md 'Access to status, rows and commands' 2
until_true 'the channel runs again' csa-daemon status

# --- a source that loses nothing ------------------------------------------------------------------------
guide semi-sync.md 'Set up'
acknowledged() { on source <<<"SHOW STATUS LIKE 'Rpl_semi_sync_source_yes_tx'" | cut -f 2; }
more_acknowledged() { (($(acknowledged) > 20)); }
until_true 'commits wait for the daemon' more_acknowledged
[[ $(csa-daemon status --json) == *'"semi_sync":true'* ]] || die "$(csa-daemon status --json)"

# --- a mistake in the backlog ---------------------------------------------------------------------------
stop_load
wait_level
csa-daemon pause
before=$(sales)
on source <<<'DELETE FROM shop.sale'
GTID_SET=$(executed source)
GTID=${GTID%:*}:${GTID_SET##*[:-]}
on source <<<'INSERT INTO shop.sale (item, amount) VALUES (1, 1)'
guide stop-at-a-point.md 'Before a mistake' 1
grep -q "$GTID" "$WORK/relay.txt" || die "$GTID is not in what was received: $(tail -n 5 "$WORK/relay.txt")"
guide stop-at-a-point.md 'Before a mistake' 2
until_true 'the channel stops' state_is stopped
[[ $(on target <<<'SELECT MAX(id) FROM shop.sale') == "$before" ]] || die 'the mistake was applied'
guide stop-at-a-point.md 'Before a mistake' 3
until_true 'the channel runs again' csa-daemon status
wait_level

# --- rows that differ -----------------------------------------------------------------------------------
on target <<<'SET sql_log_bin = 0; UPDATE shop.item SET stock = stock + 1 WHERE id < 20;
    DELETE FROM shop.digit WHERE d > 5; INSERT INTO shop.digit VALUES (99)'
guide verify.md Repair
compare
on target <<<'SET sql_log_bin = 0; SET foreign_key_checks = 0; DELETE FROM shop.item WHERE id % 2'
start_load
guide copy-one-table.md 'Run it'
guide copy-one-table.md 'A range of rows'
stop_load
wait_level
compare

# --- backup and restore ---------------------------------------------------------------------------------
start_load
guide backup.md Backup
tar --list --gzip --file "$WORK/csa-daemon.tar.gz" | grep -q '/csa-daemon.toml$' || die 'the archive lacks the file'
"$SANDBOX" kill "$NAME_TARGET"
sed -i "s/port = $PORT_TARGET/port = $PORT_SPARE/" "$CSA_DAEMON_CONFIG"
PORT_TARGET=$PORT_SPARE NAME_TARGET=$NAME_SPARE
cp "$WORK/spare.cnf" "$WORK/target.cnf"
guide backup.md Restore
sleep 1
stop_load
wait_level
compare
systemctl stop csa-daemon
