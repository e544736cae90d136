# Fish completion for hearth: commands and options are what the program's help says.

function __hearth_commands
    hearth help --table 2>/dev/null | awk -F '\t' '$1 == "command" { print $3 "\t" $5 }'
end

function __hearth_options
    set -l words (commandline -opc)
    hearth help --table $words[2] 2>/dev/null | awk -F '\t' '
        $1 == "option" { n = split($3, names, ","); for (i = 1; i <= n; ++i) print names[i] "\t" $5 }'
end

complete -c hearth -n __fish_use_subcommand -f -a '(__hearth_commands)'
complete -c hearth -n '__fish_seen_subcommand_from help' -f -a '(__hearth_commands)'
complete -c hearth -n 'not __fish_use_subcommand; and string match -q -- "-*" (commandline -ct)' -f -a '(__hearth_options)'
