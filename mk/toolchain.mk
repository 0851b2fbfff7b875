# Compilers, flags and where things are built.

ROOT_BUILD := build
GEN := $(ROOT_BUILD)/gen
VENV := .venv
DEMO_PYTHON = $(VENV)/bin/python
PREFIX ?= /usr/local
DESTDIR ?=
LLVM_VERSION ?= 16

ifeq ($(SAN),1)
BUILD := $(ROOT_BUILD)/san
else ifeq ($(PACKAGE),1)
BUILD := $(ROOT_BUILD)/package
else
BUILD := $(ROOT_BUILD)
endif

ifeq ($(V),1)
Q :=
say = @:
else
Q := @
say = @printf '  %-8s%s\n' "$(1)" "$(2)"
endif

# "?=" would keep make's own defaults, which --no-builtin-variables then takes away.
ifneq ($(filter default undefined,$(origin CXX)),)
CXX := g++
endif
ifneq ($(filter default undefined,$(origin CC)),)
CC := gcc
endif
ifneq ($(filter default undefined,$(origin AR)),)
AR := ar
endif
CLANG ?= clang-$(LLVM_VERSION)
CLANGXX ?= clang++-$(LLVM_VERSION)
LLVM_STRIP ?= llvm-strip-$(LLVM_VERSION)
LLVM_OBJDUMP ?= llvm-objdump-$(LLVM_VERSION)
CLANG_FORMAT ?= clang-format-$(LLVM_VERSION)
CLANG_TIDY ?= clang-tidy-$(LLVM_VERSION)
# Debian keeps bpftool in /usr/sbin, which is not on an ordinary user's PATH.
BPFTOOL ?= $(or $(shell PATH="$$PATH:/usr/sbin:/sbin" command -v bpftool),bpftool)
CCACHE ?= $(shell command -v ccache)
# A second checkout finds what the first one compiled; only the directory in the debug information differs.
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= 1

MULTIARCH := $(shell $(CC) -print-multiarch 2>/dev/null)
BPF_ARCH := $(patsubst x86_64,x86,$(patsubst aarch64,arm64,$(shell uname -m)))
BPF_CFLAGS := -target bpf -mcpu=v3 -D__TARGET_ARCH_$(BPF_ARCH) -std=gnu11 -O2 -g \
              -Wall -Wextra -Werror -I. -idirafter /usr/include/$(MULTIARCH)

WARNINGS := -Wall -Wextra -Werror -Wshadow
# bpftool writes C's name of bool into the skeletons: g++ takes it in C++, clang does not.
CLANG_CPPFLAGS := -D_Bool=bool
ifeq ($(findstring clang,$(CXX)),)
# g++ 12 sees overlapping copies in inlined std::string concatenation that are not there (GCC
# bug 105651).
WARNINGS += -Wno-restrict
endif
# PCH=1: precompiled headers (mk/rules.mk), g++ alone: clang++ has a format of its own for them. They change what g++ 12
# inlines, and it then gives three more warnings for good code: std::string's inlined copies again.
PCH ?= 0
ifeq ($(PCH),1)
PCH_WARNINGS := -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread
# ccache takes a precompiled header for what its .sum file says: equal in every checkout, unlike its contents.
export CCACHE_SLOPPINESS ?= pch_defines,time_macros
export CCACHE_PCH_EXTSUM ?= 1
endif
pch = $(if $(filter 1,$(PCH)),$(BUILD)/pch/$(1).h.gch)
with_pch = $(if $(filter 1,$(PCH)),-fpch-preprocess -include $(BUILD)/pch/$(1).h)

CPPFLAGS_ALL := -I. -I$(GEN) $(if $(findstring clang,$(CXX)),$(CLANG_CPPFLAGS)) $(CPPFLAGS)
CXXFLAGS_ALL := -std=c++20 -g -fno-omit-frame-pointer $(WARNINGS) $(PCH_WARNINGS) $(CXXFLAGS)
CFLAGS_ALL := -std=gnu11 -g -fno-omit-frame-pointer -Wall -Wextra -Werror $(CFLAGS)
LDFLAGS_ALL := -pthread $(LDFLAGS)
LDLIBS_ALL := -lbpf -ldw -lelf -lz -lzstd -lfmt $(LDLIBS)
# The program's own sources stand -Wconversion; gtest's and benchmark's macros do not.
STRICT := -Wconversion
# Debug information of the program: functions and lines, which stack traces need, and not variables: a quarter less CPU
# time for a file. `make DEBUG_INFO=-g` for a debugger. Packages have all of it, and a precompiled header must be compiled as
# the files that load it.
DEBUG_INFO ?= $(if $(filter 1,$(PACKAGE) $(PCH)),-g,-g1)

ifeq ($(PACKAGE),1)
# {fmt} is compiled in: each Debian has its libfmt under another name, and none has one to link statically.
CPPFLAGS_ALL += -DFMT_HEADER_ONLY
LDLIBS_ALL := $(filter-out -lfmt,$(LDLIBS_ALL))
LDFLAGS_ALL += -Wl,-z,relro -Wl,-z,now -Wl,--as-needed
endif

ifeq ($(SAN),1)
# Not optimized: -O1 with the sanitizers takes four times as long to compile.
SANITIZE := -O0 -fsanitize=address,undefined -fno-sanitize-recover=all
CXXFLAGS_ALL += $(SANITIZE)
LDFLAGS_ALL += $(SANITIZE)
else
CXXFLAGS_ALL += -O2
CFLAGS_ALL += -O2
endif

# The tree's version: the nearest tag where there is one, else the commit.
BASE_VERSION := 0.1.0
VERSION := $(or $(shell git describe --tags --dirty --match 'v*' 2>/dev/null | sed 's/^v//'),$(BASE_VERSION)$(shell git rev-parse --short HEAD 2>/dev/null | sed 's/^/+/'))
