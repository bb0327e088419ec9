
# Adds what clap does not know: the channels of the running daemon, and the settings of `set`.
_csa_daemon_channels() {
    local word previous= options=()
    for word in "${COMP_WORDS[@]}"; do
        case $previous in
            -c | --config | --admin | --admin-ca | --token-file) options+=("$previous" "$word") ;;
        esac
        previous=$word
    done
    # The first column of the table, up to the explanations below it.
    "${COMP_WORDS[0]}" "${options[@]}" status 2>/dev/null | awk 'NR > 1 { if (!NF) exit; print $1 }'
}

_csa_daemon_names() {
    local word=${COMP_WORDS[COMP_CWORD]} previous=
    if ((COMP_CWORD > 0)); then previous=${COMP_WORDS[COMP_CWORD - 1]}; fi
    case $previous in
        --channel)
            mapfile -t COMPREPLY < <(compgen -W "$(_csa_daemon_channels)" -- "$word")
            return
            ;;
        set)
            if [[ $word != -* ]]; then
                mapfile -t COMPREPLY < <(compgen -W "@SETTINGS@" -- "$word")
                return
            fi
            ;;
        status)
            if [[ $word != -* ]]; then
                mapfile -t COMPREPLY < <(compgen -W "$(_csa_daemon_channels)" -- "$word")
                return
            fi
            ;;
    esac
    _csa__daemon "$@"
}

complete -F _csa_daemon_names -o bashdefault -o default csa-daemon
