#!/usr/bin/env bash
# Installs the Debian 12 packages that Hearth needs.
#   install_deps.sh build   what a build and its tests need, but for those of devices, which then skip
#   install_deps.sh bench   also OpenCL on the processor for those, and what the micro benchmarks need
#   install_deps.sh devices also a second OpenCL, for scripts/test_rusticl.sh
#   install_deps.sh clients what the tests of the server's clients and of the Python package need
#   install_deps.sh package what a build and the test of its Debian packages need
#   install_deps.sh ci      benchmarks, clients, formatting, fuzzing and the Arm cross build
set -euo pipefail

build=(cmake ninja-build g++ pkg-config ccache libfmt-dev libxxhash-dev libpcre2-dev
       libutf8proc-dev nlohmann-json3-dev libcli11-dev libhwy-dev libeigen3-dev libgtest-dev
       libgmock-dev liburing-dev coinor-libcbc-dev libedit-dev libz3-dev libboost-dev libjs-marked
       libjs-katex node-highlight.js libcurl4-openssl-dev libssl-dev curl
       opencl-c-headers)
bench=("${build[@]}" libbenchmark-dev ocl-icd-libopencl1 pocl-opencl-icd)
devices=("${bench[@]}" mesa-opencl-icd)
clients=("${build[@]}" python3-venv python3-dev chromium chromium-driver tmux)
package=("${build[@]}" dpkg-dev file lintian mmdebstrap systemd)
ci=("${bench[@]}" "${clients[@]}" git python3 groff-base clang-format clang-14 libclang-rt-14-dev universal-ctags
    g++-aarch64-linux-gnu qemu-user googletest oclgrind)

case "${1:-build}" in
  build) wanted=("${build[@]}") ;;
  bench) wanted=("${bench[@]}") ;;
  devices) wanted=("${devices[@]}") ;;
  clients) wanted=("${clients[@]}") ;;
  package) wanted=("${package[@]}") ;;
  ci) wanted=("${ci[@]}") ;;
  *) echo "usage: install_deps.sh build|bench|devices|clients|package|ci" >&2; exit 2 ;;
esac

missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
    missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "install_deps.sh: needs root or sudo to install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "Installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
