#!/bin/sh
# On a machine with an NVIDIA GPU and root: records a real torch.compile training job (Inductor and Triton,
# eager operations, cuBLAS, CUDA graphs) through libdynprof_cupti.so, runs the same work under
# torch.profiler, and compares: the same kernels, as often, as long, with arrows from the same calls.
#
#   sudo tests/gpu/check.sh [PYTHON]       PYTHON has a CUDA build of PyTorch; default: .venv/bin/python
#
# NOT YET RUN: it was written on machines without a GPU. What it prints under "answers" belongs into
# docs/gpu.md, "Only a GPU can tell".
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
python=${1:-$root/.venv/bin/python}
build=${DYNPROF_BUILD:-$root/build}
folder=$(mktemp -d "${TMPDIR:-/tmp}/dynprof-gpu-XXXXXX")
trap 'rm -rf "$folder"' EXIT

fail() {
  printf 'check.sh: %s\n' "$1" >&2
  exit 1
}

[ "$(id -u)" = 0 ] || fail "needs root: BPF programs are loaded"
[ -x "$build/dynprof-bpf" ] || fail "$build/dynprof-bpf does not exist: run make"
command -v nvidia-smi >/dev/null || fail "no nvidia-smi: is there a GPU?"
"$python" -c 'import torch; assert torch.cuda.is_available()' || fail "$python has no torch with CUDA"

"$python" "$root/tests/gpu/compare.py" run --build "$build" --folder "$folder"
