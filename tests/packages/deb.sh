#!/usr/bin/env bash
# Tests the Debian package: builds it, installs it into a separate root, runs its daemon between two
# servers as the pages of docs say, upgrades and purges it. Without root privileges it only unpacks it.
set -euo pipefail
. "$(dirname "$0")/../provisioning/lib.sh"

STAGE=$WORK/root

is_root() { ((UID == 0)); }

# Runs dpkg on a separate root; scripts learn of it from DPKG_ROOT and run with this system's programs.
stage_dpkg() {
    dpkg --root="$STAGE" --force-script-chrootless --force-depends --force-confold "$@" >"$WORK/dpkg.log" 2>&1 ||
        die "dpkg $*: $(cat "$WORK/dpkg.log")"
}

mode_of() { stat -c '%a' "$STAGE/$1"; }

expect() {
    [[ $2 == "$3" ]] || die "$1 is '$2' instead of '$3'"
}

install_package() {
    if is_root; then
        stage_dpkg -i "$PACKAGE"
    else
        dpkg-deb -x "$PACKAGE" "$STAGE"
    fi
}

check_files() {
    local file
    for file in usr/bin/csa-daemon etc/csa-daemon/csa-daemon.toml usr/share/csa-daemon/csa-daemon.schema.json \
        usr/lib/systemd/system/csa-daemon.service usr/lib/systemd/system/csa-daemon@.service \
        usr/lib/sysusers.d/csa-daemon.conf usr/share/doc/csa-daemon/copyright \
        usr/share/doc/csa-daemon/examples/grants-source.sql \
        usr/share/doc/csa-daemon/examples/grants-target.sql usr/share/doc/csa-daemon/examples/minimal.toml \
        usr/share/man/man8/csa-daemon.8.gz usr/share/man/man5/csa-daemon.toml.5.gz \
        usr/share/bash-completion/completions/csa-daemon usr/share/zsh/vendor-completions/_csa-daemon \
        usr/share/fish/vendor_completions.d/csa-daemon.fish usr/share/doc/csa-daemon/SECURITY.md \
        usr/share/doc/csa-daemon/README.md usr/share/doc/csa-daemon/docs/README.md usr/share/doc/csa-daemon/docs/operating.md \
        usr/share/doc/csa-daemon/docs/openapi.json \
        usr/share/doc/csa-daemon/sbom.cdx.json usr/share/doc/csa-daemon/THIRD-PARTY-LICENSES.txt; do
        [[ -f $STAGE/$file ]] || die "the package has no $file"
    done
    expect 'the schema named in the configuration' "$(sed -n '1s|^#:schema file:///||p' "$STAGE/etc/csa-daemon/csa-daemon.toml")" \
        usr/share/csa-daemon/csa-daemon.schema.json
    expect 'the mode of the configuration' "$(mode_of etc/csa-daemon/csa-daemon.toml)" 640
    expect 'the list of configuration files' "$(dpkg-deb -I "$PACKAGE" conffiles)" /etc/csa-daemon/csa-daemon.toml
    # Crates that the program needs, each with a checksum and a licence.
    local doc=$STAGE/usr/share/doc/csa-daemon crate
    for crate in tokio rustls mysql_common; do
        grep -q "\"pkg:cargo/$crate@" "$doc/sbom.cdx.json" || die "the SBOM lacks $crate"
        grep -q "^$crate " "$doc/THIRD-PARTY-LICENSES.txt" || die "the licences lack $crate"
    done
    ! grep -Eq '"content": ""|"expression": ""' "$doc/sbom.cdx.json" || die 'a crate without checksum or licence'
    grep -q 'Permission is hereby granted' "$doc/THIRD-PARTY-LICENSES.txt" || die 'no licence texts'
    [[ $(dpkg-deb -f "$PACKAGE" Depends) == *libc6* ]] || die 'the package does not depend on libc6'
    if is_root; then
        local group
        group=$(sed -n 's/^csa-daemon:[^:]*:\([0-9]*\):.*/\1/p' "$STAGE/etc/group")
        [[ -n $group ]] || die 'no group csa-daemon was made'
        grep -q "^csa-daemon:.*:/var/lib/csa-daemon:.*nologin$" "$STAGE/etc/passwd" ||
            die "no system user was made: $(cat "$STAGE/etc/passwd")"
        expect 'the group of the configuration' "$(stat -c '%g' "$STAGE/etc/csa-daemon/csa-daemon.toml")" "$group"
    fi
    # As installed, programs are looked up under the root; this one is the system's.
    install -D "$(type -P kill)" "$STAGE/bin/kill"
    systemd-analyze verify --root="$STAGE" --man=no --recursive-errors=no csa-daemon.service \
        csa-daemon@one.service 2>"$WORK/verify.log" || die "units: $(cat "$WORK/verify.log")"
    say 'the files are in place'
}

