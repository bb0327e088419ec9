# Two sandbox servers, a write load on the source, the guides' own commands run exactly as written,
# and the comparison at the end. To be sourced; the caller has set -euo pipefail.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
SANDBOX=$ROOT/tests/sandbox/mysql-sandbox
DAEMON=${CSA_DAEMON_BIN:-$ROOT/target/debug/csa-daemon}
# How long the target may take to catch up, in seconds.
PATIENCE=${CSA_PATIENCE:-120}
export CSA_SANDBOX_OWNER=${CSA_SANDBOX_OWNER:-$$}

WORK=$(mktemp -d "${TMPDIR:-/tmp}/csa-guide.XXXXXX")
SERVERS=()
LOADS=()
# Commands of guides that stay in the foreground, each with a process group of its own.
STAYING=()
# Other programs of a script.
HELPERS=()
SECONDS=0

say() { printf '%4d s  %s\n' "$SECONDS" "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

clean_up() {
    local outcome=$? pid
    trap - EXIT
    rm -f "$WORK/load"
    for pid in "${LOADS[@]}" "${STAYING[@]/#/-}" "${HELPERS[@]}" $(cat "$WORK"/*/daemon.pid 2>/dev/null); do
        kill -- "$pid" 2>/dev/null || true
        wait "${pid#-}" 2>/dev/null || true
    done
    if ((outcome)); then
        tail -v -n 30 "$WORK"/*/daemon.log >&2 2>/dev/null || true
    fi
    ((${#SERVERS[@]} == 0)) || "$SANDBOX" destroy "${SERVERS[@]}"
    # Whatever a script may have mounted below it stays as it is.
    rm -rf --one-file-system "$WORK"
    exit "$outcome"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

[[ -x $DAEMON ]] || die "$DAEMON is missing: cargo build -p csa-daemon, or set CSA_DAEMON_BIN"

# take_port NAME: sets the variable to a port that no other script takes while this one runs: each holds the
# locks of its ports, which end with it.
take_port() {
    local port lock locks=${TMPDIR:-/tmp}/csa-guide-ports
    mkdir -p "$locks"
    for _ in {1..1000}; do
        port=$((30000 + SRANDOM % 2000))
        exec {lock}>"$locks/$port"
        if flock --nonblock "$lock" && ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            printf -v "$1" '%s' "$port"
            return
        fi
        exec {lock}>&-
    done
    die 'found no free port'
}

# The folder in which the package puts grants-*.sql and minimal.toml.
EXAMPLES=$ROOT/config

# --- servers --------------------------------------------------------------------------------------

# start_server ROLE [--version VERSION | --mariadb] [OPTION…]: sets PORT_ROLE; removes the accounts that the
# guides create. CSA_SERVER_OPTIONS has options for all servers.
start_server() {
    local role=$1 name=$1-${0##*/}-$$ port kind=()
    shift
    case ${1:-} in
        --version) kind=("$1" "$2") && shift 2 ;;
        --mariadb) kind=("$1") && shift ;;
    esac
    SERVERS+=("$name")
    # shellcheck disable=SC2086 # one word per option
    port=$("$SANDBOX" start "$name" "${kind[@]}" -- ${CSA_SERVER_OPTIONS:-} --loose-binlog-row-image=FULL "$@" |
        sed -n 's/^PORT=//p')
    printf -v "PORT_${role^^}" '%s' "$port"
    export "PORT_${role^^}"
    printf -v "NAME_${role^^}" '%s' "$name"
    printf '[client]\nhost=127.0.0.1\nport=%s\nuser=admin\npassword=admin_pw\n' "$port" >"$WORK/$role.cnf"
    on "$role" <<<"SET SESSION sql_log_bin = 0; DROP USER repl@'%', csa@'%'"
}

# on ROLE [ARG…]: runs the client as root; errors end the script. MySQL 5.7 does not know the collation
# that a newer client asks for, and takes its own default instead.
on() {
    local name=NAME_${1^^} role=$1
    shift
    # The sandbox has no client of MariaDB's own.
    if [[ $role == mariadb ]]; then
        mysql --defaults-extra-file="$WORK/$role.cnf" --batch --skip-column-names "$@"
        return
    fi
    "$SANDBOX" mysql "${!name}" --batch --skip-column-names --init-command='SET NAMES utf8mb4' "$@"
}

# --- hosts of daemons -----------------------------------------------------------------------------

# on_host NAME: what follows happens on this host: a folder in place of /etc and /var, and ADMIN_NAME in place
# of port 9104.
on_host() {
    local admin=ADMIN_${1^^}
    [[ -n ${!admin:-} ]] || take_port "$admin"
    export CSA_GUIDE_HOST=$WORK/$1 CSA_DAEMON_CONFIG=$WORK/$1/etc/csa-daemon.toml ADMIN=${!admin} "$admin"
    mkdir -p "$CSA_GUIDE_HOST"/{etc,state}
}

# Programs under the names that the guides use. systemctl does the unit's work.
make_programs() {
    local program
    mkdir -p "$WORK/bin"
    for program in mysql mysqldump; do
        printf '#!/bin/sh\nexec "%s" client %s "$@"\n' "$SANDBOX" "$program" >"$WORK/bin/$program"
    done
    # Packages make the group. Here one user writes and reads all files.
    printf '#!/bin/sh\n[ "$1" = csa-daemon ] || exec "%s" "$@"\nshift\nexec ls -- "$@" >/dev/null\n' "$(type -P chgrp)" \
        >"$WORK/bin/chgrp"
    ln -s "$DAEMON" "$WORK/bin/csa-daemon"
    ln -s "$ROOT/tests/provisioning/systemctl" "$WORK/bin/systemctl"
    chmod +x "$WORK"/bin/*
    export PATH=$WORK/bin:$PATH
}
make_programs
on_host localhost

# --- the guides -----------------------------------------------------------------------------------

# Replaces the guides' names and paths by those of this run: the host first, then the port after it. A host
# that this run does not have stays as it is.
localize() {
    EXAMPLES=$EXAMPLES perl -0pe '
        sub port {
            my ($host, $port) = @_;
            my %kind = (3306 => "PORT", 9104 => "ADMIN", 2379 => "PORT");
            return $ENV{$kind{$port} . "_" . uc $host};
        }
        s{([\w-]+)(\.example\.com)(.{0,24}?)\b(3306|9104|2379)\b}
            { my $new = port($1, $4); $new ? "127.0.0.1$3$new" : "$1$2$3$4" }gse;
        s/127\.0\.0\.1:9104/127.0.0.1:$ENV{ADMIN}/g;
        s/127\.0\.0\.1:9105/127.0.0.1:$ENV{ADMIN_DB9}/g;
        s/admin-9104/admin-$ENV{ADMIN}/g;
        s{/etc/csa-daemon}{$ENV{CSA_GUIDE_HOST}/etc}g;
        s{/var/lib/csa-daemon}{$ENV{CSA_GUIDE_HOST}/state}g;
        s{/usr/share/doc/csa-daemon/examples}{$ENV{EXAMPLES}}g;
    '
}

# guide FILE SECTION [NUMBER]: runs the fenced blocks of a section in order, or this one. The first word after
# the fence is the language:
#   sh [exit=CODE]          runs, in $WORK or where IN says; `sh stays` stays in the foreground
#   sql on=ROLE             runs on this server; then=restart expects that the server ends
#   toml file=NAME          is the whole file
#   toml into=NAME          adds its keys to the sections of the file
# A block of another kind stands for output, and tests/e2e/deployments/guides.rs has to name it.
guide() {
    local document=docs/$1 section=$2 only=${3:-} number=0 count=0 block info text
    # docs/README.md has no blocks.
    [[ $1 != README.md && -f $ROOT/$document ]] || document=$1
    rm -f "$WORK"/block.*
    awk -v section="## $section" -v directory="$WORK" '
        !fenced && /^## / { inside = ($0 == section) }
        /^```/ {
            if (fenced) { fenced = 0; if (inside) close(name); next }
            fenced = 1
            if (inside) { name = sprintf("%s/block.%02d", directory, ++n); print substr($0, 4) >name }
            next
        }
        fenced && inside { print >name }
    ' "$ROOT/$document"
    for block in "$WORK"/block.*; do
        [[ -f $block ]] || die "$document has no commands in a section \"$section\""
        number=$((number + 1))
        [[ -z $only || $only == "$number" ]] || continue
        info=$(head -n 1 "$block")
        text=$(tail -n +2 "$block" | localize)
        [[ $info != text ]] || continue
        count=$((count + 1))
        run_block "$info" "$text" || die "$document, \"$section\", block $number ($info) failed: $text"
    done
    ((count)) || die "$document has no commands in block ${only:-1} of the section \"$section\""
    say "$document, \"$section\"${only:+, block $only}: $count run"
}

run_block() {
    local info=$1 text=$2 role file outcome=0
    case $info in
        "sql on="*)
            role=${info#sql on=}
            on "${role%% *}" <<<"$text" || [[ $info == *then=restart* ]] || return 1
            if [[ $info == *then=restart* ]]; then wait_for_restart "${role%% *}"; fi
            ;;
        sh | "sh exit="*)
            (cd "${IN:-$WORK}" && bash -euo pipefail -c "$text") || outcome=$?
            [[ $info != sh ]] || info='sh exit=0'
            [[ $info == "sh exit=$outcome" ]]
            ;;
        'sh stays')
            (cd "${IN:-$WORK}" && exec setsid bash -euo pipefail -c "$text" \
                >"$WORK/staying.$((${#STAYING[@]} + 1)).log" 2>&1 </dev/null) &
            STAYING+=($!)
            ;;
        "toml file="*)
            file=$(localize <<<"${info#toml file=}")
            mkdir -p "${file%/*}"
            if [[ $file == "$CSA_DAEMON_CONFIG" ]]; then text=$(local_daemon)$'\n'$text; fi
            echo "$text" >"$file"
            ;;
        "toml into="*)
            file=$(localize <<<"${info#toml into=}")
            echo "$text" | perl "$ROOT/tests/provisioning/add-keys" "$file"
            ;;
        *) die "a block that nobody runs: $info" ;;
    esac
}

# The section of a main file that lets several daemons run on one machine.
local_daemon() {
    printf '[daemon]\nstate_dir = "%s"\nadmin_listen = "127.0.0.1:%s"\n' "$CSA_GUIDE_HOST/state" "$ADMIN"
}

# Ends the commands that stay in the foreground, the last first.
end_staying() {
    local number pid
    for ((number = ${#STAYING[@]}; number > 0; number--)); do
        pid=${STAYING[number - 1]}
        kill -0 "$pid" 2>/dev/null || die "it ended on its own: $(tail -n 5 "$WORK/staying.$number.log")"
        kill -- "-$pid"
        while kill -0 -- "-$pid" 2>/dev/null; do sleep 0.1; done
    done
    STAYING=()
}

# until_true WORDS COMMAND…: waits until the command succeeds.
until_true() {
    local what=$1 deadline=$((SECONDS + PATIENCE))
    shift
    until "$@" >"$WORK/until.log" 2>&1; do
        ((SECONDS < deadline)) || die "$what: not after $PATIENCE s: $(<"$WORK/until.log")"
        sleep 0.2
    done
}

# The sandbox has no supervisor: the server ends where the guide says that it restarts.
wait_for_restart() {
    local name=NAME_${1^^} deadline=$((SECONDS + PATIENCE))
    while [[ $("$SANDBOX" status "${!name}") =~ PID=[0-9] ]]; do
        ((SECONDS < deadline)) || die "the $1 did not end on its own"
        sleep 0.2
    done
    "$SANDBOX" restart "${!name}" >/dev/null
}

# --- load and comparison --------------------------------------------------------------------------

# Tables of every type.
fill_types() {
    { echo 'DELIMITER $$'; sed 's|^/$|$$|' "$ROOT/tests/fixtures/everything.sql"; echo '$$'; } |
        on source --default-character-set=utf8mb4
}

# The server that the applications write to.
IN_USE=source

# The tables that the load writes to, in SQL that every version knows.
fill_shop() {
    on "$IN_USE" <<'SQL'
CREATE DATABASE shop;
CREATE TABLE shop.item (id INT PRIMARY KEY, stock INT NOT NULL, name VARCHAR(40) NOT NULL, UNIQUE KEY (name));
CREATE TABLE shop.sale (id BIGINT AUTO_INCREMENT PRIMARY KEY, item INT NOT NULL, amount INT NOT NULL,
    at TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6), FOREIGN KEY (item) REFERENCES shop.item (id));
CREATE TABLE shop.digit (d INT PRIMARY KEY);
INSERT INTO shop.digit VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);
INSERT INTO shop.item SELECT 1 + a.d + 10 * b.d + 100 * c.d, 1000, CONCAT('item ', 1 + a.d + 10 * b.d + 100 * c.d)
    FROM shop.digit a, shop.digit b, shop.digit c WHERE c.d < 2;
SQL
}

# Waits for the seconds without a process.
pause() {
    [[ -n ${NEVER_READY:-} ]] || exec {NEVER_READY}<> <(:)
    read -r -t "$1" -u "$NEVER_READY" || true
}

# Two clients, each with a stream of small transactions, until the file is removed. Together they commit somewhat less than
# 100 a second: as many as possible would take the processors from the guides, and from the tests beside them.
start_load() {
    local client
    touch "$WORK/load"
    for client in 1 2; do
        transactions "$client" | on "$IN_USE" &
        LOADS+=($!)
    done
}

transactions() {
    local item number more
    # Far more than the script needs; every statement waits for the one before.
    for ((number = 0; number < 2000000; number++)); do
        [[ -f $WORK/load ]] || return 0
        item=$((1 + (number * 7919 + $1) % 200)) more=
        ((number % 5)) || more="DELETE FROM shop.sale WHERE item = $item ORDER BY id LIMIT 2;"
        echo "BEGIN; UPDATE shop.item SET stock = stock - 1 WHERE id = $item;" \
            "INSERT INTO shop.sale (item, amount) VALUES ($item, $number); $more COMMIT;"
        pause 0.02
    done
}

# Ends the load, which must have run to the end.
stop_load() {
    local pid
    for pid in "${LOADS[@]}"; do
        kill -0 "$pid" 2>/dev/null || die "the load ended on its own"
    done
    rm "$WORK/load"
    wait "${LOADS[@]}"
    LOADS=()
}

sales() { on "$IN_USE" <<<'SELECT MAX(id) FROM shop.sale'; }

# Waits until the checkpoint of the channel covers all that the source has executed.
wait_level() {
    local wanted deadline=$((SECONDS + PATIENCE))
    wanted=$(on source <<<"SELECT REPLACE(@@GLOBAL.gtid_executed, '\n', '')")
    until [[ $(on target <<<"SELECT MAX(GTID_SUBSET('$wanted', gtid_executed)) FROM csa.checkpoint") == 1 ]]; do
        ((SECONDS < deadline)) || die "the target is not level after $PATIENCE s: $(csa-daemon status)"
        # Fails when the channel does.
        csa-daemon status >/dev/null || die "$(csa-daemon status)"
        sleep 0.2
    done
}

# rows ROLE: the rows of the tables of shop, in a form that does not depend on the server.
rows() {
    local table
    for table in $(on "$1" <<<"SELECT table_name FROM information_schema.tables WHERE table_schema = 'shop'
        AND table_type = 'BASE TABLE' ORDER BY 1"); do
        echo "$table"
        on "$1" <<<"SELECT * FROM shop.$table ORDER BY 1"
    done
}

# All databases except the servers' own, as text. The next AUTO_INCREMENT is no content, and an event
# does not run on a replica.
contents() {
    local databases
    databases=$(on "$1" <<<"SELECT schema_name FROM information_schema.schemata WHERE schema_name NOT IN
        ('mysql', 'sys', 'performance_schema', 'information_schema', 'csa') ORDER BY 1")
    # shellcheck disable=SC2086 # one word for each database
    mysqldump --defaults-extra-file="$WORK/$1.cnf" --skip-comments --order-by-primary --hex-blob \
        --set-gtid-purged=OFF --routines --events --triggers --no-tablespaces --databases $databases |
        sed 's/ AUTO_INCREMENT=[0-9]*//; s/ DISABLE ON REPLICA DO / ENABLE DO /'
}

compare() {
    contents source >"$WORK/source.sql"
    contents target >"$WORK/target.sql"
    grep -q 'INSERT INTO `sale`' "$WORK/source.sql" || die "the source holds nothing to compare"
    diff "$WORK/source.sql" "$WORK/target.sql" >"$WORK/differences" ||
        die "source and target differ: $(head -c 2000 "$WORK/differences")"
    say "source and target are equal ($(wc -c <"$WORK/source.sql") bytes of dump)"
}

# The end of every way: start, keep up with the load, catch up, stop.
finish() {
    local before after
    before=$(sales)
    guide provisioning.md 'After the copy'
    guide operating.md 'First start'
    sleep 2
    stop_load
    after=$(sales)
    ((after > before)) || die "the load wrote nothing while the channel ran"
    wait_level
    compare
    systemctl stop csa-daemon
}
