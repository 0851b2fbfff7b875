# dynprof-bpf: GNU make 4.3 or newer. `make help` lists the verbs.
#
#   V=1      print whole command lines instead of one word per file
#   SAN=1    AddressSanitizer and UBSan, in a build directory of its own (build/san)
#   PACKAGE=1  as packages have it, in a build directory of its own (build/package)
#   PCH=1    with precompiled headers: less CPU time for a file (g++ only)
#   DEBUG_INFO=-g  variables for a debugger
#   CXX=…    another compiler (g++ 12 and clang++-16 are tried)
#
# Sources are found by globbing: a new .cpp under user/ or symbolizer/ is in the program, a new
# *_test.cpp under tests/unit/ in the unit tests, with nothing to add here.

MAKEFLAGS += --no-builtin-rules --no-builtin-variables
.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

# All cores unless the caller chose a -j.
ifeq ($(MAKELEVEL),0)
ifeq ($(filter -j% --jobs%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc)
endif
endif

include mk/toolchain.mk
include mk/sources.mk
include mk/rules.mk
include mk/verbs.mk
include mk/cupti.mk
include mk/packages.mk

-include $(shell find $(ROOT_BUILD) -name '*.d' 2>/dev/null)
