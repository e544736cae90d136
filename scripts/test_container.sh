#!/usr/bin/env bash
# Runs the steps of deploy/container/Dockerfile in a plain Debian 12 (mmdebstrap) in place of images, which
# cannot be pulled everywhere, then the container's entrypoint as its user, and asks the server. Checks
# the Kubernetes objects against the API's schemas. Needs root. Not in CI: it builds everything anew.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh package
work=$(mktemp -d)
leave() {
  for root in "$work"/build "$work"/run; do
    for place in proc dev; do
      mountpoint -q "$root/$place" && umount -l "$root/$place"
    done
  done
  rm -rf --one-file-system "$work"
}
trap leave EXIT

echo "== Kubernetes objects"
venv=build/deploy-venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check kubernetes-validate
"$venv/bin/kubernetes-validate" --strict deploy/kubernetes/*.yaml

echo "== the Dockerfile's steps"
mmdebstrap --quiet --variant=minbase --include=ca-certificates bookworm "$work/plain.tar"
new_root() {
  mkdir -p "$1" && tar -xf "$work/plain.tar" -C "$1"
  cp /etc/resolv.conf "$1/etc/resolv.conf"
  mount --bind /dev "$1/dev"
  chroot "$1" mount -t proc proc /proc
}
declare -A roots
user=0 directory=/
settings=()
# Lines that end with a backslash go on; none but these instructions are known.
while read -r word rest; do
  case "$word" in
    FROM)
      read -r _ _ name <<<"$rest" || true
      root=$work/${name:-run}
      roots[${name:-run}]=$root user=0 directory=/ settings=()
      new_root "$root" ;;
    WORKDIR) directory=$rest; mkdir -p "$root$rest" ;;
    USER) user=$rest ;;
    ENV) read -ra more <<<"$rest"; settings+=("${more[@]}") ;;
    COPY)
      if [[ $rest == --from=* ]]; then
        read -r from source target <<<"$rest"
        cp -a "${roots[${from#--from=}]}$source" "$root$target"
      elif [[ $rest == ". "* ]]; then
        mkdir -p "$root${rest#. }" && git ls-files -z | xargs -0 cp --parents -t "$root${rest#. }"
      else
        read -r source target <<<"$rest"
        cp -a "$source" "$root$target"
      fi ;;
    RUN)
      chroot --userspec="$user" "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        DEBIAN_FRONTEND=noninteractive "${settings[@]}" sh -ec "cd '$directory'; $rest" >"$work/log" 2>&1 ||
        { tail -n 30 "$work/log" >&2; echo "failed: RUN $rest" >&2; exit 1; } ;;
    EXPOSE | HEALTHCHECK | STOPSIGNAL | ENTRYPOINT) ;;
    *) echo "test_container.sh: unknown instruction $word" >&2; exit 1 ;;
  esac
done < <(grep -v '^ *#' deploy/container/Dockerfile | grep -v '^$')

echo "== the server"
mkdir -p "$root/models" && cp models/hearth-stories-5m.gguf "$root/models/model.gguf"
chroot --userspec=10001:10001 "$root" /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin "${settings[@]}" \
  HEARTH_HOST=127.0.0.1 HEARTH_PORT=18080 /usr/local/bin/hearth-entrypoint &
server=$!
for _ in $(seq 100); do
  curl -fsS http://127.0.0.1:18080/health >/dev/null 2>&1 && break
  sleep 0.1
done
curl -fsS http://127.0.0.1:18080/v1/completions -H 'Content-Type: application/json' \
  -d '{"prompt": "Once upon a time", "max_tokens": 8}' | grep -q '"text"'
kill -TERM "$server"
wait "$server"
du -sh --exclude=proc --exclude=dev "$root" | sed 's/\t.*/ in the image/'
echo "the container works"
