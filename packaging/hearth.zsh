#compdef hearth
# Zsh completion for hearth: commands and options are what the program's help says.

_hearth() {
    local -a entries
    local command=$words[2]
    if ((CURRENT == 2)) || [[ $command == help && CURRENT -eq 3 ]]; then
        entries=(${(f)"$(hearth help --table 2>/dev/null | awk -F '\t' '$1 == "command" { gsub(":", "\\:", $5); print $3 ":" $5 }')"})
        _describe command entries
        return
    fi
    if [[ $PREFIX == -* ]]; then
        entries=(${(f)"$(hearth help --table $command 2>/dev/null | awk -F '\t' '
            $1 == "option" { gsub(":", "\\:", $5); n = split($3, names, ","); for (i = 1; i <= n; ++i) print names[i] ":" $5 }')"})
        _describe option entries
        return
    fi
    _files
}

_hearth "$@"
