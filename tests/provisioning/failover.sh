#!/usr/bin/env bash
# Both servers are lost one after the other under load, as in docs/failover.md: the source's replica
# takes over from the source, then the target's replica from the target.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

start_server source
start_server target
start_server replica
start_server spare

# follow ROLE ROLE: native replication, with the accounts of the first.
follow() {
    local port=PORT_${1^^}
    on "$2" <<<"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = ${!port}, SOURCE_USER = 'admin',
        SOURCE_PASSWORD = 'admin_pw', SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 1; START REPLICA"
}

# wait_for ROLE SET: waits until the server has executed the set.
wait_for() {
    local done
    done=$(on "$1" <<<"SELECT WAIT_FOR_EXECUTED_GTID_SET('$2', $PATIENCE)")
    [[ $done == 0 ]] || die "the $1 has not executed $2 after $PATIENCE s"
}

executed() { on "$1" <<<"SELECT REPLACE(@@GLOBAL.gtid_executed, '\n', '')"; }

# The accounts of every later source and target are in the binary logs of the first.
follow source replica
follow target spare
# Otherwise the REVOKE of grants-target.sql would stop it. Nobody writes to it before it is promoted.
on spare <<<"SET PERSIST partial_revokes = ON; SET PERSIST super_read_only = ON"
# Must come first: a replica that connects after the purge lacks the purged GTIDs.
on target <<<"CREATE DATABASE ready; DROP DATABASE ready"
wait_for spare "$(executed target)"
on source <<<"CREATE USER 'repl'@'%' IDENTIFIED BY 'change me'; GRANT REPLICATION SLAVE ON *.* TO 'repl'@'%'"
on target <<<"SET GLOBAL gtid_purged = '+$(executed source)'"
on target <"$EXAMPLES/grants-target.sql"
fill_shop
on source <<<'CREATE VIEW shop.queue_depth AS SELECT COUNT(*) AS depth FROM shop.digit'
start_load
guide operating.md 'First start'
guide failover.md 'Failover of the source'
# The reload restarts the channel, and `status` fails until it runs.
until_true 'the channel runs with a second source' csa-daemon status
guide throttling.md 'Set up'
# All three limits have an answer, and none is exceeded.
three_answers() {
    local metrics
    metrics=$(curl --silent --fail "http://127.0.0.1:$ADMIN/metrics")
    [[ $(grep -c '^csa_throttle_value{' <<<"$metrics") == 3 ]] && ! grep -q '^csa_throttle_unanswered{.* 1$' <<<"$metrics"
}
until_true 'the limits have answers' three_answers
stop_load
# Nothing is lost: the replica has everything when the source dies.
wait_for replica "$(executed source)"
"$SANDBOX" kill "$NAME_SOURCE"
say 'the source is dead'
on replica <<<'STOP REPLICA; RESET REPLICA ALL'
PORT_SOURCE=$PORT_REPLICA NAME_SOURCE=$NAME_REPLICA
cp "$WORK/replica.cnf" "$WORK/source.cnf"
start_load
sleep 2
until_true 'the channel has a source again' csa-daemon status
applied() { csa-daemon status --json | sed 's/.*"applied_transactions_total":\([0-9]*\).*/\1/'; }
before=$(applied)
applies_more() { (($(applied) > before)); }
until_true 'transactions of the new source are applied' applies_more

# The target dies with transactions that its replica has not received.
on spare <<<'STOP REPLICA IO_THREAD'
sleep 1
"$SANDBOX" kill "$NAME_TARGET"
say 'the target is dead'
sales_before=$(sales)
sleep 1
PORT_OLD=$PORT_TARGET PORT_TARGET=$PORT_SPARE NAME_TARGET=$NAME_SPARE
cp "$WORK/spare.cnf" "$WORK/target.cnf"
sed -i "s/port = $PORT_OLD/port = $PORT_TARGET/" "$CSA_DAEMON_CONFIG"
guide failover.md 'Failover of the target'
sleep 2
stop_load
(($(sales) > sales_before)) || die 'the load wrote nothing'
wait_level
compare
systemctl stop csa-daemon