# Every command has a page and a completion, and neither names a command that does not exist.
check_pages() {
    local command commands completion=$STAGE/usr/share/bash-completion/completions/csa-daemon
    commands=$(csa-daemon --help | sed -n '/^Commands:/,/^$/p' | sed -n 's/^  \([a-z][a-z-]*\).*/\1/p' | grep -v '^help$')
    ((${#commands} > 0)) || die 'no commands in --help'
    for command in $commands; do
        [[ -f $STAGE/usr/share/man/man8/csa-daemon-$command.8.gz ]] || die "no page for csa-daemon $command"
        grep -qw "csa__daemon__subcmd__$command\|csa__daemon__$command" "$completion" || die "no completion of $command"
    done
    ! grep -rq 'generate' "$STAGE/usr/share/bash-completion" || die 'a hidden command is completed'
    bash -n "$completion"
    if command -v man >/dev/null; then
        local page problems
        for page in "$STAGE"/usr/share/man/man?/*.gz; do
            problems=$(LC_ALL=C.UTF-8 MANWIDTH=100 man --warnings -l "$page" 2>&1 >"$WORK/page.txt")
            [[ -z $problems ]] || die "$page: $problems"
        done
        man -l "$STAGE/usr/share/man/man5/csa-daemon.toml.5.gz" | grep -q 'worker_count' ||
            die 'the page of the configuration lacks its keys'
    fi
    say "$(wc -w <<<"$commands") commands have pages and completions"
}

mkdir -p "$STAGE"/{etc,var/lib/dpkg/{info,updates},var/log}
touch "$STAGE/var/lib/dpkg/status"
"$ROOT/config/debian/build" "$DAEMON" "$WORK/packages" --fast >"$WORK/build.log" 2>&1 || die "$(cat "$WORK/build.log")"
PACKAGE=$(echo "$WORK"/packages/*.deb)
say "built ${PACKAGE##*/}, $(stat -c %s "$PACKAGE") bytes"
install_package
check_files
ln -sf "$STAGE/usr/bin/csa-daemon" "$WORK/bin/csa-daemon"
EXAMPLES=$STAGE/usr/share/doc/csa-daemon/examples
check_pages

# The example is complete except for the passwords.
refusal=$(csa-daemon check --config "$STAGE/etc/csa-daemon/csa-daemon.toml" 2>&1) && die 'the example has passwords'
[[ $refusal == *password_file* ]] || die "the example is refused for another reason: $refusal"

start_server source
start_server target
fill_types
fill_shop
start_load
guide provisioning.md 'Complete binary logs'
guide operating.md 'First start'
sleep 2
stop_load
wait_level
compare
# Lag is not known before the source's first heartbeat.
for _ in $(seq 40); do
    if csa-daemon status --max-lag 30s >/dev/null 2>&1; then break; fi
    sleep 0.5
done
guide monitoring.md 'Status and metrics'
grep -q '"channel_name":"shop"' "$WORK/status.json" || die "no status: $(cat "$WORK/status.json")"
grep -q '^csa_' "$WORK/metrics.txt" || die 'no metrics'
guide monitoring.md 'Timeline of a channel'
grep -q '"traceEvents"' "$WORK/shop.json" || die "no timeline: $(head -c 300 "$WORK/shop.json")"
guide tuning.md Settings
guide tuning.md 'Durability of the target'
# The accounts of the root into which the package is installed.
if is_root; then
    printf '#!/bin/sh\nexec "$@"\n' >"$WORK/bin/sudo"
    printf '#!/bin/sh\nexec /usr/sbin/usermod --prefix "%s" "$@"\n' "$STAGE" >"$WORK/bin/usermod"
    chmod +x "$WORK"/bin/{sudo,usermod}
    /usr/sbin/useradd --prefix "$STAGE" alice
    guide security.md 'Access to status, rows and commands' 1
    grep -q '^csa-daemon:.*:alice$' "$STAGE/etc/group" || die "alice is in no group: $(<"$STAGE/etc/group")"
fi
# An upgrade keeps the operator's changes, and the daemon resumes where it was.
if is_root; then
    echo '# the operator'\''s' >>"$STAGE/etc/csa-daemon/csa-daemon.toml"
    stage_dpkg -i "$PACKAGE"
    tail -n 1 "$STAGE/etc/csa-daemon/csa-daemon.toml" | grep -q operator || die 'the upgrade replaced the configuration'
    expect 'the mode after the upgrade' "$(mode_of etc/csa-daemon/csa-daemon.toml)" 640
fi
guide operating.md Upgrade
on source <<<'INSERT INTO shop.item VALUES (1000, 1, "after the upgrade")'
wait_level
compare
systemctl stop csa-daemon
if is_root; then
    mkdir -p "$STAGE/var/lib/csa-daemon/shop"
    stage_dpkg --purge csa-daemon
    for left in usr/bin/csa-daemon etc/csa-daemon var/lib/csa-daemon; do
        [[ ! -e $STAGE/$left ]] || die "a purge leaves $left"
    done
    say 'purged'
fi
