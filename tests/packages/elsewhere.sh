#!/usr/bin/env bash
# elsewhere.sh SUITE PACKAGE: tries a Debian or RPM package in the root file system of a Debian release (bullseye, trixie),
# or in a copy of the root in the folder SUITE. It installs the package there, runs its daemon as its user, and measures the
# time to the first replicated row. It needs root, debootstrap and a package server; it is a part of a release, not of the
# tests.
set -euo pipefail
SUITE=$1 PACKAGE=$(realpath "$2")
. "$(dirname "$0")/../provisioning/lib.sh"

STAGE=$WORK/root
# Nothing of this machine is mounted there: what the script leaves is removed with the folder. Installations see a /proc of
# their own, which ends with them.
with_proc() {
    unshare --mount --propagation private bash -c 'mount -t proc proc "$1/proc" && exec chroot "$@"' bash "$STAGE" \
        /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}
inside() { chroot "$STAGE" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

if [[ -d $SUITE ]]; then
    cp -a "$SUITE" "$STAGE"
else
    debootstrap --variant=minbase "$SUITE" "$STAGE" >"$WORK/debootstrap.log" 2>&1 || die "$(tail -n 5 "$WORK/debootstrap.log")"
fi
echo '127.0.0.1 localhost' >"$STAGE/etc/hosts"
say "$(sed -n 's/^PRETTY_NAME=//p' "$STAGE/etc/os-release"), $(inside ldd --version | sed 1q)"

start_server source
start_server target
fill_shop
guide provisioning.md 'Complete binary logs'
on source <<<"SET SESSION sql_log_bin = 0; GRANT SELECT, REPLICATION CLIENT, SHOW VIEW, TRIGGER, EVENT ON *.* TO 'repl'@'%'"

began=$SECONDS
case $PACKAGE in
    *.deb)
        cp "$PACKAGE" "$STAGE/tmp/"
        with_proc DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "/tmp/${PACKAGE##*/}" \
            >"$WORK/install.log" 2>&1 || die "$(tail -n 20 "$WORK/install.log")"
        ;;
    # Its dependencies are the root's, of which RPM's database knows nothing.
    *.rpm) "$("$ROOT/tests/sandbox/debian-tool" rpm)" --force-debian --root "$STAGE" --nodeps --install "$PACKAGE" ;;
esac
say "installed: $(inside csa-daemon --version)"
AS_DAEMON=(chroot "--userspec=$(inside id -u csa-daemon):$(inside id -g csa-daemon)" --groups= "$STAGE" /usr/bin/env -i)
rm -f "$STAGE"/etc/csa-daemon/csa-daemon.toml
for password in source target; do
    echo 'change me' >"$STAGE/etc/csa-daemon/$password.pw"
    inside chgrp csa-daemon "/etc/csa-daemon/$password.pw"
    chmod 640 "$STAGE/etc/csa-daemon/$password.pw"
done
{ printf '[daemon]\nadmin_listen = "127.0.0.1:%s"\n' "$ADMIN"; cat "$STAGE/usr/share/doc/csa-daemon/examples/minimal.toml"; } |
    sed "s/= 3306/= $PORT_SOURCE/; s/= 3307/= $PORT_TARGET/" >"$STAGE/etc/csa-daemon/csa-daemon.toml"
inside install -d -o csa-daemon -g csa-daemon -m 700 /var/lib/csa-daemon
setsid "${AS_DAEMON[@]}" /usr/bin/csa-daemon run >"$CSA_GUIDE_HOST/daemon.log" 2>&1 &
HELPERS+=($!)
csa-daemon() { "${AS_DAEMON[@]}" /usr/bin/csa-daemon "$@"; }
until_true 'the channel runs' csa-daemon status
on source <<<'INSERT INTO shop.item VALUES (1000, 1, "after the package")'
has_row() { [[ $(on target <<<'SELECT COUNT(*) FROM shop.item WHERE id = 1000' 2>&1) == 1 ]]; }
until_true "the first row is replicated" has_row
say "from ${PACKAGE##*/} to the first replicated row: $((SECONDS - began)) s"
on source <<<'INSERT INTO shop.sale (item, amount) VALUES (1, 1)'
wait_level
compare
csa-daemon status
