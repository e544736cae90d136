#!/bin/sh
# Writes hearth(1) and a page for every command, such as hearth-run(1), from what the program says of
# itself: man_pages.sh HEARTH VERSION FOLDER.
set -eu
hearth=$1
version=$2
folder=$3
mkdir -p "$folder"
rm -f "$folder"/hearth*.1

# As it stands, so that a line of help can be no request of roff.
as_is() {
  sed -e 's/\\/\\e/g' -e "s/^[.']/\\\\\&&/" -e 's/-/\\-/g'
}

# NAME of the page, in capitals; its line of NAME.
begin() {
  printf '.TH %s 1 "" "Hearth %s" "User Commands"\n.SH NAME\n%s\n' "$1" "$version" "$2"
}

commands() {
  "$hearth" help --table | awk -F '\t' '$1 == "command" && $3 != "help" { print $3 "\t" $5 }'
}

exit_status() {
  cat <<END
.SH EXIT STATUS
0 done, 1 failed, 2 wrong usage; a failure is one sentence on standard error.
END
}

# Arguments and options of one command by group, and its examples.
command_page() {
  begin "HEARTH\\-$(printf '%s' "$1" | tr '[:lower:]' '[:upper:]')" \
    "hearth\\-$1 \\- $(printf '%s' "$2" | as_is)"
  "$hearth" help --table "$1" | as_is | awk -F '\t' '
    $1 == "usage" { printf ".SH SYNOPSIS\n.B %s\n", $3; next }
    $1 == "example" { examples = examples $3 "\n"; next }
    $2 != group { group = $2; printf ".SH %s\n", toupper(group) }
    { printf ".TP\n.B %s%s\n%s\n", $3, ($4 == "" ? "" : " " $4), $5 }
    END { if (examples != "") printf ".SH EXAMPLES\n.nf\n%s.fi\n", examples }'
  exit_status
  printf '.SH SEE ALSO\n.BR hearth (1)\n'
}

main_page() {
  begin HEARTH 'hearth \- run large language models inside a memory limit'
  cat <<END
.SH SYNOPSIS
.B hearth
.I COMMAND
[\\fIOPTIONS\\fR]
.SH DESCRIPTION
Hearth runs large language models on one machine whose memory is smaller than the model, inside a memory
limit that you set. What a command takes is on a page of its own, such as \\fBhearth\\-run\\fR(1), and
\\fBhearth help\\fR \\fICOMMAND\\fR says it too.
.PP
Sizes take K, M, G (powers of 1024), as in \\fB\\-\\-memory 2.5G\\fR.
.SH COMMANDS
END
  commands | as_is | awk -F '\t' '{ printf ".TP\n.BR hearth\\-%s (1)\n%s\n", $1, $2 }'
  exit_status
  cat <<END
.SH FILES
.TP
.I /etc/hearth/hearth.conf
what \\fBhearth.service\\fR serves
.TP
.I ~/.cache/hearth
what \\fBhearth doctor\\fR, \\fBhearth pack\\fR and \\fBhearth plan\\fR learned of machine and models
.TP
.I ~/.local/state/hearth/history
what was typed in chats
END
}

main_page >"$folder/hearth.1"
commands | while IFS="$(printf '\t')" read -r command meaning; do
  command_page "$command" "$meaning" >"$folder/hearth-$command.1"
done
