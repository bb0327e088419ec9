#!/usr/bin/env bash
# The demonstration of README.md, with the programs under test and a short load: what it prints, what it leaves with
# --keep, and that Ctrl-C ends everything. Without a network, its error names the cause.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
# Its servers are where those of whoever tries it are: the commands that it prints depend on it.
unset CSA_SANDBOX_DIR CSA_SERVER_OPTIONS

# The demo's own build takes minutes.
cat >"$WORK/bin/cargo" <<TEXT
#!/bin/sh
[ "\$*" = "build --profile demo -p csa-daemon -p csa-bench" ] && grep -q '^\[profile.demo\]' Cargo.toml
TEXT
chmod +x "$WORK/bin/cargo"
BENCH=${DAEMON%/*}/csa-bench
[[ -x $BENCH ]] || die "csa-bench is missing: cargo build --workspace --bins"
export DEMO=${DAEMON%/*}
SHORT='--seconds 1 --burst-seconds 2 --burst-rate 2000 --rows 1000 --rate 100'

# shown LOG PATTERN: the first line that matches.
shown() { grep -m 1 -E "$2" "$1" || die "no line matches \"$2\": $(<"$1")"; }

# --- as in README.md --------------------------------------------------------------------------------

DEMO_OPTIONS=$SHORT IN=$ROOT guide README.md 'Try it' 1 >"$WORK/demo.log" 2>&1 || die "$(<"$WORK/demo.log")"
first=$(grep -A 1 'csa-bench demo' "$WORK/demo.log" | tail -n 1)
[[ $first =~ ^'status page: http://127.0.0.1:'[0-9]+/$ ]] || die "the demo does not begin with its page: $first"
# Time, phase and rate; then lag and backlog of both.
side='[0-9]+\.[0-9] s +[0-9,]+'
for phase in burst killed; do
    shown "$WORK/demo.log" "^ +[0-9.]+ +$phase +[0-9,]+ +$side (down)? +$side" >/dev/null
done
shown "$WORK/demo.log" '^recovered after [0-9.]+ s: .* the target has all [0-9,]+ transactions' >/dev/null
# make and the guide may add a line each.
[[ $(tail -n 8 "$WORK/demo.log" | grep -cE '^(load|peak lag|drained|killed|EQUAL): ') == 5 ]] ||
    die "the summary is not complete: $(<"$WORK/demo.log")"
shown "$WORK/demo.log" '^peak lag: csa-daemon [0-9.]+ s .*, native replica [0-9.]+ s$' >/dev/null
shown "$WORK/demo.log" '^killed: .* recovered after [0-9.]+ s .*, nothing lost$' >/dev/null
say "$(shown "$WORK/demo.log" '^EQUAL: [1-9]'): source and target are equal"

# --- kept until Ctrl-C ------------------------------------------------------------------------------

# shellcheck disable=SC2086 # words
(cd "$ROOT" && exec "$BENCH" demo $SHORT --keep >"$WORK/keep.log" 2>&1) &
kept=$!
HELPERS+=("$kept")
until grep -q '^kill it ' "$WORK/keep.log"; do
    kill -0 "$kept" 2>/dev/null || die "it ended: $(<"$WORK/keep.log")"
    ((SECONDS < PATIENCE)) || die "it keeps nothing after $PATIENCE s: $(<"$WORK/keep.log")"
    sleep 0.1
done
port=$(sed -n 's|^status page: http://127.0.0.1:\([0-9]*\)/$|\1|p' "$WORK/keep.log")
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'GET / HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nConnection: close\r\n\r\n' "$port" >&3
grep -qi '<title>' <&3 || die "the status page is missing"
exec 3>&-
mapfile -t clients < <(sed -n 's/^ *\(.*mysql-sandbox mysql .*\)/\1/p' "$WORK/keep.log")
((${#clients[@]} == 3)) || die "not three clients: $(<"$WORK/keep.log")"
rows=$(cd "$ROOT" && bash -c "${clients[2]} --batch --skip-column-names" <<<'SELECT COUNT(*) FROM shop.account')
[[ $rows == 100 ]] || die "the native replica's client says \"$rows\""
daemon=$(sed -n 's/^kill it .*kill -9 //p' "$WORK/keep.log")
kill -9 "$daemon"
until_true 'csa-daemon is started again' grep -q 'was started again' "$WORK/keep.log"
folder=$(sed -n 's/^its log *\(.*\)\/csa-daemon.log$/\1/p' "$WORK/keep.log")
[[ -d $folder ]] || die "$folder is missing"
kill -INT "$kept"
outcome=0
wait "$kept" || outcome=$?
((outcome == 130)) || die "Ctrl-C ended it with $outcome: $(<"$WORK/keep.log")"
[[ ! -e $folder ]] || die "$folder is still there"
for client in "${clients[@]}"; do
    ! "$SANDBOX" status "${client##* }" 2>/dev/null || die "${client##* } still runs"
done
(! exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || die "something still answers on port $port"
say 'Ctrl-C ended what --keep left, and removed it'

# --- without a network ------------------------------------------------------------------------------

! make -n -C "$ROOT" demo | grep -i mariadb || die 'the demo fetches MariaDB'
# A server on PATH would be used instead of a download, which needs Debian.
if command -v apt-get >/dev/null && ! PATH="$PATH:/usr/sbin:/usr/local/sbin" command -v mysqld >/dev/null; then
    if CSA_MYSQLD='' CSA_SANDBOX_CACHE=$WORK/cache http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 \
        "$SANDBOX" fetch 2>"$WORK/fetch.log"; then
        die 'it downloaded without a network'
    fi
    shown "$WORK/fetch.log" 'no package server could be reached.*http_proxy.*CSA_MYSQLD=' >/dev/null
    say 'without a network, the error names the cause'
fi
