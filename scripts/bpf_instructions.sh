#!/bin/bash
# Prints the instruction count of each program and function of a BPF object: one line a function.
# (What the verifier walks is another number: `make check-load` measures that.)
set -euo pipefail

"${LLVM_OBJDUMP:-llvm-objdump-16}" -t "$1" | while read -r _ _ kind rest; do
  # "0000000000000000 g     F perf_event	0000000000000a58 on_sample"
  if [[ ${kind} == F ]]; then
    read -r section size name <<<"${rest}"
    printf '          %-28s %6d instructions  (%s)\n' "${name}" $((16#${size} / 8)) "${section}"
  fi
done
