#!/bin/bash
# Set-up, in two steps that can be repeated at will (make remembers them by stamp files):
#   setup.sh packages [FILE]  installs the Debian packages of packages.txt, or of FILE, that are missing
#   setup.sh venv DIR         makes a virtual environment with tests/requirements.txt
# Runs as root, under sudo, or as a user who may use sudo. What it writes in the repository belongs
# to the person who typed the command. Package indexes are those of apt's and pip's own settings.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  printf 'error: %s\n' "$1" >&2
  shift
  printf 'hint: %s\n' "$@" >&2
  exit 1
}

# "sudo make" must neither leave root's files in the tree nor ignore the person's pip settings.
as_invoker() {
  if [[ $(id -u) -eq 0 && -n ${SUDO_UID:-} && ${SUDO_UID} -ne 0 ]]; then
    local pip_settings
    pip_settings=$(compgen -e PIP_ | paste -sd, || true)
    sudo -H -u "#${SUDO_UID}" ${pip_settings:+"--preserve-env=${pip_settings}"} -- "$@"
  else
    "$@"
  fi
}

as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    "$@"
  elif ! command -v sudo >/dev/null; then
    return 1
  elif [[ -t 0 ]]; then
    sudo -- "$@"
  else
    sudo -n -- "$@"
  fi
}

missing_packages() {
  local package
  for package in "$@"; do
    if [[ $(dpkg-query -W -f='${db:Status-Status}' "${package}" 2>/dev/null) != installed ]]; then
      printf '%s\n' "${package}"
    fi
  done
}

install_packages() {
  local wanted=("$@") missing
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    fail "this is no Debian: packages cannot be installed here" \
         "install what these Debian packages hold, then run: touch build/setup/packages.stamp" \
         "${wanted[*]}"
  fi
  mapfile -t missing < <(missing_packages "${wanted[@]}")
  if [[ ${#missing[@]} -eq 0 ]]; then
    return 0
  fi
  printf '  %-8s%s\n' APT "${missing[*]}"
  local log=build/setup/apt.log by_hand="sudo apt-get update && sudo apt-get install ${missing[*]}"
  mkdir -p build/setup
  # The first attempt spares the update where the package lists are there and fresh enough.
  if ! apt_get install "${missing[@]}" >"${log}" 2>&1; then
    apt_get update >>"${log}" 2>&1 || true
    if ! apt_get install "${missing[@]}" >>"${log}" 2>&1; then
      tail -n 5 "${log}" >&2
      if [[ $(id -u) -ne 0 ]] && ! as_root true 2>/dev/null; then
        fail "packages are missing and only root may install them: ${missing[*]}" "${by_hand}"
      fi
      fail "apt-get could not install: ${missing[*]} (see ${log})" \
           "check the network and /etc/apt/sources.list, then: ${by_hand}"
    fi
  fi
}

apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -y -q --no-install-recommends "$@" </dev/null
}

# torch has wheels for 3.10-3.13; 3.11 first, as Debian 12 has it. A python without headers would
# make Inductor's C++ wrappers fail to compile.
usable_python() {
  "$1" -I -c 'import os, sys, sysconfig, venv, ensurepip
assert (3, 10) <= sys.version_info[:2] <= (3, 13) and sys.implementation.name == "cpython"
assert os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))' >/dev/null 2>&1
}

find_python() {
  local minor candidate
  if [[ -n ${DYNPROF_PYTHON:-} ]]; then
    printf '%s\n' "${DYNPROF_PYTHON}"
    return 0
  fi
  for minor in 11 12 13 10; do
    for candidate in "/usr/bin/python3.${minor}" "$(command -v "python3.${minor}" || true)" \
                     "${HOME}/.pyenv/versions/3.${minor}".*/bin/python3; do
      if [[ -x ${candidate} ]] && usable_python "${candidate}"; then
        printf '%s\n' "${candidate}"
        return 0
      fi
    done
  done
  return 1
}

make_venv() {
  local venv=$1 python log=build/setup/pip.log
  # venv --clear would empty what the link leads to.
  [[ ! -L ${venv} ]] || fail "${venv} is a symbolic link" "rm ${venv}"
  if ! python=$(find_python); then
    install_packages python3.11 python3.11-venv python3.11-dev
    python=$(find_python) ||
      fail "no CPython 3.10-3.13 with venv and headers found" \
           "sudo apt-get install python3.11-venv python3.11-dev, or name one: DYNPROF_PYTHON=/path/to/python3 make setup"
  fi
  printf '  %-8s%s\n' VENV "${venv} ($("${python}" --version), torch 2.13.0: this takes some minutes)"
  mkdir -p build/setup
  scripts/own.sh build
  as_invoker "${python}" -m venv --clear "${venv}" ||
    fail "${python} -m venv failed" "sudo apt-get install python3.11-venv"
  local pip=(as_invoker "${venv}/bin/python" -m pip install --no-input -c tests/constraints.txt)
  # The CPU build where an index has one: it is a tenth of the size, and all that demo and tests use.
  if ! "${pip[@]}" 'torch==2.13.0+cpu' >"${log}" 2>&1; then
    printf '  %-8s%s\n' PIP "no CPU-only build of torch in pip's indexes: the default build (some GB)"
  fi
  if ! "${pip[@]}" -r tests/requirements.txt >>"${log}" 2>&1; then
    grep -i '^error' "${log}" | tail -n 5 >&2 || true
    fail "pip could not install tests/requirements.txt (see ${log})" \
         "check the network and pip's settings (pip config list), then: make setup"
  fi
}

case ${1:-} in
  packages)
    mapfile -t wanted < <(grep -v '^#' "${2:-scripts/packages.txt}")
    install_packages "${wanted[@]}"
    ;;
  venv) make_venv "${2:?directory}" ;;
  *) fail "usage: setup.sh packages [FILE] | venv DIR" "make setup runs both" ;;
esac
