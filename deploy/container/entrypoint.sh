#!/bin/sh
# Starts the server with what the environment says; further arguments are options of `hearth serve`.
#   HEARTH_MODEL          the GGUF file
#   HEARTH_HOST, _PORT    where it listens
#   HEARTH_MEMORY         its memory limit; without it the container's, less a margin
#   HEARTH_API_KEY_FILE   keys, one a line; without it HEARTH_OPTIONS needs --allow-no-key
#   HEARTH_OPTIONS        further options, separated by spaces
set -eu
[ -r "$HEARTH_MODEL" ] || {
  echo "hearth: there is no model at $HEARTH_MODEL: mount a folder with one and set HEARTH_MODEL" >&2
  exit 2
}
set -- serve "$HEARTH_MODEL" --host "$HEARTH_HOST" --port "$HEARTH_PORT" \
  ${HEARTH_MEMORY:+--memory "$HEARTH_MEMORY"} \
  ${HEARTH_API_KEY_FILE:+--api-key-file "$HEARTH_API_KEY_FILE"} ${HEARTH_OPTIONS:-} "$@"
exec hearth "$@"
