#!/usr/bin/env bash
# Changes while a channel runs: docs/passwords.md on both servers, and docs/online-ddl.md with the statements of
# gh-ost and pt-online-schema-change made by hand. At the end, the codes of docs/exit-codes.md.
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
for block in 5 6; do guide passwords.md 'Change a password' "$block"; done
csa-daemon restart
until_true 'the channel runs with the new passwords' csa-daemon status
for role in source target; do
    old=$(mysql --defaults-extra-file="$WORK/$role.cnf" --batch --skip-column-names \
        --execute "SELECT COUNT(*) FROM mysql.user WHERE user IN ('repl', 'csa') AND user_attributes LIKE '%additional_password%'")
    [[ $old == 0 ]] || die "an account of the $role still has its old password"
done

# --- online changes of a table --------------------------------------------------------------------------
on target <<<'SET PERSIST log_bin_trust_function_creators = ON'
on source <<<'SET PERSIST log_bin_trust_function_creators = ON'
on source <<'SQL'
CREATE TABLE shop.visit (id INT AUTO_INCREMENT PRIMARY KEY, page VARCHAR(40) NOT NULL, hits INT NOT NULL);
INSERT INTO shop.visit (page, hits) SELECT CONCAT('page ', id), 0 FROM shop.item;
SQL

# Writes to the table until the file is removed.
visits() {
    local number
    for ((number = 0; number < 2000000; number++)); do
        [[ -f $WORK/load ]] || return 0
        echo "INSERT INTO shop.visit (page, hits) VALUES ('new $number', 1);" \
            "UPDATE shop.visit SET hits = hits + 1 WHERE id = $((1 + number % 200));" \
            "DELETE FROM shop.visit WHERE id = $((201 + number / 2));"
        pause 0.02
    done
}
visits | on source &
LOADS+=($!)

# The statements of both tools. Where they follow changes from the binary log or by triggers, these lock the table.
cat >"$WORK/gh-ost.sql" <<'SQL'
CREATE TABLE `shop`.`_visit_ghc` (id BIGINT AUTO_INCREMENT, last_update TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
    ON UPDATE CURRENT_TIMESTAMP, hint VARCHAR(64) CHARACTER SET ascii NOT NULL, value VARCHAR(4096) CHARACTER SET ascii NOT NULL,
    PRIMARY KEY (id), UNIQUE KEY hint_uidx (hint)) AUTO_INCREMENT = 256;
CREATE TABLE `shop`.`_visit_gho` LIKE `shop`.`visit`;
ALTER TABLE `shop`.`_visit_gho` ADD COLUMN price INT NOT NULL DEFAULT 7;
INSERT INTO `shop`.`_visit_ghc` (id, hint, value) VALUES (NULLIF(1, 0), 'heartbeat', NOW(6))
    ON DUPLICATE KEY UPDATE last_update = NOW(), value = VALUES(value);
INSERT IGNORE INTO `shop`.`_visit_gho` (id, page, hits) SELECT id, page, hits FROM `shop`.`visit` FORCE INDEX (PRIMARY)
    WHERE id <= 100 LOCK IN SHARE MODE;
