# Bash completion for hearth: commands and options are what the program's help says.

_hearth() {
    local cur prev words cword
    _init_completion || return

    local command=${words[1]}
    if ((cword == 1)); then
        local commands
        commands=$("$1" help 2>/dev/null | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
        COMPREPLY=($(compgen -W "$commands --help --version" -- "$cur"))
        return
    fi
    if [[ $command == help ]]; then
        local commands
        commands=$("$1" help 2>/dev/null | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
        ((cword == 2)) && COMPREPLY=($(compgen -W "$commands" -- "$cur"))
        return
    fi
    local help
    help=$("$1" help "$command" 2>/dev/null)
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$(grep -oE '^  (-[a-zA-Z],)?--[a-z-]+' <<<"$help" |
            tr ',' '\n' | tr -d ' ')" -- "$cur"))
        return
    fi
    if [[ $prev == -* ]]; then
        # An option with a choice says "one|another" behind its name; one without a value has two blanks.
        local value
        value=$(sed -nE "s/^  (-[a-zA-Z],)?${prev} ([^ ]+).*/\\2/p" <<<"$help" | head -n 1)
        if [[ $value == *[a-z]*'|'* ]]; then
            COMPREPLY=($(compgen -W "${value//|/ }" -- "$cur"))
            return
        fi
    fi
    _filedir
} &&
    complete -F _hearth hearth
