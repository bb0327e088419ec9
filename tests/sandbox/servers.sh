# Finds the program of a server for mysql-sandbox, or downloads it. To be sourced.
# shellcheck shell=bash

# MYSQLD and CLIENT are set to whole commands: downloaded programs run through their own loader.
MYSQLD=()
CLIENT=()

# Prints why a mysqld cannot be used; nothing when it can.
unusable() {
    local text
    text=$("$@" --no-defaults --version 2>&1) || { echo "it does not run: $text"; return; }
    case $text in
        *MariaDB*) echo "it is MariaDB" ;;
        *"Ver "[0-7].*|*"Ver 5."*) echo "it is too old: $text" ;;
        *"Ver "*) ;;
        *) echo "it is not a MySQL server: $text" ;;
    esac
}

use_installed() {
    local directory=${1%/*}
    MYSQLD=("$1" --no-defaults)
    if [[ -n ${CSA_MYSQL:-} ]]; then
        CLIENT=("$CSA_MYSQL" --no-defaults)
    elif [[ -x $directory/mysql ]]; then
        CLIENT=("$directory/mysql" --no-defaults)
    elif [[ -x $directory/../bin/mysql ]]; then
        CLIENT=("$directory/../bin/mysql" --no-defaults)
    elif command -v mysql >/dev/null; then
        CLIENT=("$(command -v mysql)" --no-defaults)
    fi
}

# The first of the files that exists.
first() {
    local file
    for file in "$@"; do
        if [[ -e $file ]]; then echo "$file"; return; fi
    done
}

# Commands for a server unpacked under $1, with its own loader and libraries instead of the machine's.
use_unpacked() {
    local root=$1 loader libraries
    loader=$(first "$root"/usr/lib{64,,/*}/ld-linux-*.so.*)
    libraries=$(first "$root"/usr/lib/*-linux-gnu*/)
    libraries=${libraries%/}
    [[ -n $loader && -n $libraries && -x $root/usr/sbin/mysqld ]] || return 1
    local run=("$loader" --library-path "$libraries:$root/usr/lib/mysql/private")
    MYSQLD=("${run[@]}" "$root/usr/sbin/mysqld" --no-defaults
        "--lc-messages-dir=$root/usr/share/mysql"
        "--character-sets-dir=$root/usr/share/mysql/charsets"
        "--plugin-dir=$root/usr/lib/mysql/plugin")
    CLIENT=("${run[@]}" "$root/usr/bin/mysql" --no-defaults
        "--character-sets-dir=$root/usr/share/mysql/charsets")
    # For accounts of older servers, and for every client program.
    export LIBMYSQL_PLUGIN_DIR=$root/usr/lib/mysql/plugin
}

find_mysqld() {
    local path reason directory
    if [[ -n ${CSA_MYSQLD:-} ]]; then
        [[ -x $CSA_MYSQLD ]] || die "CSA_MYSQLD=$CSA_MYSQLD is not an executable file"
        reason=$(unusable "$CSA_MYSQLD")
        [[ -z $reason ]] || die "CSA_MYSQLD=$CSA_MYSQLD cannot be used: $reason"
        use_installed "$CSA_MYSQLD"
        return 0
    fi
    path=$(PATH="$PATH:/usr/sbin:/usr/local/sbin" command -v mysqld || true)
    if [[ -n $path ]]; then
        reason=$(unusable "$path")
        if [[ -z $reason ]]; then
            use_installed "$path"
            return 0
        fi
        say "passing over $path: $reason"
    fi
    use_unpacked "$CACHE/server" 2>/dev/null
}

# Sets the KIND of server (mysql or mariadb) for the commands of this run, and its VERSION if that is
# pinned.
KIND=mysql
VERSION=

# Reads KIND and VERSION from the first words; sets WORDS to their number.
read_kind() {
    WORDS=0
    case ${1:-} in
        --mariadb) KIND=mariadb WORDS=1 ;;
        --version)
            VERSION=${2:-} WORDS=2
            [[ $VERSION != mariadb-* ]] || KIND=mariadb
            [[ -n $VERSION ]] || die "--version needs a version"
            ;;
    esac
}

