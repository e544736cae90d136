# Bash completion for hearth: commands and options are what the program's help says.

_hearth_table() { "$1" help --table $2 2>/dev/null; }

_hearth() {
    local cur prev words cword
    _init_completion || return

    local command=${words[1]}
    if ((cword == 1)) || [[ $command == help && cword -eq 2 ]]; then
        local commands
        commands=$(_hearth_table "$1" | awk -F '\t' '$1 == "command" { print $3 }')
        ((cword == 1)) && commands+=" --help --version"
        COMPREPLY=($(compgen -W "$commands" -- "$cur"))
        return
    fi
    local options
    options=$(_hearth_table "$1" "$command" | awk -F '\t' '$1 == "option" { print $3 "\t" $4 }')
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$(cut -f 1 <<<"$options" | tr ',' '\n') --help" -- "$cur"))
        return
    fi
    if [[ $prev == -* ]]; then
        # An option with a choice says "one|another".
        local value
        value=$(awk -F '\t' -v name="$prev" '
            { n = split($1, names, ","); for (i = 1; i <= n; ++i) if (names[i] == name) print $2 }' <<<"$options")
        if [[ $value == *[a-z]*'|'* ]]; then
            COMPREPLY=($(compgen -W "${value//|/ }" -- "$cur"))
            return
        fi
    fi
    _filedir
} &&
    complete -F _hearth hearth
