#!/usr/bin/env bash
# An upgrade from MySQL 5.7 to the newest, and back, as in docs/upgrade.md: under load, with the daemon
# and both servers killed in each phase.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

start_server old --version 5.7
start_server new --loose-persisted-globals-load=ON
# This build of 5.7 has no TLS that is still in use.
echo 'ssl-mode=DISABLED' >>"$WORK/old.cnf"
IN_USE=old
fill_shop
on old <<'SQL'
CREATE TABLE shop.kind (id INT AUTO_INCREMENT PRIMARY KEY, a TINYINT UNSIGNED, b BIGINT, c DECIMAL(12,4), d DOUBLE,
    e VARCHAR(40) CHARACTER SET utf8, f CHAR(9) CHARACTER SET latin1, g MEDIUMBLOB, h DATE, i TIME(3), j DATETIME(6),
    k YEAR, l ENUM('x','y'), m SET('p','q'), n JSON, o BIT(9)) CHARSET = utf8mb4;
INSERT INTO shop.kind VALUES (NULL, 255, -9e18, 1.5, 1e300, 'größe', 'é', 0x00FF27, '2024-02-29', '-838:59:58.125',
    '2024-02-29 23:59:59.999999', 2155, 'y', 'p,q', '{"a": [1, 2.5, null]}', b'101010101');
INSERT INTO shop.kind (e) SELECT REPEAT('text ', 7) FROM shop.digit a, shop.digit b, shop.digit c, shop.digit d;
CREATE VIEW shop.sold AS SELECT item, SUM(amount) AS amount FROM shop.sale GROUP BY item;
CREATE FUNCTION shop.twice (a INT) RETURNS INT DETERMINISTIC RETURN 2 * a;
SQL

# crash WHAT: kill -9, and start again.
crash() {
    local name=NAME_${1^^} daemon
    if [[ $1 == daemon ]]; then
        daemon=$(<"$CSA_GUIDE_HOST/daemon.pid")
        rm "$CSA_GUIDE_HOST/daemon.pid"
        kill -9 "$daemon"
        # The channels may have to wait for a server, or for a fence.
        timeout 10 systemctl start csa-daemon || true
    else
        "$SANDBOX" kill "${!name}"
        "$SANDBOX" restart "${!name}" >/dev/null
    fi
    say "$1 killed and started again"
}

# Kills all three, one after the other, while the load runs.
crash_all() {
    local what
    for what in daemon old new; do
        crash "$what"
        sleep 1
    done
}

# The load writes to the server in use; a server that is killed ends it.
write_for() {
    local before after
    before=$(sales)
    start_load
    sleep "$1"
    stop_load
    after=$(sales)
    ((after > before)) || die "the load wrote nothing"
}

running() {
    local deadline=$((SECONDS + PATIENCE))
    until csa-daemon status >/dev/null; do
        ((SECONDS < deadline)) || die "not all channels run: $(csa-daemon status)"
        sleep 0.5
    done
}

# level FROM CHANNEL: waits until the channel has applied everything.
level() {
    csa-daemon wait --channel "$2" --timeout "$PATIENCE" \
        "$(on "$1" --raw <<<'SELECT @@GLOBAL.gtid_executed')" || die "$2 is not level: $(csa-daemon status)"
}

# Rows of all tables, in a form that does not depend on the version.
rows() {
    mysqldump --defaults-extra-file="$WORK/$1.cnf" --init-command='SET NAMES utf8mb4' --skip-comments --no-create-db \
        --no-create-info --skip-triggers \
        --skip-extended-insert --order-by-primary --hex-blob --set-gtid-purged=OFF --no-tablespaces --databases shop |
        grep '^INSERT'
}

compare_rows() {
    rows old >"$WORK/old.sql"
    rows new >"$WORK/new.sql"
    grep -q 'INSERT INTO `sale`' "$WORK/old.sql" || die "there is nothing to compare"
    diff "$WORK/old.sql" "$WORK/new.sql" >"$WORK/differences" ||
        die "$1: the servers differ: $(head -c 2000 "$WORK/differences")"
    say "$1: source and target are equal ($(wc -c <"$WORK/old.sql") bytes of rows)"
}

