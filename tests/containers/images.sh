# Stand-ins for images that a test can't pull: made from the machine's own programs and the sandbox's servers, loaded
# under the tags that config/compose/compose.yaml names. To be sourced; the caller sets ROOT, WORK and say, die.
# shellcheck shell=bash

# add_programs ROOT PROGRAM…: copies programs of this machine, and the libraries that the image does not have yet.
add_programs() {
    local image=$1 program path library
    shift
    for program in "$@"; do
        path=$(type -P "$program") || die "$program is missing on this machine"
        install -D -m 0755 "$(realpath "$path")" "$image/usr/bin/$program"
        for library in $(ldd "$path" 2>/dev/null | grep -o '/[^ ]*'); do
            [[ -e $image$library ]] || install -D -m 0755 "$(realpath "$library")" "$image$library"
        done
    done
}

# A root with merged /usr, as Debian's images have.
make_root() {
    local folder
    mkdir -p "$1"/{etc,tmp,run,var/lib} "$1"/usr/{bin,sbin,lib,lib64}
    chmod 1777 "$1/tmp"
    for folder in bin sbin lib lib64; do ln -sfn "usr/$folder" "$1/$folder"; done
    printf 'hosts: files dns\n' >"$1/etc/nsswitch.conf"
}

# import ROOT TAG [CHANGE…]: changes are instructions of a Dockerfile.
import() {
    local changes=() change
    for change in "${@:3}"; do changes+=(--change "$change"); done
    tar --create --directory="$1" --numeric-owner . | docker import "${changes[@]}" - "$2" >/dev/null
    say "made a stand-in for $2"
}

# Entry point, data directory and user as in the image of the same name on Docker Hub.
mysql_image() {
    local tag=$1 image=$WORK/mysql-image command tree
    command=$("$ROOT/tests/sandbox/mysql-sandbox" fetch)
    [[ $command == *" --library-path "* ]] ||
        die "the image needs the sandbox's own download of MySQL, not ${command%% *}: unset CSA_MYSQLD, or take mysqld off PATH"
    tree=${command%%/usr/*}
    make_root "$image"
    cp -a "$tree"/usr/. "$image/usr/"
    add_programs "$image" bash cat chown ls mkdir setpriv sleep
    ln -sf bash "$image/usr/bin/sh"
    # The server's private libraries are found by the loader's cache in an installed system.
    printf 'root:x:0:0:root:/root:/bin/bash\nmysql:x:999:999::/var/lib/mysql:/bin/false\n' >"$image/etc/passwd"
    printf 'root:x:0:\nmysql:x:999:\n' >"$image/etc/group"
    install -m 0755 "$ROOT/tests/containers/mysql-entrypoint" "$image/usr/bin/docker-entrypoint.sh"
    install -d -m 1777 "$image/run/mysqld"
    ln -sfn ../run "$image/var/run"
    mkdir -p "$image/docker-entrypoint-initdb.d"
    install -d -o 999 -g 999 "$image"/var/lib/{mysql,mysql-files}
    import "$image" "$tag" 'ENTRYPOINT ["docker-entrypoint.sh"]' 'CMD ["mysqld"]' 'VOLUME /var/lib/mysql' \
        "ENV LD_LIBRARY_PATH=/usr/lib/$(uname -m)-linux-gnu:/usr/lib/mysql/private"
    rm -rf "$image"
}

# User, folders and arguments as in the image of the same name on Docker Hub.
prometheus_image() {
    local tag=$1 image=$WORK/prometheus-image program
    program=$("$ROOT/tests/sandbox/debian-tool" prometheus)
    # In the cache, a script starts it.
    [[ ! -x ${program%/*}/usr/bin/prometheus ]] || program=${program%/*}/usr/bin/prometheus
    make_root "$image"
    add_programs "$image" wget
    PATH=${program%/*}:$PATH add_programs "$image" prometheus
    install -d -o 65534 -g 65534 "$image"/prometheus{,/data}
    # Debian's default for the data, in place of `data` in the working directory.
    mkdir -p "$image/var/lib/prometheus"
    ln -s /prometheus/data "$image/var/lib/prometheus/metrics2"
    printf 'root:x:0:0::/:/sbin/nologin\nnobody:x:65534:65534::/:/sbin/nologin\n' >"$image/etc/passwd"
    import "$image" "$tag" 'ENTRYPOINT ["/bin/prometheus"]' 'USER nobody' 'WORKDIR /prometheus' 'VOLUME /prometheus'
    rm -rf "$image"
}
