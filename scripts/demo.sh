#!/bin/bash
# make demo: starts demo/train.py as it is, attaches to it by pid, prints the report and the paths.
#   demo.sh PROGRAM PYTHON      PYTHON: one that can import torch
set -euo pipefail
cd "$(dirname "$0")/.."
program=$1
python=$2

output=demo-output/$(date +%Y%m%d-%H%M%S)
log=${output}.train.log
mkdir -p demo-output
# Compiled code of an earlier run would make every compile a cache hit.
cache=$(mktemp -d "${TMPDIR:-/tmp}/dynprof-demo-XXXXXX")
trainer=

# shellcheck disable=SC2317  # the trap calls it
finish() {
  if [[ -n ${trainer} ]]; then
    kill "${trainer}" 2>/dev/null || true
    wait "${trainer}" 2>/dev/null || true
  fi
  rm -rf "${cache}"
  scripts/own.sh demo-output
}
trap finish EXIT

# The training job runs as the person, only the profiler as root.
as_person=()
as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    printf 'error: the profiler needs root and there is no sudo\nhint: run as root: make demo\n' >&2
    exit 1
  fi
  # The question for the password comes before the training starts, not in the middle of it.
  sudo -v
  as_root=(sudo --preserve-env=PATH)
elif [[ -n ${SUDO_UID:-} && ${SUDO_UID} -ne 0 ]]; then
  as_person=(setpriv --reuid "${SUDO_UID}" --regid "${SUDO_GID}" --clear-groups env
             "HOME=$(getent passwd "${SUDO_UID}" | cut -d: -f6)")
  chown "${SUDO_UID}:${SUDO_GID}" "${cache}"
fi

printf '$ python demo/train.py &\n'
# What shows its output is no child of its own: those are recorded.
TORCHINDUCTOR_CACHE_DIR=${cache} "${as_person[@]}" "${python}" demo/train.py >"${log}" 2>&1 &
trainer=$!
tail -n +1 -f --pid="${trainer}" "${log}" 2>/dev/null | sed -u 's/^/  train | /' &

# torch's import takes seconds; the job then loads its data, and that is when one attaches.
for ((tenths = 0; tenths < 1800; tenths++)); do
  if grep -q 'loading data' "${log}" 2>/dev/null; then
    break
  fi
  if ! kill -0 "${trainer}" 2>/dev/null; then
    printf 'error: the training script ended early, see %s\n' "${log}" >&2
    exit 1
  fi
  sleep 0.1
done

printf '$ sudo dynprof-bpf --pid %d -o %s\n' "${trainer}" "${output}"
status=0
"${as_root[@]}" "${program}" --pid "${trainer}" -o "${output}" || status=$?
exit "${status}"
