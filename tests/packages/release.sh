#!/usr/bin/env bash
# Tests what a release hands out, with the program under test. The tarball and the RPM package are installed into separate
# roots, and the package's daemon makes its first copy between two servers. deb.sh tests the Debian package further.
# elsewhere.sh tries other distributions. Without root privileges the RPM package is only listed, and the tarball's
# daemon runs.
set -euo pipefail
. "$(dirname "$0")/../provisioning/lib.sh"

export CSA_PACKAGE_LEVEL=1
RPM=$("$ROOT/tests/sandbox/debian-tool" rpm)
PACKAGES=$WORK/packages STAGE=$WORK/root

expect() { [[ $2 == "$3" ]] || die "$1 is '$2' instead of '$3'"; }

# Both need the same; where they lie and what belongs to one distribution differs.
check_files() {
    local root=$1 prefix=$2 file
    for file in bin/csa-daemon lib/systemd/system/csa-daemon.service lib/systemd/system/csa-daemon@.service \
        lib/sysusers.d/csa-daemon.conf share/csa-daemon/csa-daemon.schema.json \
        share/csa-daemon/prometheus/alerts.yml share/csa-daemon/grafana/csa-daemon.json \
        share/man/man8/csa-daemon.8.gz share/man/man8/csa-daemon-copy.8.gz share/man/man5/csa-daemon.toml.5.gz \
        share/bash-completion/completions/csa-daemon share/zsh/site-functions/_csa-daemon \
        share/fish/vendor_completions.d/csa-daemon.fish share/doc/csa-daemon/LICENSE share/doc/csa-daemon/README.md \
        share/doc/csa-daemon/THIRD-PARTY-LICENSES.txt share/doc/csa-daemon/sbom.cdx.json \
        share/doc/csa-daemon/docs/operating.md share/doc/csa-daemon/docs/openapi.json \
        share/doc/csa-daemon/examples/minimal.toml share/doc/csa-daemon/examples/grants-target.sql; do
        [[ -f $root$prefix/$file ]] || die "$root has no $prefix/$file"
    done
    expect 'the schema named in the configuration' "$(sed -n '1s|^#:schema file://||p' "$root/etc/csa-daemon/csa-daemon.toml")" \
        "$prefix/share/csa-daemon/csa-daemon.schema.json"
    expect 'the mode of the configuration' "$(stat -c %a "$root/etc/csa-daemon/csa-daemon.toml")" 640
    grep -q "^ExecStart=$prefix/bin/csa-daemon run" "$root$prefix/lib/systemd/system/csa-daemon.service" ||
        die "the unit of $root starts another program"
    "$root$prefix/bin/csa-daemon" --version >/dev/null
}

# --- the files of a release ---------------------------------------------------------------------------
version=$("$DAEMON" --version | cut -d' ' -f2)
name=csa-daemon-$version-linux-$(uname -m)
"$ROOT/config/release/package" "$DAEMON" "$PACKAGES" --fast >"$WORK/build.log" 2>&1 || die "$(<"$WORK/build.log")"
say "packaged: $(cd "$PACKAGES" && stat -c '%n, %s bytes;' ./*)"
case $(uname -m) in x86_64) deb=amd64 ;; aarch64) deb=arm64 ;; esac
for file in "$name.tar.gz" "$name-image.tar" "csa-daemon-$version-1.$(uname -m).rpm" "csa-daemon_${version}-1_$deb.deb"; do
    [[ -f $PACKAGES/$file ]] || die "no $file among $(ls "$PACKAGES")"
done
dpkg-deb -c "$PACKAGES"/*.deb >"$WORK/deb.list"
for file in prometheus/alerts.yml grafana/csa-daemon.json; do
    grep -q "/usr/share/csa-daemon/$file$" "$WORK/deb.list" || die "the Debian package has no $file"
done

# --- the tarball --------------------------------------------------------------------------------------
tar --extract --file="$PACKAGES/$name.tar.gz" --directory="$WORK"
tree=$WORK/$name
# Links of its pages lead to files that it has; sources and tests are left out of it.
while IFS=: read -r page link; do
    [[ -e ${page%/*}/$link || $link =~ (crates|tests|benches|compose|mkdocs)(/|$) || $link == *CONTRIBUTING* ]] ||
        die "$page: $link leads nowhere in the tarball"
done < <(cd "$tree" && grep -oE '\]\([^):#]+[)#]' README.md docs/*.md | sed "s|^|$tree/|; s|](||; s|[)#]$||")
"$tree/install" --root "$WORK/tarball"
check_files "$WORK/tarball" /usr/local
echo '# an operator'\''s' >>"$WORK/tarball/etc/csa-daemon/csa-daemon.toml"
"$tree/install" --root "$WORK/tarball"
tail -n 1 "$WORK/tarball/etc/csa-daemon/csa-daemon.toml" | grep -q operator || die 'installed again, it replaced the configuration'
"$tree/install" --root "$WORK/tarball" --remove
left=$(cd "$WORK/tarball" && find . -type f)
expect 'what a removal leaves' "$left" ./etc/csa-daemon/csa-daemon.toml
if "$tree/install" --prefx /usr 2>/dev/null; then die 'an unknown option is accepted'; fi
say 'the tarball is installed, installed again and removed'

# --- the RPM package ----------------------------------------------------------------------------------
# Debian's rpm warns of every installation otherwise.
rpm() { "$RPM" --force-debian --root "$STAGE" --nodeps "$@" >"$WORK/rpm.log" 2>&1 || die "rpm $*: $(<"$WORK/rpm.log")"; }

# What its scripts call, from this machine.
make_root() {
    local program path library
    mkdir -p "$STAGE"/{dev,etc,tmp,usr/{bin,sbin,lib,lib64},var/lib}
    mknod -m 666 "$STAGE/dev/null" c 1 3 2>/dev/null || touch "$STAGE/dev/null"
    for path in bin sbin lib lib64; do ln -s "usr/$path" "$STAGE/$path"; done
    for program in bash getent groupadd useradd; do
        path=$(realpath "$(PATH=$PATH:/usr/sbin type -P "$program")")
        install -D "$path" "$STAGE/usr/sbin/$program"
        for library in $(ldd "$path" | grep -o '/[^ ]*'); do
            [[ -e $STAGE$library ]] || install -D "$(realpath "$library")" "$STAGE$library"
        done
    done
    ln -s ../sbin/bash "$STAGE/usr/bin/sh"
    for path in passwd group shadow gshadow; do touch "$STAGE/etc/$path"; done
    echo 'root:x:0:' >"$STAGE/etc/group"
    echo 'root:x:0:0::/:/bin/sh' >"$STAGE/etc/passwd"
    printf 'passwd: files\ngroup: files\n' >"$STAGE/etc/nsswitch.conf"
}

start_server source
start_server target
fill_shop
guide provisioning.md 'Complete binary logs'
package=$(echo "$PACKAGES"/*.rpm)
began=$SECONDS
if ((UID == 0)); then
    make_root
    rpm -i "$package"
    [[ ! -s $WORK/rpm.log ]] || die "an installation says: $(<"$WORK/rpm.log")"
    group=$(sed -n 's/^csa-daemon:[^:]*:\([0-9]*\):.*/\1/p' "$STAGE/etc/group")
    grep -q '^csa-daemon:.*:/var/lib/csa-daemon:/sbin/nologin$' "$STAGE/etc/passwd" || die "no user: $(<"$STAGE/etc/passwd")"
    expect 'the group of the configuration' "$(stat -c %g "$STAGE/etc/csa-daemon/csa-daemon.toml")" "$group"
