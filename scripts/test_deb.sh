#!/usr/bin/env bash
# Builds the Debian packages and treats them as a user would: lintian, the service's settings, an
# installation into a fresh Debian 12 (mmdebstrap), where the program tells a story, a C program is
# compiled against the library, and everything is removed again. Needs root, and lintian, mmdebstrap and
# systemd (for systemd-analyze): scripts/install_deps.sh package.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh package
build=build/deb
rm -f "$build"/*.deb
cmake --preset deb >/dev/null
cmake --build --preset deb -- --quiet
cpack --preset deb >/dev/null
packages=("$build"/*.deb)
[ ${#packages[@]} -eq 3 ] || { echo "expected 3 packages, found: ${packages[*]}" >&2; exit 1; }

echo "== lintian"
# What these packages are not: part of Debian, with a bug that asked for them. CPack calls ldconfig itself.
lintian --allow-root --fail-on error,warning --tag-display-limit 0 \
  --suppress-tags initial-upload-closes-no-bugs,bogus-mail-host,maintscript-calls-ldconfig "${packages[@]}"

work=$(mktemp -d)
root=$work/root
leave() {
  for place in proc sys dev; do
    mountpoint -q "$root/$place" && umount -l "$root/$place"
  done
  rm -rf --one-file-system "$work"
}
trap leave EXIT

echo "== the service's settings"
# verify wants to see the program that the unit starts.
sed "s|^ExecStart=/usr/bin/hearth|ExecStart=$PWD/$build/bin/hearth|; /^Documentation=/d" \
  "$build/packaging/hearth.service" >"$work/hearth.service"
systemd-analyze verify --man=no "$work/hearth.service"
# The scale is tenths: up to 2.0 is "OK", 10 is unprotected.
systemd-analyze security --offline=true --threshold=20 --no-pager "$work/hearth.service" | tail -n 1

echo "== a fresh Debian 12"
mmdebstrap --quiet --variant=minbase --include=ca-certificates bookworm "$root"
cp /etc/resolv.conf "$root/etc/resolv.conf"
mkdir "$root/packages"
cp "${packages[@]}" models/hearth-stories-5m.gguf "$root/packages/"
mount --bind /dev "$root/dev"
chroot "$root" mount -t proc proc /proc
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
  DEBIAN_FRONTEND=noninteractive "$@"; }
inside apt-get update -qq
inside sh -c "apt-get install -y -qq --no-install-recommends /packages/hearth_*.deb >/dev/null"
inside hearth --version
story=(-p "Once upon a time" -n 40 --seed 1)
inside hearth run /packages/hearth-stories-5m.gguf "${story[@]}" >"$work/by_package" 2>/dev/null
"$build/bin/hearth" run models/hearth-stories-5m.gguf "${story[@]}" >"$work/by_build" 2>/dev/null
cmp "$work/by_package" "$work/by_build"
inside test -f /etc/hearth/hearth.conf -a -f /lib/systemd/system/hearth.service \
  -a -f /usr/share/man/man1/hearth.1.gz
# A changed configuration survives a second installation.
inside sh -c 'echo "# mine" >> /etc/hearth/hearth.conf'
inside sh -c "dpkg -i --force-confold /packages/hearth_*.deb >/dev/null"
inside grep -q "^# mine" /etc/hearth/hearth.conf

inside sh -c 'apt-get install -y -qq --no-install-recommends /packages/libhearth*.deb gcc libc6-dev \
  pkg-config >/dev/null'
inside sh -c 'cc -Wall -Wextra -Werror -std=c99 -pedantic \
  /usr/share/doc/libhearth-dev/examples/story.c -o /tmp/story $(pkg-config --cflags --libs hearth)'
inside /tmp/story /packages/hearth-stories-5m.gguf "Once upon a time" >"$work/by_library"
grep -q "^Once upon a time" "$work/by_library"

echo "== removed again"
inside apt-get purge -y -qq hearth 'libhearth*' >/dev/null
inside sh -c 'find / -xdev -iname "*hearth*" -not -path "/packages*" -not -path "/proc/*" \
  -not -path "/var/cache/apt/*" -not -path "/var/log/*"' >"$work/left"
if [ -s "$work/left" ]; then
  echo "left behind:" >&2
  cat "$work/left" >&2
  exit 1
fi
echo "the packages work"
