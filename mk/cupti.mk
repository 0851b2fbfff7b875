# The library that runs inside a CUDA process, and what stands in for CUDA in its tests.

# ---- build/libdynprof_cupti.so: needs libc, nothing else -----------------------------------------
CUPTI_LIBRARY := $(ROOT_BUILD)/libdynprof_cupti.so
CUPTI_SOURCES := $(call find_cpp,cupti)
CUPTI_OBJECTS := $(CUPTI_SOURCES:%.cpp=$(ROOT_BUILD)/obj/cupti.so/%.o)
# Not sanitized: a sanitizer's run-time library has no place in somebody else's process.
CUPTI_CXXFLAGS := -std=c++20 -O2 -g -fPIC -fvisibility=hidden -fno-exceptions -fno-rtti \
                  -fno-threadsafe-statics -fno-omit-frame-pointer $(WARNINGS) $(STRICT)

$(ROOT_BUILD)/obj/cupti.so/%.o: %.cpp
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CCACHE) $(CXX) -I. $(CUPTI_CXXFLAGS) -MMD -MP -c $< -o $@

# Linked by the C compiler, so that libstdc++ cannot slip in.
$(CUPTI_LIBRARY): $(CUPTI_OBJECTS)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -o $@ $^ -nodefaultlibs -lc -Wl,-soname,libdynprof_cupti.so -Wl,-z,defs \
	 -Wl,-z,nodelete -Wl,-z,relro -Wl,--hash-style=gnu -Wl,--as-needed

# ---- the fakes: build/tests/fakes/{libcuda.so.1,libcudart.so.13,libcupti.so.13} and so on ------
comma := ,
FAKES := $(ROOT_BUILD)/tests/fakes
FAKE_CFLAGS := -std=gnu11 -O2 -g -fPIC -fno-omit-frame-pointer -Wall -Wextra -Werror -I. -pthread
FAKE_LIBRARIES := $(FAKES)/libcuda.so.1 $(FAKES)/libcudart.so.13 $(FAKES)/libcupti.so.13 \
  $(FAKES)/libcublasLt.so.13
FAKE_TARGETS := $(FAKES)/gpu_target
FAKE_HEADERS := $(wildcard tests/fakes/*.h) cupti/cupti_abi.h
GPU_BINARIES := $(CUPTI_LIBRARY) $(FAKE_LIBRARIES) $(FAKE_TARGETS)

define link_fake
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(FAKE_CFLAGS) $(filter %.c,$^) -o $@ $(1) -Wl,-rpath,'$$ORIGIN'
endef

$(FAKES)/libcuda.so.1: tests/fakes/libcuda.c $(FAKE_HEADERS)
	$(call link_fake,-shared -Wl$(comma)-soname$(comma)libcuda.so.1)

$(FAKES)/libcudart.so.13: tests/fakes/libcudart.c $(FAKE_HEADERS) $(FAKES)/libcuda.so.1
	$(call link_fake,-shared -Wl$(comma)-soname$(comma)libcudart.so.13 $(FAKES)/libcuda.so.1)

$(FAKES)/libcublasLt.so.13: tests/fakes/libcublas.c $(FAKE_HEADERS) $(FAKES)/libcudart.so.13
	$(call link_fake,-shared -Wl$(comma)-soname$(comma)libcublasLt.so.13 $(FAKES)/libcudart.so.13 $(FAKES)/libcuda.so.1)

$(FAKES)/libcupti.so.13: tests/fakes/libcupti.c $(FAKE_HEADERS)
	$(call link_fake,-shared -Wl$(comma)-soname$(comma)libcupti.so.13)

$(FAKE_TARGETS): $(FAKES)/%: tests/fakes/%.c $(FAKE_HEADERS) $(FAKE_LIBRARIES)
	$(call link_fake,$(FAKES)/libcudart.so.13 $(FAKES)/libcuda.so.1)

.PHONY: gpu-binaries
gpu-binaries: $(GPU_BINARIES)

test-binaries: $(GPU_BINARIES)
all: $(CUPTI_LIBRARY)
