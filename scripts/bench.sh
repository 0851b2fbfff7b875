#!/bin/bash
# make bench: runs what tests/bench holds, one after the other, on an otherwise idle machine.
#   bench.sh BUILD VENV
# Compiled benches run as they are; Python ones (bench_*.py) with the venv, and find the build in
# DYNPROF_BUILD. Output goes to the terminal and to build/bench/*.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
export DYNPROF_BUILD="${PWD}/$1" DYNPROF_VENV="${PWD}/$2"
mkdir -p "$1/bench"
status=0

run() {
  local name=$1
  shift
  printf '== %s\n' "${name}"
  "$@" 2>&1 | tee "${DYNPROF_BUILD}/bench/${name}.txt" || status=1
}

for source in tests/bench/*.cpp; do
  [[ -e ${source} ]] || continue
  name=$(basename "${source}" .cpp)
  run "${name}" "${DYNPROF_BUILD}/bench/${name}"
done
for script in tests/bench/bench_*.py; do
  [[ -e ${script} ]] || continue
  if [[ ! -x ${DYNPROF_VENV}/bin/python ]]; then
    printf 'error: no %s\nhint: make setup\n' "${DYNPROF_VENV}" >&2
    exit 1
  fi
  run "$(basename "${script}" .py)" "${DYNPROF_VENV}/bin/python" "${script}"
done
exit "${status}"
