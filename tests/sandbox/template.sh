# The data directory that mysql-sandbox copies for every new server. To be sourced.
# shellcheck shell=bash

# The first versions of 8.0 were built without a TLS that others still speak, which this plugin needs.
template_sql() {
    local plugin=caching_sha2_password
    [[ $VERSION != @(5.7|8.0.15) ]] || plugin=mysql_native_password
    cat <<SQL
CREATE USER repl@'%' IDENTIFIED WITH $plugin BY 'repl_pw';
GRANT REPLICATION SLAVE ON *.* TO repl@'%';
CREATE USER csa@'%' IDENTIFIED WITH $plugin BY 'csa_pw';
GRANT ALL ON *.* TO csa@'%' WITH GRANT OPTION;
CREATE USER admin@'%' IDENTIFIED WITH $plugin BY 'admin_pw';
GRANT ALL ON *.* TO admin@'%' WITH GRANT OPTION;
SQL
}

template_mariadb_sql() {
    cat <<'SQL'
FLUSH PRIVILEGES;
CREATE USER repl@'%' IDENTIFIED BY 'repl_pw';
GRANT REPLICATION SLAVE ON *.* TO repl@'%';
CREATE USER csa@'%' IDENTIFIED BY 'csa_pw';
GRANT ALL ON *.* TO csa@'%' WITH GRANT OPTION;
CREATE USER admin@'%' IDENTIFIED BY 'admin_pw';
GRANT ALL ON *.* TO admin@'%' WITH GRANT OPTION;
SQL
}

# Does the work of mariadb-install-db, which can't run a server with its own libraries. Each statement
# is a line.
bootstrap_mariadb() {
    local data=$1 share="" name settings candidate
    settings=$("${MYSQLD[@]}" --verbose --help 2>/dev/null |
        awk '$1 == "lc-messages-dir" { print $2 } $1 == "basedir" { print $2 "/share/mysql"; print $2 "/share" }')
    while read -r candidate; do
        if [[ -f $candidate/fill_help_tables.sql ]]; then share=$candidate; break; fi
    done <<<"$settings"
    [[ -n $share ]] || die "found no scripts to set up MariaDB's system tables"
    mkdir "$data"
    {
        printf 'CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n'
        for name in system_tables performance_tables system_tables_data; do
            # Later releases renamed the files.
            cat "$share/mysql_$name.sql" 2>/dev/null || cat "$share/mariadb_$name.sql"
        done
        template_mariadb_sql
    } | "${MYSQLD[@]}" $(as_user) --bootstrap "--datadir=$data" --innodb-log-file-size=8M
}

# Makes the key that MariaDB 11.4 and later otherwise make at each start. Built with wolfSSL, the server takes
# seconds of processor time for that, and a minute beside others.
make_mariadb_key() {
    local data=$1
    command -v openssl >/dev/null || return 0
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=sandbox \
        -keyout "$data/server-key.pem" -out "$data/server-cert.pem"
}

initialise() {
    local work=$1
    if [[ $KIND == mariadb ]]; then
        bootstrap_mariadb "$work/data"
        [[ -z $VERSION ]] || make_mariadb_key "$work/data"
        return
    fi
    mkdir "$work/files"
    template_sql >"$work/users.sql"
    # shellcheck disable=SC2046 # no word or one
    "${MYSQLD[@]}" $(as_user) --initialize-insecure "--datadir=$work/data" \
        "--init-file=$work/users.sql" "--secure-file-priv=$work/files" \
        --loose-innodb-redo-log-capacity=8M --loose-mysqlx=OFF "${FOLDED[@]}"
}

# Sets FOLDED to the one option among those given that a server has to be initialised with.
find_folded() {
    local option
    FOLDED=()
    for option in "$@"; do
        [[ $option != --lower[-_]case[-_]table[-_]names=* ]] || FOLDED=("$option")
    done
}

# Sets TEMPLATE to a cleanly shut down data directory with the users in it. Initialising writes no
# binary log, so it holds no GTIDs either.
ensure_template() {
    local key work
    key=$({ stat -Lc '%n %s %Y' "$(mysqld_file)"; template_sql
        [[ $KIND == mysql ]] || template_mariadb_sql; echo "$TEMPLATE_VERSION${FOLDED[*]}"; } | sha256sum | cut -c1-16)
    TEMPLATE=$CACHE/template-$key
    [[ -d $TEMPLATE ]] && return
    mkdir -p "$CACHE"
    exec 8>"$CACHE/template.lock"
    flock 8
    if [[ ! -d $TEMPLATE ]]; then
        say "initialising a data directory"
        work=$(mktemp -d "$CACHE/initialise.XXXXXX")
        if ! initialise "$work" >"$work/log" 2>&1 8>&- || grep -q '\[ERROR\]' "$work/log"; then
            tail -n 20 "$work/log" >&2
            rm -rf "$work"
            die "mysqld could not initialise a data directory"
        fi
        rm -f "$work/data/auto.cnf"
        # Most of it are zeros, which each copy then leaves out as well.
        cp -a --sparse=always "$work/data" "$work/sparse"
        mv "$work/sparse" "$TEMPLATE"
        rm -rf "$work"
    fi
    exec 8>&-
}

mysqld_file() {
    local word
    for word in "${MYSQLD[@]}"; do
        if [[ ${word##*/} == @(mysqld|mariadbd)* ]]; then echo "$word"; return; fi
    done
    echo "${MYSQLD[0]}"
}