DO SLEEP(0.5);
CREATE TABLE `shop`.`_visit_del` (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE = InnoDB COMMENT = 'ghost-cut-over-sentry';
DROP TABLE `shop`.`_visit_del`;
LOCK TABLES `shop`.`visit` WRITE, `shop`.`_visit_gho` WRITE, `shop`.`visit` AS v READ, `shop`.`_visit_gho` AS g READ;
DELETE FROM `shop`.`_visit_gho`;
REPLACE INTO `shop`.`_visit_gho` (id, page, hits) SELECT v.id, v.page, v.hits FROM `shop`.`visit` AS v;
RENAME TABLE `shop`.`visit` TO `shop`.`_visit_del`, `shop`.`_visit_gho` TO `shop`.`visit`;
UNLOCK TABLES;
DROP TABLE `shop`.`_visit_ghc`;
DROP TABLE `shop`.`_visit_del`;
SQL
cat >"$WORK/pt-online-schema-change.sql" <<'SQL'
CREATE TABLE `shop`.`_visit_new` LIKE `shop`.`visit`;
ALTER TABLE `shop`.`_visit_new` ADD COLUMN colour VARCHAR(10);
CREATE TRIGGER `shop`.`pt_osc_shop_visit_del` AFTER DELETE ON `shop`.`visit` FOR EACH ROW
    DELETE IGNORE FROM `shop`.`_visit_new` WHERE `_visit_new`.`id` <=> OLD.`id`;
CREATE TRIGGER `shop`.`pt_osc_shop_visit_upd` AFTER UPDATE ON `shop`.`visit` FOR EACH ROW
    REPLACE INTO `shop`.`_visit_new` (`id`, `page`, `hits`, `price`) VALUES (NEW.`id`, NEW.`page`, NEW.`hits`, NEW.`price`);
CREATE TRIGGER `shop`.`pt_osc_shop_visit_ins` AFTER INSERT ON `shop`.`visit` FOR EACH ROW
    REPLACE INTO `shop`.`_visit_new` (`id`, `page`, `hits`, `price`) VALUES (NEW.`id`, NEW.`page`, NEW.`hits`, NEW.`price`);
DO SLEEP(0.5);
INSERT LOW_PRIORITY IGNORE INTO `shop`.`_visit_new` (`id`, `page`, `hits`, `price`)
    SELECT `id`, `page`, `hits`, `price` FROM `shop`.`visit` LOCK IN SHARE MODE;
DO SLEEP(0.5);
RENAME TABLE `shop`.`visit` TO `shop`.`_visit_old`, `shop`.`_visit_new` TO `shop`.`visit`;
DROP TABLE IF EXISTS `shop`.`_visit_old`;
DROP TRIGGER IF EXISTS `shop`.`pt_osc_shop_visit_del`;
DROP TRIGGER IF EXISTS `shop`.`pt_osc_shop_visit_upd`;
DROP TRIGGER IF EXISTS `shop`.`pt_osc_shop_visit_ins`;
SQL
for tool in gh-ost pt-online-schema-change; do
    printf '#!/bin/sh\nexec mysql --defaults-extra-file="%s" <"%s"\n' "$WORK/source.cnf" "$WORK/$tool.sql" >"$WORK/bin/$tool"
    chmod +x "$WORK/bin/$tool"
done
has_column() { [[ $(on target <<<"SHOW COLUMNS FROM shop.visit LIKE '$1'") ]]; }

guide online-ddl.md gh-ost
until_true 'the target has the new column' has_column price
guide online-ddl.md pt-online-schema-change
until_true 'the target has the new column' has_column colour
csa-daemon wait --timeout "$PATIENCE" "$(on source <<<"SELECT REPLACE(@@GLOBAL.gtid_executed, '\n', '')")"

# A rule for the table alone: the channel stops at the swap.
on source <<<'ALTER TABLE shop.visit DROP COLUMN price, DROP COLUMN colour'
csa-daemon wait --timeout "$PATIENCE" "$(on source <<<"SELECT REPLACE(@@GLOBAL.gtid_executed, '\n', '')")"
cp "$CSA_DAEMON_CONFIG" "$WORK/without-filters"
printf '[channel.applier]\nreplicate_do_table = ["shop.item", "shop.sale", "shop.digit", "shop.visit"]\n' |
    perl "$ROOT/tests/provisioning/add-keys" "$CSA_DAEMON_CONFIG"
csa-daemon reload --restart
until_true 'the channel runs' csa-daemon status
gh-ost
has_failed() { [[ $(csa-daemon status --json) == *'"state":"failed"'* ]]; }
until_true 'the channel stops at the swap' has_failed
GTID=$({ csa-daemon status --json || true; } | sed 's/.*"last_error":{[^{}]*"transaction":"\([^"]*\)".*/\1/')
export GTID
guide online-ddl.md 'A channel that stopped at the swap'
until_true 'the channel runs again' csa-daemon status
has_column price || die 'the column is missing'
# The tool's last statements drop helpers that these rules never created.
csa-daemon wait --timeout "$PATIENCE" "$(on source <<<"SELECT REPLACE(@@GLOBAL.gtid_executed, '\n', '')")"

# With the helpers in the rules it passes.
cp "$WORK/without-filters" "$CSA_DAEMON_CONFIG"
guide online-ddl.md Filters
until_true 'the channel runs' csa-daemon status
on source <<<'ALTER TABLE shop.visit DROP COLUMN price'
gh-ost
stop_load
wait_level
compare

# --- exit codes -----------------------------------------------------------------------------------------
# ends CODE COMMAND…: the command ends with this code.
ends() {
    local wanted=$1 code=0
    shift
    "$@" >"$WORK/ends.log" 2>&1 || code=$?
    [[ $code == "$wanted" ]] || die "$* ended with $code instead of $wanted: $(<"$WORK/ends.log")"
}
NOT_THERE=3e11fa47-71ca-11e1-9e33-c80aa9429562:1
for command in status check 'check --connect' verify reload fleet 'relay ls' 'pause --all' 'resume --all'; do
    # shellcheck disable=SC2086 # words of a command
    ends 0 csa-daemon $command
done
for command in "wait --timeout 0.1 $NOT_THERE" "skip $NOT_THERE" drain 'copy --plan' 'adopt --from other'; do
    # shellcheck disable=SC2086
    ends 1 csa-daemon $command
done
for command in 'status --channel nope' 'pause --channel nope*' 'wait nonsense' 'set nothing 5' 'set worker_count 0' \
    'until --before-time yesterday' 'adopt --from shop' "verify --repair $WORK/nowhere/x" 'check --bogus' run; do
    # shellcheck disable=SC2086
    ends 2 csa-daemon $command
done
on target <<<'SET sql_log_bin = 0; UPDATE shop.digit SET d = 10 WHERE d = 9'
ends 1 csa-daemon verify
on target <<<'SET sql_log_bin = 0; UPDATE shop.digit SET d = 9 WHERE d = 10'
ends 0 csa-daemon stop
ends 1 csa-daemon stop
ends 1 csa-daemon resume
ends 1 csa-daemon status
echo 'nonsense' >>"$CSA_DAEMON_CONFIG"
ends 2 csa-daemon reload
ends 2 csa-daemon check
sed -i '$d' "$CSA_DAEMON_CONFIG"
systemctl stop csa-daemon
ends 1 csa-daemon status
