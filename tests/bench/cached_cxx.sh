#!/bin/bash
# A C++ compiler that compiles each source once: CACHED_CXX_DIR holds what was made of it. For benchmarks of the process
# that starts compilers, which is to do so but not to wait for them.
set -euo pipefail
output='' source=''
for ((i = 1; i <= $#; i++)); do
  case ${!i} in
    -o) next=$((i + 1)); output=${!next} ;;
    *.cpp) source=${!i} ;;
  esac
done
[[ -n ${output} && -n ${source} ]] || exec g++ "$@"
key=$(sha256sum <"${source}")
kept=${CACHED_CXX_DIR}/${key%% *}.${output##*.}
if [[ ! -f ${kept} ]]; then
  g++ "$@"
  cp "${output}" "${kept}.$$"
  mv "${kept}.$$" "${kept}"
fi
cp "${kept}" "${output}"
