# What the scripts that make packages share. To be sourced, in the root of the source tree.
# shellcheck shell=bash

# The tools that `make tools` and `make release` install.
CACHE=${CSA_SANDBOX_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/csa-daemon}
export PATH=$CACHE/tools/bin:$CACHE/release/bin:$PATH
export LC_ALL=C TZ=UTC

# The time of all files in packages: that of the commit, so that a build of the same sources gives the same bytes.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
export SOURCE_DATE_EPOCH

# Tests compress less: they make packages several times of a program that is not optimised.
: "${CSA_PACKAGE_LEVEL:=9}"

version() { sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml; }

# architecture PROGRAM: prints the processor for which a program is built, as `uname -m` does.
architecture() {
    case $(readelf --file-header "$1" | sed -n 's/^ *Machine: *//p') in
        *X86-64) echo x86_64 ;;
        AArch64) echo aarch64 ;;
        *) echo "$1 is for a processor that no package is made for" >&2; return 1 ;;
    esac
}

# debian_architecture NAME: prints the name that Debian and containers have for a processor.
debian_architecture() {
    case $1 in
        x86_64) echo amd64 ;;
        aarch64) echo arm64 ;;
    esac
}

# glibc PROGRAM: prints the version of glibc that a program needs, nothing if it needs none. References to weak symbols,
# which may be missing, are marked in the table.
glibc() {
    readelf --version-info --wide "$1" | sed -n 's/.*Name: GLIBC_\([0-9.]*\)  Flags: none .*/\1/p' |
        sort -V | tail -n 1
}

# The oldest version of glibc for which Rust's standard library is built.
readonly GLIBC=2.17
# True if a program runs wherever there is glibc $GLIBC or newer.
is_wide() { [[ $(printf '%s\n' "$(glibc "$1")" "$GLIBC" | sort -V | tail -n 1) == "$GLIBC" ]]; }

# install_program PROGRAM PLACE: without symbols. Foreign programs come without: this machine's strip can't read them.
install_program() {
    install -D -m 0755 "$1" "$2"
    [[ $(architecture "$1") != "$(uname -m)" ]] || strip "$2"
}

# documents PROGRAM DIRECTORY: what the program generates, and the notices of its crates. $CSA_GENERATOR is a csa-daemon
# of the same sources that runs on this machine, for a program that does not.
documents() {
    "${CSA_GENERATOR:-$1}" generate "$2"
    # The installed example names the installed schema.
    sed -i '1s|\./|file:///usr/share/csa-daemon/|' "$2/csa-daemon.toml"
    config/release/third-party "$2" "$1"
}

# pack FOLDER TAR [OPTION…]: the same bytes for the same files.
pack() {
    tar --create --directory="$1" --file="$2" --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" --numeric-owner \
        --owner=0 --group=0 "${@:3}"
}
