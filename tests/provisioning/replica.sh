#!/usr/bin/env bash
# Runs docs/replace-a-replica.md: the daemon replaces a native replica under load, and native replication takes over
# again. First the target has GTIDs of its own, and a replica of its own; then it has those of the source.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

start_server source
start_server target
start_server spare
executed() { on "$1" <<<"SELECT REPLACE(@@GLOBAL.gtid_executed, '\n', '')"; }

# wait_for ROLE SET: waits until the server has executed the set.
wait_for() {
    local done
    done=$(on "$1" <<<"SELECT WAIT_FOR_EXECUTED_GTID_SET('$2', $PATIENCE)")
    [[ $done == 0 ]] || die "the $1 has not executed $2 after $PATIENCE s: $(errors "$1")"
}

errors() {
    on "$1" <<<"SELECT last_error_message FROM performance_schema.replication_connection_status;
        SELECT last_error_message FROM performance_schema.replication_applier_status_by_worker"
}
replicates() { [[ $(on "$1" <<<"SELECT service_state FROM performance_schema.replication_connection_status") == ON ]]; }

on source <<<"CREATE USER 'repl'@'%' IDENTIFIED BY 'change me'; GRANT REPLICATION SLAVE ON *.* TO 'repl'@'%'"
on target <<<"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = $PORT_SOURCE, SOURCE_USER = 'repl',
    SOURCE_PASSWORD = 'change me', SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 1; START REPLICA"
fill_shop
start_load
wait_for target "$(executed source)"
# The account has to be on the target first: a replica that is refused tries again only after a minute.
on spare <<<"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = $PORT_TARGET, SOURCE_USER = 'repl',
    SOURCE_PASSWORD = 'change me', SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 1; START REPLICA"
on target <<<'SET PERSIST super_read_only = ON'

# replace: the daemon takes over, and a definition and rows arrive through it.
replace() {
    local before
    guide replace-a-replica.md 'Stop the replica'
    guide replace-a-replica.md 'Create the account'
    guide replace-a-replica.md 'Start the daemon' 1
    guide replace-a-replica.md 'Start the daemon' 2
    [[ -z ${1:-} ]] || echo "$1" | perl "$ROOT/tests/provisioning/add-keys" "$CSA_DAEMON_CONFIG"
    guide replace-a-replica.md 'Start the daemon' 3
    before=$(sales)
    on source <<<"ALTER TABLE shop.digit ADD COLUMN column_$SECONDS INT"
    sleep 2
    (($(sales) > before)) || die 'the load wrote nothing'
    guide replace-a-replica.md Verify
}

# --- GTIDs of the target's own --------------------------------------------------------------------------
replace
guide replace-a-replica.md 'Go back' 1
wait_for spare "$(executed target)"
NAME_FIRST=$NAME_TARGET NAME_TARGET=$NAME_SPARE
guide replace-a-replica.md 'Go back with GTIDs of the target'\''s own'
NAME_TARGET=$NAME_FIRST
guide replace-a-replica.md 'Go back with GTIDs of the target'\''s own'
guide replace-a-replica.md 'Go back' 2
until_true 'native replication runs' replicates target
guide replace-a-replica.md 'Go back' 3
on spare <<<'STOP REPLICA; START REPLICA'
until_true "the target's own replica runs" replicates spare
stop_load
wait_for target "$(executed source)"
wait_for spare "$(executed source)"
compare
[[ $(rows spare) == "$(rows source)" ]] || die "the target's replica differs"
on spare <<<'STOP REPLICA; RESET REPLICA ALL'
start_load

# --- those of the source --------------------------------------------------------------------------------
# The privilege that the page names, which comes after the account.
sed "\$a GRANT SYSTEM_VARIABLES_ADMIN ON *.* TO 'csa'@'%';" "$EXAMPLES/grants-target.sql" >"$WORK/grants-target.sql"
EXAMPLES=$WORK
rm -r "$CSA_GUIDE_HOST/state/shop"
replace $'[channel.applier]\ntarget_gtids = "mirror"'
for block in 1 2; do guide replace-a-replica.md 'Go back' "$block"; done
until_true 'native replication runs' replicates target
guide replace-a-replica.md 'Go back' 3
stop_load
wait_for target "$(executed source)"
compare