# Neither server commits anything while nobody writes.
silent() {
    local before after
    sleep 2
    before=$(on old <<<'SELECT @@GLOBAL.gtid_executed')$(on new <<<'SELECT @@GLOBAL.gtid_executed')
    sleep 2
    after=$(on old <<<'SELECT @@GLOBAL.gtid_executed')$(on new <<<'SELECT @@GLOBAL.gtid_executed')
    [[ $before == "$after" ]] || die "the channels keep each other busy: $(csa-daemon status)"
}

# Each of these may end with an undo, and is repeated.
cut_over() {
    (guide upgrade.md 'Cut over')
}

way_back() {
    (guide upgrade.md 'Way back')
}

say "old server on port $PORT_OLD, new server on port $PORT_NEW"
guide upgrade.md 'Accounts'

# --- copy: the new server dies in the middle ---------------------------------------------------------
start_load
(guide upgrade.md 'Copy' || true) >"$WORK/first-copy.log" 2>&1 &
copying=$!
until [[ -s $WORK/copy.sql ]]; do sleep 0.05; done
crash new
wait "$copying" || true
guide upgrade.md 'Copy again'
guide upgrade.md 'Copy'

# --- follow ------------------------------------------------------------------------------------------
guide upgrade.md 'Follow'
crash daemon
crash new
sleep 1
stop_load
crash old
write_for 3
on old <<<'ALTER TABLE shop.kind ADD COLUMN added INT; UPDATE shop.kind SET added = id WHERE id < 100'
running
level old up
level new down
compare_rows follow
silent

# --- prepare: it is cut off, and repeated -------------------------------------------------------------
guide upgrade.md 'Prepare' 1
csa-daemon --channel up move --prepare >"$WORK/prepare.log" 2>&1 &
preparing=$!
crash new
crash daemon
wait "$preparing" || true
running
start_load
guide upgrade.md 'Prepare'
stop_load
crash old
running

# --- cut over: it is killed with everything else --------------------------------------------------------
write_for 2
CSA_MOVE_KILL=wait:before csa-daemon --channel up move --cut-over || true
crash daemon
crash new
# 5.7 forgets its fence.
crash old
before=$(on old <<<'SELECT COUNT(*) FROM shop.sale')
until_true 'the cut over' cut_over
[[ $(<"$CSA_GUIDE_HOST/etc/server-in-use") == 127.0.0.1:$PORT_NEW ]] || die 'the applications were not handed over'
on old <<<'SELECT @@GLOBAL.read_only' | grep -q 1 || die 'the old server takes writes'
running
guide upgrade.md 'After the cut over'
compare_rows 'cut over'
IN_USE=new
write_for 3
crash_all
on old <<<'SET GLOBAL read_only = ON'
on new <<<'ALTER TABLE shop.kind ADD COLUMN more VARCHAR(9); CREATE TABLE shop.later (id INT PRIMARY KEY, t TEXT);
    INSERT INTO shop.later VALUES (1, "later"); DELETE FROM shop.kind WHERE id BETWEEN 200 AND 300'
write_for 3
running
level new down
level old up
compare_rows 'after the cut over'
silent

# --- way back ----------------------------------------------------------------------------------------
CSA_MOVE_KILL=open:before csa-daemon --channel up move --back || true
crash_all
until_true 'the way back' way_back
[[ $(<"$CSA_GUIDE_HOST/etc/server-in-use") == 127.0.0.1:$PORT_OLD ]] || die 'the applications were not handed back'
running
IN_USE=old
write_for 3
(($(on old <<<'SELECT COUNT(*) FROM shop.sale') > before)) || die 'nothing was written after the cut over'
level old up
level new down
compare_rows 'way back'
silent

# --- the end -----------------------------------------------------------------------------------------
until_true 'the second cut over' cut_over
guide upgrade.md 'The end'
systemctl stop csa-daemon
