#!/bin/sh
# Writes hearth(1) from what the program says of itself: man_page.sh HEARTH VERSION > hearth.1.
set -eu
hearth=$1
version=$2

# As it stands, so that a line of help can be no request of roff.
as_is() {
  sed -e 's/\\/\\e/g' -e "s/^[.']/\\\\\&&/" -e 's/-/\\-/g'
}

# Groups of arguments and options of one command, and its examples.
help_of() {
  "$hearth" help --table "$1" | as_is | awk -F '\t' '
    $1 == "usage" { printf ".B %s\n", $3; next }
    $1 == "example" { examples = examples $3 "\n"; next }
    $2 != group { group = $2; printf ".PP\n.B %s:\n", group }
    { printf ".TP\n.B %s%s\n%s\n", $3, ($4 == "" ? "" : " " $4), $5 }
    END { if (examples != "") printf ".PP\n.B Examples:\n.PP\n.nf\n%s.fi\n", examples }'
}

cat <<END
.TH HEARTH 1 "" "Hearth $version" "User Commands"
.SH NAME
hearth \\- run large language models inside a memory limit
.SH SYNOPSIS
.B hearth
.I COMMAND
[\\fIOPTIONS\\fR]
.SH DESCRIPTION
Hearth runs large language models on one machine whose memory is smaller than the model, inside a memory
limit that you set. What each command takes is below, and \\fBhearth help\\fR \\fICOMMAND\\fR says it too.
.PP
Sizes take K, M, G (powers of 1024), as in \\fB\\-\\-memory 2.5G\\fR.
.SH COMMANDS
END
"$hearth" help --table | awk -F '\t' '$1 == "command" && $3 != "help" { print $3 "\t" $5 }' |
  while IFS="$(printf '\t')" read -r command meaning; do
    printf '.SS hearth %s\n%s.\n.PP\n' "$command" "$(printf '%s' "$meaning" | as_is)"
    help_of "$command"
  done
cat <<END
.SH EXIT STATUS
0 done, 1 failed, 2 wrong usage; a failure is one sentence on standard error.
.SH FILES
.TP
.I /etc/hearth/hearth.conf
what \\fBhearth.service\\fR serves
.TP
.I ~/.cache/hearth
what \\fBhearth doctor\\fR and \\fBhearth plan\\fR measured
.TP
.I ~/.local/state/hearth/history
what was typed in chats
END
