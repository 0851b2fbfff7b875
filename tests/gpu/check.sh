#!/bin/sh
# On a machine with an NVIDIA GPU and root: checks dynprof-bpf on real torch.compile jobs there.
#
#   sudo tests/gpu/check.sh [--short] [-o FOLDER] [PYTHON [CHECK...]]
#
# PYTHON has a CUDA build of PyTorch; default: .venv/bin/python. FOLDER keeps the recordings and traces. The checks:
#
#   compare   a training job (Inductor and Triton, eager operations, cuBLAS, CUDA graphs) recorded through
#             libdynprof_cupti.so, and the same under torch.profiler: the same kernels, as often, as long, with arrows from
#             the same calls; and by probes: launches of the same kernels
#   live      a job that was started without the library, recorded every 10 seconds for ten minutes; 1,000 steps; before and
#             after torch.profiler (--short: eight recordings, one after another)
#   cost      a training step of many launches: bare, sampled, by probes, with the library, idle after it, torch.profiler
#             (--short: five rounds)
#   ranks     two ranks that torchrun started, and a DataLoader's worker of each
#   others    a job that Nsight Systems or Nsight Compute started, where they are installed
#   session   what CUPTI alone costs a launch, on and afterwards, and whether launching threads survive its sessions; needs nvcc
#
# DYNPROF_BUILD: a folder with dynprof-bpf and libdynprof_cupti.so instead of build/. What was found so far is in
# docs/concepts/gpu.md.
# Exit: 0 the same, 1 something differs or failed, 2 not set up, 77 there is no GPU.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
build=${DYNPROF_BUILD:-$root/build}
folder=
rounds=60 every=10 cost_rounds=20

fail() {
  printf 'check.sh: %s\n' "$1" >&2
  exit "${2:-1}"
}

while [ $# -gt 0 ]; do
  case $1 in
    --short) rounds=8 every=0 cost_rounds=5 ;;
    -o) shift && folder=$1 && mkdir -p "$folder" ;;
    -*) fail "unknown option $1" 2 ;;
    *) break ;;
  esac
  shift
done
python=${1:-$root/.venv/bin/python}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- compare live ranks others cost session
if [ -z "$folder" ]; then
  folder=$(mktemp -d "${TMPDIR:-/tmp}/dynprof-gpu-XXXXXX")
  trap 'rm -rf "$folder"' EXIT
fi

export DYNPROF_BUILD="$build"  # for what shows where a job hangs
[ "$(id -u)" = 0 ] || fail "needs root: BPF programs are loaded" 2
[ -x "$build/dynprof-bpf" ] || fail "$build/dynprof-bpf does not exist: run make" 2
[ -e "$build/libdynprof_cupti.so" ] || fail "$build/libdynprof_cupti.so does not exist: run make" 2
# The comparison itself, on traces it knows the answer for.
"$python" "$root/tests/gpu/compare.py" selftest || fail "compare.py does not find what differs"
[ -e /dev/nvidiactl ] || fail "no GPU here (/dev/nvidiactl does not exist): nothing was compared" 77
"$python" -c 'import torch; assert torch.cuda.is_available()' ||
  fail "$python has no torch, or its torch does not see the GPU" 2

# CUPTI as torch maps it. Sessions as the library has them must leave the threads unharmed; of the others it is printed.
session() {
  command -v nvcc >/dev/null || { echo "  not run: no nvcc"; return 0; }
  library=$("$python" -c 'import torch
print(next(line.split()[5] for line in open("/proc/self/maps") if "libcupti" in line))')
  nvcc -O2 -arch=native -cudart static -o "$1/cupti_session" "$root/tests/gpu/cupti_session.cu"
  "$1/cupti_session" "$library"
  "$1/cupti_session" "$library" choices
  for way in early freed unforced exit; do
    timeout 30 "$1/cupti_session" "$library" stress $way 100 || echo "  $way: status $?"
  done
  timeout 30 "$1/cupti_session" "$library" stress plain 100
}

failed=0
for check; do
  printf '%s:\n' "$check"
  mkdir -p "$folder/$check"
  case $check in
    compare) set -- compare.py run ;;
    live) set -- live.py --rounds "$rounds" --every "$every" ;;
    ranks | others) set -- "$check.py" ;;
    cost) set -- launch_cost.py --rounds "$cost_rounds" ;;
    session)
      session "$folder/$check" || failed=1
      continue
      ;;
    *) fail "unknown check $check: compare, live, ranks, others, cost or session" 2 ;;
  esac
  program=$1 && shift
  PYTHONUNBUFFERED=1 "$python" "$root/tests/gpu/$program" "$@" --build "$build" --folder "$folder/$check" || failed=1
done
exit "$failed"