# Sets the command of a server of this VERSION.
find_pinned() {
    local here=${BASH_SOURCE[0]%/*} root library=()
    root=$("$here/pinned-server" "$VERSION") || return 1
    if [[ $KIND == mysql ]] && ! ldconfig -p 2>/dev/null | grep -q 'libaio\.so\.1 '; then
        library=("$("$here/debian-tool" libaio.so.1)") || return 1
        library=(env "LD_LIBRARY_PATH=${library[0]%/*}")
    fi
    local program=mysqld
    [[ $KIND == mysql ]] || program=mariadbd
    # The packages have no clients; those of the newest MySQL serve all versions of it.
    if [[ -n ${CSA_MYSQL:-} ]]; then
        CLIENT=("$CSA_MYSQL" --no-defaults)
    elif [[ $KIND == mysql ]]; then
        find_mysqld || true
    fi
    MYSQLD=("${library[@]}" "$root/bin/$program" --no-defaults "--basedir=$root")
}

# MariaDB comes from this machine's Debian release, and so do its libraries.
find_mariadbd() {
    local program root
    program=$("${BASH_SOURCE[0]%/*}/debian-tool" mariadbd) || return 1
    MYSQLD=("$program" --no-defaults)
    root=${program%/*}
    [[ ! -d $root/usr/share/mysql ]] || MYSQLD+=("--basedir=$root/usr")
    [[ -z ${CSA_MYSQL:-} ]] || CLIENT=("$CSA_MYSQL" --no-defaults)
}

find_server() {
    if [[ -n $VERSION ]]; then
        find_pinned
    elif [[ $KIND == mariadb ]]; then
        find_mariadbd
    else
        find_mysqld
    fi
}

ensure_mysqld() {
    if [[ -n $VERSION || $KIND == mariadb ]]; then
        find_server || exit 1
        return
    fi
    find_mysqld && return
    command -v apt-get >/dev/null || die "found no MySQL server, and without apt-get none can be downloaded;" \
        "name one of this machine with CSA_MYSQLD=/path/to/mysqld"
    need apt-cache dpkg flock
    mkdir -p "$CACHE"
    exec 8>"$CACHE/fetch.lock"
    flock 8
    # Another caller may have finished the download while this one waited for the lock.
    if ! find_mysqld; then
        download_mysqld
        find_mysqld || die "the downloaded server in $CACHE/server is incomplete"
    fi
    exec 8>&-
}

# Prints "address<TAB>keyring" of each Debian archive in this machine's apt configuration.
debian_archives() {
    local file files=()
    shopt -s nullglob
    files=(/etc/apt/sources.list.d/*.sources)
    if ((${#files[@]})); then
        # An empty line after each file, so that two files never make one stanza.
        for file in "${files[@]}"; do grep -v '^#' "$file" || true; echo; done | awk -v RS= -F'\n' '
            {
                delete field; key = ""
                for (i = 1; i <= NF; i++) {
                    if ($i ~ /^[A-Za-z-]+:/) {
                        key = tolower(substr($i, 1, index($i, ":") - 1))
                        field[key] = substr($i, index($i, ":") + 1)
                    } else if (key != "") field[key] = field[key] " " $i
                }
                if (tolower(field["enabled"]) ~ /no|false/) next
                if ((" " field["types"] " ") !~ / deb /) next
                n = split(field["uris"], uris, " ")
                m = split(field["suites"], suites, " ")
                keyring = field["signed-by"]
                gsub(/ /, "", keyring)
                if (keyring !~ /^\//) keyring = ""
                for (u = 1; u <= n; u++) for (s = 1; s <= m; s++)
                    print uris[u] "\t" suites[s] "\t" keyring
            }'
    fi
    files=(/etc/apt/sources.list /etc/apt/sources.list.d/*.list)
    for file in "${files[@]}"; do
        [[ -r $file ]] || continue
        awk '$1 == "deb" {
            line = $0; keyring = ""
            if (match(line, /\[[^]]*\]/)) {
                options = substr(line, RSTART + 1, RLENGTH - 2)
                line = substr(line, 1, RSTART - 1) substr(line, RSTART + RLENGTH)
                n = split(options, option, " ")
                for (i = 1; i <= n; i++)
                    if (option[i] ~ /^signed-by=\//) keyring = substr(option[i], 11)
            }
            split(line, word, " ")
            print word[2] "\t" word[3] "\t" keyring
        }' "$file"
    done
}

# The archives whose suite is a Debian release, not third parties and the security archive.
release_archives() {
    local codename
    codename=$(. /etc/os-release 2>/dev/null && printf '%s' "${VERSION_CODENAME:-}")
    debian_archives | awk -F'\t' -v codename="$codename" '
        {
            if ($1 ~ /security/) next
            release = $2
            sub(/-(updates|backports|proposed-updates)$/, "", release)
            if (release != codename && release !~ /^(sid|unstable|testing|stable|oldstable)$/) next
            if (!seen[$1]++) print $1 "\t" $3
        }'
}

# Downloads mysqld, the client and their libraries from Debian unstable, and unpacks them under one
# root. Nothing is installed: apt works on its own lists, cache and (empty) package status.
download_mysqld() {
    local work uri keyring archives packages problem="" reached=""
    archives=$(release_archives)
    [[ -n $archives ]] || die "no Debian archive in this machine's apt configuration to download" \
        "MySQL from; install a MySQL server and name it with CSA_MYSQLD=/path/to/mysqld"
    rm -rf "$CACHE"/download.*
    work=$(mktemp -d "$CACHE/download.XXXXXX")
    # shellcheck disable=SC2064 # expand the directory now
    trap "rm -rf '$work'" EXIT
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/debs" "$work/root" "$work/none"
    local apt=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=-
        -o Dir::Etc::preferences=/dev/null -o "Dir::Etc::preferencesparts=$work/none"
        -o "Dir::State::lists=$work/lists" -o Dir::State::status=/dev/null
        -o "Dir::Cache=$work/cache" -o APT::Default-Release= -o APT::Sandbox::User=root
        -o Acquire::Languages=none -o Acquire::Retries=3)
    while IFS=$'\t' read -r uri keyring; do
        : "${keyring:=/usr/share/keyrings/debian-archive-keyring.gpg}"
        if [[ -r $keyring ]]; then
            echo "deb [signed-by=$keyring] $uri sid main" >"$work/sources.list"
        else
            echo "deb $uri sid main" >"$work/sources.list"
        fi
        say "reading the package lists of Debian unstable"
        if ! apt-get "${apt[@]}" update >"$work/apt.log" 2>&1; then
            problem=$(tail -n 3 "$work/apt.log")
        elif ! apt-cache "${apt[@]}" show mysql-server-core >/dev/null 2>&1; then
            problem="that archive has no package mysql-server-core"
        else
            problem=""
        fi
        # apt-get also succeeds when it reached nothing.
        if compgen -G "$work/lists/*_Packages*" >/dev/null; then reached=yes; fi
        [[ -n $problem ]] || break
    done <<<"$archives"
    if [[ -z $reached ]]; then
        grep -E '^[EW]:' "$work/apt.log" | head -n 2 >&2 || true
        die "cannot download MySQL: no package server could be reached; connect this machine to a network, name" \
            "its proxy in http_proxy, or name a MySQL server of this machine with CSA_MYSQLD=/path/to/mysqld"
    fi
    [[ -z $problem ]] || die "cannot download MySQL: $problem;" \
        "a MySQL server of this machine can be named with CSA_MYSQLD=/path/to/mysqld"

    # Packages that only maintainer scripts need are left out: none of these scripts is run.
    packages=$(apt-cache "${apt[@]}" depends --recurse --no-recommends --no-suggests \
        --no-conflicts --no-breaks --no-replaces --no-enhances \
        mysql-server-core mysql-client-core |
        grep -E '^[a-z0-9][a-z0-9.+-]*$' | sort -u |
        grep -vE '^(perl|libperl|debconf|cdebconf|passwd|init|dpkg|tar$|libpam|sensible-utils)')
    say "downloading $(wc -w <<<"$packages") packages"
    # shellcheck disable=SC2086 # one word per package
    (cd "$work/debs" && apt-get "${apt[@]}" download $packages) >"$work/apt.log" 2>&1 ||
        die "cannot download MySQL: $(tail -n 3 "$work/apt.log")"
    local package
    for package in "$work"/debs/*.deb; do
        dpkg -x "$package" "$work/root"
    done
    use_unpacked "$work/root" || die "the downloaded packages hold no server"
    problem=$(unusable "${MYSQLD[@]:0:4}")
    [[ -z $problem ]] || die "the downloaded server cannot be used: $problem"
    rm -rf "$CACHE/server"
    mv "$work/root" "$CACHE/server"
    rm -rf "$work"
    trap - EXIT
}

as_user() {
    # mysqld refuses to run as root without an explicit --user=root.
    if ((UID == 0)); then echo --user=root; fi
}
