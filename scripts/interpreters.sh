#!/bin/bash
# Debian unstable's CPythons, for tests on versions that Debian 12 lacks: interpreters.sh VERSION...
# Unpacks the packages, with all that they need, below the cache directory (DYNPROF_CACHE, else
# ~/.cache/dynprof-bpf); nothing is installed. INTERPRETERS/bin/python3.X runs one: in a mount namespace
# of its own, in which that tree's /usr stands in for this machine's. Needs root and unshare(1).
# Where the packages are not available it says so in one line and succeeds: the tests then run without.
set -euo pipefail

readonly cache=${DYNPROF_CACHE:-${HOME}/.cache/dynprof-bpf}
readonly folder=${cache}/interpreters

give_up() {
  printf 'note: %s: tests run without CPython %s\n' "$1" "${versions[*]}" >&2
  exit 0
}

# apt with sources, lists and a package database of its own; its database is empty, so that
# dependencies are not taken from this machine.
apt_unstable() {
  apt-get -q -y -o Dir::Etc::sourcelist="${folder}/apt/sources.list" -o Dir::Etc::sourceparts=- \
    -o Dir::State="${folder}/apt/state" -o Dir::State::status="${folder}/apt/status" \
    -o Dir::Cache="${folder}/apt/cache" -o APT::Sandbox::User=root "$@"
}

mirror() {
  { cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true; } | grep -v '^#' |
    grep -oE 'https?:[^ ]+/debian/?( |$)' | tr -d ' ' | sort -u | head -n 1
}

unpack() {
  mkdir -p "${folder}"/apt/{state/lists/partial,cache/archives/partial} "${folder}/root"
  : >"${folder}/apt/status"
  printf 'deb %s sid main\n' "$1" >"${folder}/apt/sources.list"
  apt_unstable update && apt_unstable install --download-only --no-install-recommends "${packages[@]}" || return
  local archive
  for archive in "${folder}"/apt/cache/archives/*.deb; do
    dpkg-deb -x "${archive}" "${folder}/root" || return
  done
  rm -rf "${folder}/apt/cache/archives"
}

write_runner() {
  mkdir -p "${folder}/bin"
  cat >"${folder}/bin/python$1" <<RUNNER
#!/bin/sh
exec unshare -m sh -c 'mount --bind "${folder}/root/usr" /usr && exec "\$0" "\$@"' /usr/bin/python$1 "\$@"
RUNNER
  chmod 755 "${folder}/bin/python$1"
}

versions=("$@")
packages=("${versions[@]/#/python}" libstdc++6)  # libraries of the tests are in C++
[[ $(cat "${folder}/packages" 2>/dev/null) != "${packages[*]}" ]] || exit 0
[[ $(id -u) -eq 0 ]] || give_up "only root can run them"
command -v apt-get dpkg-deb unshare >/dev/null || give_up "this is no Debian"
source=$(mirror) || give_up "no Debian mirror in apt's sources"
printf '  %-8s%s\n' PYTHONS "${versions[*]} from Debian unstable, unpacked in ${folder}"
rm -rf "${folder}"
mkdir -p "${folder}"
unpack "${source}" >"${cache}/interpreters.log" 2>&1 || give_up "the packages are not available (see ${cache}/interpreters.log)"
for version in "${versions[@]}"; do
  write_runner "${version}"
  "${folder}/bin/python${version}" -c 'import ssl' || give_up "it does not run here"
done
printf '%s\n' "${packages[*]}" >"${folder}/packages"
