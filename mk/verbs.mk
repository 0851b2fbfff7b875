# The verbs. "## text" after a verb is its line in `make help`.

.PHONY: all setup demo check test-interpreters check-unit check-load check-runtime check-style check-format faults kernels matrix clean-matrix \
        test-binaries unit fuzz fuzz-long fuzz-replays bench bench-cost format tidy reference install clean distclean help

all: $(PROGRAM)  ## build build/dynprof-bpf
	$(Q)scripts/own.sh $(ROOT_BUILD)

unit: $(UNIT)

fuzz-replays: $(FUZZ_REPLAYS)

test-binaries: $(UNIT) $(TOOLS) $(TARGET_PROGRAMS) $(FAULT_LIBRARIES)

# Each verb that needs the set-up builds in a second make: the first one looked for the compilers
# before they were installed.
setup: $(PACKAGES_STAMP) $(VENV_STAMP)  ## install the missing packages, make .venv
	$(Q)scripts/own.sh $(ROOT_BUILD) $(VENV)

demo: setup  ## train a small model, attach to it by pid, print the report; DEMO_PYTHON=... has another torch
	$(Q)$(MAKE) --no-print-directory all
	$(Q)scripts/demo.sh $(PROGRAM) $(DEMO_PYTHON)

check: setup test-interpreters  ## everything: style, unit tests (plain and sanitized), BPF load, real processes
	$(Q)for list in tests kernels; do scripts/setup.sh packages scripts/packages-$$list.txt || \
	  echo "note: the tests that need them are skipped"; done
	$(Q)$(MAKE) --no-print-directory all test-binaries
	$(Q)scripts/check.py --beside older-kernels,reading,untimed,build-san,unit-san,fuzz,tidy style unit load runtime
	$(Q)scripts/own.sh $(ROOT_BUILD)

# CPythons newer than those of Debian 12, where they are available.
test-interpreters: setup
	$(Q)scripts/interpreters.sh 3.14 3.15

check-style:  ## include edges, file sizes, documentation links, shellcheck, ruff, clang-format
	$(Q)scripts/check.py style

check-unit: unit  ## unit tests (no root); with SAN=1 the sanitized ones
	$(Q)scripts/check.py $(if $(filter 1,$(SAN)),unit-san,unit)

check-load: all $(TOOLS)  ## load every BPF program; instruction counts against tests/bpf/budget.txt
	$(Q)scripts/check.py load

check-runtime: all test-binaries $(VENV_STAMP)  ## real processes (root); PYTEST="-k stacks -x" narrows it
	$(Q)scripts/check.py runtime reading untimed

# Awkward targets, injected faults, hostile targets: hours. A short form is in `make check`.
faults: setup  ## faults and hostile targets, the long form (root); ARGS="hostile --seconds 600" narrows it
	$(Q)$(MAKE) --no-print-directory all test-binaries
	$(Q)$(MAKE) --no-print-directory SAN=1 all
	$(Q)$(VENV)/bin/python tests/faults/run.py $(ARGS)

# Emulated: some ten minutes for each kernel.
kernels: setup  ## boot Debian's kernels in QEMU and record on each (root); ARGS="--only 6.1" narrows it
	$(Q)scripts/setup.sh packages scripts/packages-kernels.txt
	$(Q)$(MAKE) --no-print-directory all test-binaries
	$(Q)$(VENV)/bin/python tests/kernels/run.py $(ARGS)

# Gigabytes of wheels, one combination after the other: hours.
matrix: setup test-interpreters  ## the real job under each CPython and torch there is; docs/compatibility.md (root)
	$(Q)$(MAKE) --no-print-directory all test-binaries
	$(Q)$(VENV)/bin/python tests/matrix/run.py $(ARGS)

clean-matrix:  ## remove what make matrix keeps in the cache directory
	rm -rf "$${DYNPROF_CACHE:-$$HOME/.cache/dynprof-bpf}/matrix"

check-format:
	$(Q)$(CLANG_FORMAT) --dry-run -Werror $(FORMATTED)

fuzz: $(LIBFUZZERS)  ## build the libFuzzer targets into build/libfuzzer
	@printf 'run e.g.: %s -max_total_time=60\n' $(LIBFUZZERS)

FUZZ_SECONDS ?= 600
fuzz-long: $(LIBFUZZERS)  ## each libFuzzer target for ten minutes (FUZZ_SECONDS=…), from real seeds
	$(Q)scripts/fuzz.py $(FUZZ_SECONDS) $(FUZZERS)

bench: all $(BENCHES) $(TARGET_PROGRAMS)  ## overhead and throughput, measured here
	$(Q)scripts/bench.sh $(BUILD) $(VENV)

bench-cost: all  ## what a recording costs the target, beside perf record -g, by the target's CPU clock (root)
	$(Q)$(VENV)/bin/python tests/bench/bench_cost.py $(ARGS)

format:  ## rewrite the sources with clang-format, sort the imports of the Python files with ruff
	$(Q)$(CLANG_FORMAT) -i $(FORMATTED)
	$(Q)if [ -x $(VENV)/bin/ruff ]; then $(VENV)/bin/ruff check --no-cache --select I --fix -q .; fi

# What passed before and did not change since is not checked again: scripts/tidy.py.
tidy: $(GENERATED)  ## clang-tidy over symbolizer/, user/ and cupti/; ARGS="--no-cache" checks all anew
	$(Q)scripts/tidy.py --program $(CLANG_TIDY) $(ARGS) -- -std=c++20 $(CPPFLAGS_ALL) $(CLANG_CPPFLAGS)

reference: all  ## rewrite the generated pages of docs/reference
	$(Q)packaging/reference.py $(PROGRAM)

install: all $(BUILD)/dynprof-bpf.1  ## PREFIX (/usr/local) and DESTDIR are honoured
	install -D -m 755 $(PROGRAM) $(DESTDIR)$(PREFIX)/bin/dynprof-bpf
	install -D -m 755 $(CUPTI_LIBRARY) $(DESTDIR)$(PREFIX)/lib/dynprof-bpf/libdynprof_cupti.so
	install -D -m 644 $(BUILD)/dynprof-bpf.1 $(DESTDIR)$(PREFIX)/share/man/man1/dynprof-bpf.1

clean:  ## remove build/ (the venv stays; distclean removes it too)
	rm -rf $(ROOT_BUILD)

distclean: clean
	rm -rf $(VENV) demo-output

help:  ## this text
	@echo 'usage: make [verb] [V=1] [SAN=1]'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1@\2/p' mk/verbs.mk | awk -F@ '{printf "%-17s%s\n", $$1, $$2}'
