#!/bin/bash
# Gives paths back to the person who typed `sudo make …`. Does nothing otherwise.
set -euo pipefail

if [[ $(id -u) -eq 0 && -n ${SUDO_UID:-} && ${SUDO_UID} -ne 0 ]]; then
  for path in "$@"; do
    if [[ -e ${path} ]]; then
      chown -R --no-dereference "${SUDO_UID}:${SUDO_GID:-${SUDO_UID}}" "${path}"
    fi
  done
fi