else
    mkdir -p "$STAGE"
    "$tree/install" --prefix /usr --root "$STAGE"
fi
check_files "$STAGE" /usr
"$RPM" -qp --requires "$package" >"$WORK/requires"
grep -q '^libc.so.6(GLIBC_' "$WORK/requires" || die "the package asks for no libc: $(<"$WORK/requires")"

# From the package to the first row on the target.
ln -sf "$STAGE/usr/bin/csa-daemon" "$WORK/bin/csa-daemon"
EXAMPLES=$STAGE/usr/share/doc/csa-daemon/examples
(umask 027 && echo 'change me' >"$CSA_GUIDE_HOST/etc/source.pw" && echo 'change me' >"$CSA_GUIDE_HOST/etc/target.pw")
{ local_daemon; localize <"$EXAMPLES/minimal.toml"; } | sed "s/= 3306/= $PORT_SOURCE/; s/= 3307/= $PORT_TARGET/" >"$CSA_DAEMON_CONFIG"
on source <<<"SET SESSION sql_log_bin = 0; GRANT SELECT, REPLICATION CLIENT, SHOW VIEW, TRIGGER, EVENT ON *.* TO 'repl'@'%'"
systemctl enable --now csa-daemon
on source <<<'INSERT INTO shop.item VALUES (1000, 1, "after the package")'
has_row() { [[ $(on target <<<'SELECT COUNT(*) FROM shop.item WHERE id = 1000') == 1 ]]; }
until_true 'the first row is replicated' has_row
took=$((SECONDS - began))
say "from the package to the first replicated row: $took s"
((took < 60)) || die "the first row needed $took s"
on source <<<'INSERT INTO shop.sale (item, amount) VALUES (1, 1)'
wait_level
compare
systemctl stop csa-daemon

# An upgrade keeps what the operator wrote, and a removal keeps the state.
if ((UID == 0)); then
    echo '# an operator'\''s' >>"$STAGE/etc/csa-daemon/csa-daemon.toml"
    rpm -U --force "$package"
    tail -n 1 "$STAGE/etc/csa-daemon/csa-daemon.toml" | grep -q operator || die 'the upgrade replaced the configuration'
    mkdir -p "$STAGE/var/lib/csa-daemon/shop"
    rpm -e csa-daemon
    for left in usr/bin/csa-daemon usr/share/csa-daemon usr/lib/systemd/system/csa-daemon.service; do
        [[ ! -e $STAGE/$left ]] || die "a removal leaves $left"
    done
    [[ -d $STAGE/var/lib/csa-daemon/shop ]] || die 'a removal takes the state with it'
    grep -q operator "$STAGE/etc/csa-daemon/csa-daemon.toml.rpmsave" || die 'a removal loses the configuration'
    say 'the RPM package is upgraded and removed'
fi

# The same program gives the same bytes, whatever the time; containers.rs compares images.
rm "$PACKAGES"/*-image.tar
again=$WORK/again
mkdir "$again"
(cd "$ROOT" && . config/release/lib.sh && cd "$WORK" && sleep 1 &&
    "$ROOT/config/release/tree" "$DAEMON" "$again/$name" && pack "$again" "$again/tar" "$name" && gzip "-$CSA_PACKAGE_LEVEL" --no-name "$again/tar")
cmp "$PACKAGES/$name.tar.gz" "$again/tar.gz"
"$ROOT/config/rpm/build" "$again/$name" "$again" >"$WORK/build.log" 2>&1 || die "$(<"$WORK/build.log")"
cmp "$package" "$again/${package##*/}"
say 'tarball and RPM package have the same bytes again'
