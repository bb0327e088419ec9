#!/usr/bin/env bash
# Daemons on several hosts, as in docs/standby.md, docs/security.md, docs/monitoring.md and docs/fleet.md: a standby takes
# over, other hosts get access by TLS, one page shows all, and a fleet shares the channel through etcd.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

for host in db9 db8 db7; do on_host "$host"; done
start_server source
start_server target
fill_shop
guide provisioning.md 'Complete binary logs'
start_load

# copy_host FROM TO: the files of /etc on another host; continues there.
copy_host() {
    local admin=ADMIN_${1^^}
    on_host "$2"
    cp -r "$WORK/$1/etc" "$CSA_GUIDE_HOST"
    sed -i "s#$WORK/$1/#$WORK/$2/#; s/:${!admin}/:$ADMIN/" "$CSA_DAEMON_CONFIG"
}
runs_here() { csa-daemon status --json | grep -q '"state":"running"'; }
stands_by() { csa-daemon status --json | grep -q '"state":"standby"'; }
# certificate NAME: one that vouches for itself.
certificate() {
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=$1" -addext 'subjectAltName=IP:127.0.0.1' \
        -addext 'basicConstraints=critical,CA:FALSE' -keyout "$WORK/$1-key.pem" -out "$WORK/$1.pem" 2>"$WORK/openssl.log" ||
        die "$(<"$WORK/openssl.log")"
}

# --- a standby ------------------------------------------------------------------------------------------
guide operating.md 'First start'
guide standby.md 'Set up'
until_true 'the channel runs' runs_here
for host in db8 db9; do
    copy_host db7 "$host"
    systemctl start csa-daemon
    stands_by || die "$host does not stand by: $(csa-daemon status)"
done
on_host db7
kill -9 "$(<"$CSA_GUIDE_HOST/daemon.pid")"
rm "$CSA_GUIDE_HOST/daemon.pid"
one_took_over() {
    local host
    for host in db8 db9; do
        on_host "$host"
        if runs_here; then return; fi
    done
    return 1
}
until_true 'another host takes over' one_took_over
on_host db7
systemctl start csa-daemon
stands_by || die "the one that came back does not stand by: $(csa-daemon status)"

# --- access from other hosts, by TLS ----------------------------------------------------------------------
certificate admin
certificate stranger
on_host db8
for name in cert ca; do cp "$WORK/admin.pem" "$CSA_GUIDE_HOST/etc/admin-$name.pem"; done
install -m 600 "$WORK/admin-key.pem" "$CSA_GUIDE_HOST/etc/admin-key.pem"
guide security.md 'Access from other hosts'

# --- all on one page --------------------------------------------------------------------------------------
on_host db9
cp -p "$WORK"/db8/etc/{admin,read}.token "$CSA_GUIDE_HOST/etc"
systemctl stop csa-daemon
printf '[daemon]\nadmin_token_file = "%s"\nadmin_read_token_file = "%s"\n' "$CSA_GUIDE_HOST"/etc/{admin,read}.token |
    "$ROOT/tests/provisioning/add-keys" "$CSA_DAEMON_CONFIG"
systemctl start csa-daemon
on_host db7
cp -p "$WORK"/db8/etc/{read.token,admin-ca.pem} "$CSA_GUIDE_HOST/etc"
guide monitoring.md 'Several daemons on one page' >"$WORK/peers.log" || die "$(<"$WORK/peers.log")"
for peer in "https://127.0.0.1:$ADMIN_DB8" "http://127.0.0.1:$ADMIN_DB9"; do
    grep -q "$peer" "$WORK/peers.log" || die "$peer is missing: $(<"$WORK/peers.log")"
done
# A peer whose certificate nobody vouches for gets no token, and shows nothing.
printf '[daemon]\nadmin_peers_ca = "%s"\n' "$WORK/stranger.pem" | "$ROOT/tests/provisioning/add-keys" "$CSA_DAEMON_CONFIG"
csa-daemon reload
if csa-daemon status --peers >"$WORK/peers.log" 2>&1; then die "a stranger is believed: $(<"$WORK/peers.log")"; fi
grep -qi "https://127.0.0.1:$ADMIN_DB8: NO ANSWER: .*certificate" "$WORK/peers.log" || die "$(<"$WORK/peers.log")"

# --- a fleet ----------------------------------------------------------------------------------------------
for host in db9 db8 db7; do
    on_host "$host"
    systemctl stop csa-daemon
done
certificate etcd
ln -s "$("$ROOT/tests/sandbox/debian-tool" etcdctl)" "$WORK/bin/etcdctl"
urls=
for number in 1 2 3; do
    take_port "PORT_ETCD$number"
    export "PORT_ETCD$number"
    port=PORT_ETCD$number
    urls+=,https://127.0.0.1:${!port}
done
take_port PORT_PEER
peer=http://127.0.0.1:$PORT_PEER
"$("$ROOT/tests/sandbox/debian-tool" etcd)" --data-dir="$WORK/etcd" --listen-client-urls="${urls#,}" \
    --advertise-client-urls="${urls#,}" --cert-file="$WORK/etcd.pem" --key-file="$WORK/etcd-key.pem" \
    --listen-peer-urls="$peer" --initial-advertise-peer-urls="$peer" --initial-cluster="default=$peer" \
    >"$WORK/etcd.log" 2>&1 </dev/null &
HELPERS+=($!)
export ETCDCTL_API=3 ETCDCTL_ENDPOINTS=${urls#,} ETCDCTL_CACERT=$WORK/etcd.pem
until_true 'etcd serves' etcdctl endpoint health
etcdctl user add root:secret >/dev/null
etcdctl user grant-role root root >/dev/null
etcdctl auth enable >/dev/null
export ETCDCTL_USER=root:secret

(umask 077 && echo 'change me' >"$CSA_GUIDE_HOST/etc/etcd.pw")
cp "$WORK/etcd.pem" "$CSA_GUIDE_HOST/etc/etcd-ca.pem"
guide fleet.md 'Set up' 1
guide fleet.md 'Set up' 2
# Only the name differs.
rm -r "$WORK/db8/etc"
copy_host db7 db8
sed -i 's/^name = "db7"/name = "db8"/; /^admin_peers/d' "$CSA_DAEMON_CONFIG"
for host in db8 db7; do
    on_host "$host"
    guide fleet.md 'Set up' 3
done
is_claimed() { csa-daemon fleet | grep -q '^shop  *db[78]'; }
until_true 'the channel is claimed' is_claimed
guide fleet.md 'Commands'
on_host db8
until_true 'the other host has the channel' runs_here
on_host db7
# Commands for all leave the channels of others alone.
csa-daemon pause --all >"$WORK/paused.log" || die "$(<"$WORK/paused.log")"
grep -q 'shop *elsewhere: daemon db8 has it' "$WORK/paused.log" || die "$(<"$WORK/paused.log")"
stop_load
wait_level
compare
for host in db7 db8; do
    on_host "$host"
    systemctl stop csa-daemon
done
