#!/usr/bin/env bash
# Changes while a channel runs: docs/passwords.md on both servers, and docs/online-ddl.md with the statements of
# gh-ost and pt-online-schema-change made by hand.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

start_server source
start_server target
fill_shop
guide provisioning.md 'Complete binary logs'
on source <<<"SET sql_log_bin = 0; GRANT SELECT ON *.* TO 'repl'@'%'"
guide operating.md 'First start'
start_load

# --- passwords ------------------------------------------------------------------------------------------
for block in 1 2 3 4; do guide passwords.md 'Change a password' "$block"; done
# For files that the daemon has not read yet.
csa-daemon reload --restart
until_true 'the channel runs' csa-daemon status
for block in 5 6; do guide passwords.md 'Change a password' "$block"; done
csa-daemon restart
until_true 'the channel runs with the new passwords' csa-daemon status
for role in source target; do
    old=$(mysql --defaults-extra-file="$WORK/$role.cnf" --batch --skip-column-names \
        --execute "SELECT COUNT(*) FROM mysql.user WHERE user IN ('repl', 'csa') AND user_attributes LIKE '%additional_password%'")
    [[ $old == 0 ]] || die "an account of the $role still has its old password"
done
stop_load
wait_level
compare
systemctl stop csa-daemon
