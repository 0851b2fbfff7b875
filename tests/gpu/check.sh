#!/bin/sh
# On a machine with an NVIDIA GPU and root: records a real torch.compile training job (Inductor and Triton,
# eager operations, cuBLAS, CUDA graphs) through libdynprof_cupti.so, runs the same work under
# torch.profiler, and compares: the same kernels, as often, as long, with arrows from the same calls.
#
#   sudo tests/gpu/check.sh [PYTHON]       PYTHON has a CUDA build of PyTorch; default: .venv/bin/python
#
# NOT YET RUN: it was written on machines without a GPU. What it prints under "answers" belongs into
# docs/concepts/gpu.md, "Only a GPU can tell".
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
python=${1:-$root/.venv/bin/python}
build=${DYNPROF_BUILD:-$root/build}
folder=$(mktemp -d "${TMPDIR:-/tmp}/dynprof-gpu-XXXXXX")
trap 'rm -rf "$folder"' EXIT

fail() {
  printf 'check.sh: %s\n' "$1" >&2
  exit "${2:-1}"
}

# Exit: 0 the same, 1 something differs or failed, 2 not set up, 77 there is no GPU.
[ "$(id -u)" = 0 ] || fail "needs root: BPF programs are loaded" 2
[ -x "$build/dynprof-bpf" ] || fail "$build/dynprof-bpf does not exist: run make" 2
[ -e "$build/libdynprof_cupti.so" ] || fail "$build/libdynprof_cupti.so does not exist: run make" 2
"$python" -c 'import torch' 2>/dev/null || fail "$python has no torch" 2
# The comparison itself, on traces it knows the answer for.
"$python" "$root/tests/gpu/compare.py" selftest || fail "compare.py does not find what differs"
[ -e /dev/nvidiactl ] || fail "no GPU here (/dev/nvidiactl does not exist): nothing was compared" 77
"$python" -c 'import torch; assert torch.cuda.is_available()' ||
  fail "there is a GPU, but torch in $python does not see it" 2

"$python" "$root/tests/gpu/compare.py" run --build "$build" --folder "$folder"
