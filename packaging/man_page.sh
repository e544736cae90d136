#!/bin/sh
# Writes hearth(1) from what the program says of itself: man_page.sh HEARTH VERSION > hearth.1.
set -eu
hearth=$1
version=$2

# As it stands, so that a line of help can be no request of roff.
as_is() {
  sed -e 's/\\/\\e/g' -e "s/^[.']/\\\\\&&/" -e 's/-/\\-/g'
}

# What one command's help says behind its first line: headings, and names of options with what they mean
# beside them or, where they are long, below them.
help_of() {
  "$hearth" help "$1" | sed -e 1d -e '/^Sizes take/,$d' | as_is | awk '
    /^ *$/ { next }
    /^[^ ].*:$/ { printf ".PP\n.B %s\n", $0; next }
    /^  [^ ]/ {
      sub(/^  /, "")
      meaning = ""
      if (match($0, /  +/)) {
        meaning = substr($0, RSTART + RLENGTH)
        $0 = substr($0, 1, RSTART - 1)
      }
      printf ".TP\n.B %s\n", $0
      if (meaning != "") print meaning
      next
    }
    { sub(/^ +/, ""); print }'
}

commands=$("$hearth" help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | grep -vx help)
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
for command in $commands; do
  first=$("$hearth" help "$command" | head -n 1 | as_is)
  printf '.SS hearth %s\n%s.\n.PP\n' "$command" "$first"
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
.SH EXAMPLES
.nf
hearth run MODEL.gguf \\-p "Once upon a time" \\-n 200
hearth serve MODEL.gguf \\-\\-memory 2.5G
.fi
END
