# What is built, found by name.

BPF_SOURCES := $(sort $(wildcard bpf/*.bpf.c))
BPF_OBJECTS := $(BPF_SOURCES:bpf/%.bpf.c=$(ROOT_BUILD)/bpf/%.bpf.o)
SKELETONS := $(BPF_SOURCES:bpf/%.bpf.c=$(GEN)/%.skel.h)
GENERATED := $(SKELETONS) $(GEN)/version.h

find_cpp = $(sort $(shell find $(1) -name '*.cpp' 2>/dev/null))
objects = $(patsubst %,$(BUILD)/obj/%.o,$(basename $(1)))

SYMBOLIZER_SOURCES := $(call find_cpp,symbolizer)
USER_SOURCES := $(filter-out user/main.cpp,$(call find_cpp,user))
LIBRARY := $(BUILD)/libdynprof.a
PROGRAM := $(BUILD)/dynprof-bpf

# Helpers beside the *_test.cpp files are linked in too.
UNIT_SOURCES := $(call find_cpp,tests/unit)
UNIT_C_SOURCES := $(sort $(wildcard tests/unit/*.c))
UNIT := $(BUILD)/tests/unit

TOOLS := $(patsubst tests/tools/%.cpp,$(BUILD)/tests/%,$(wildcard tests/tools/*.cpp))
BENCHES := $(patsubst tests/bench/%.cpp,$(BUILD)/bench/%,$(wildcard tests/bench/*.cpp))
TARGET_PROGRAMS := $(patsubst tests/programs/%.c,$(BUILD)/tests/programs/%,$(wildcard tests/programs/*.c)) \
                   $(patsubst tests/programs/%.cpp,$(BUILD)/tests/programs/%,$(wildcard tests/programs/*.cpp))

# Loaded into the targets of tests/faults, and into a dynprof-bpf that is refused things.
FAULT_LIBRARIES := $(patsubst tests/faults/native/%.c,$(ROOT_BUILD)/tests/faults/%.so,$(wildcard tests/faults/native/*.c))

FUZZERS := $(patsubst tests/fuzz/%_fuzz.cpp,%,$(wildcard tests/fuzz/*_fuzz.cpp))
FUZZ_REPLAYS := $(FUZZERS:%=$(BUILD)/fuzz/%)
# Sources that go easier on fuzzed input (checksums always match) are built anew for the replays.
FUZZING_SOURCES := $(sort $(shell grep -rl --include='*.cpp' FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION symbolizer user))
FUZZING_OBJECTS := $(FUZZING_SOURCES:%.cpp=$(BUILD)/obj/fuzzing/%.o)
LIBFUZZERS := $(FUZZERS:%=$(ROOT_BUILD)/libfuzzer/%)
# What no fuzz target calls need not be built once more. The replays are linked from the same sources, so that
# `make check` shows when one is missing.
LIBFUZZER_SOURCES := $(filter-out symbolizer/compare/% symbolizer/export/% symbolizer/profile/% symbolizer/report/%,$(SYMBOLIZER_SOURCES)) \
                     $(filter-out $(addprefix user/,$(addsuffix /%,cli session kernel process stacks torch waits live top doctor)),$(USER_SOURCES)) \
                     symbolizer/export/marshal_writer.cpp user/kernel/event_view.cpp
LIBFUZZER_LIBRARY := $(ROOT_BUILD)/libfuzzer/libdynprof.a
FUZZ_LIBRARY := $(BUILD)/fuzz/libdynprof.a

FORMATTED := $(shell find bpf user symbolizer cupti tests -name '*.[ch]' -o -name '*.cpp' 2>/dev/null)
