# How one file becomes another.

# ---- BPF: C -> object -> skeleton header ---------------------------------------------------------
$(ROOT_BUILD)/bpf/%.bpf.o: bpf/%.bpf.c
	$(call say,BPF,$<)
	@mkdir -p $(@D)
	$(Q)$(CLANG) $(BPF_CFLAGS) -MMD -MP -MT $@ -MF $(@:.o=.d) -c $< -o $@
	$(Q)$(LLVM_STRIP) -g $@
	$(Q)LLVM_OBJDUMP=$(LLVM_OBJDUMP) scripts/bpf_instructions.sh $@

# The pragma keeps our warnings off bpftool's text without hiding the header from -MMD.
$(SKELETONS): $(GEN)/%.skel.h: $(ROOT_BUILD)/bpf/%.bpf.o
	$(call say,SKEL,$@)
	@mkdir -p $(@D)
	$(Q){ echo '#pragma GCC system_header'; $(BPFTOOL) gen skeleton $< name $(subst .,_,$*)_bpf; } > $@

# Rewritten only when the version changed, so that a build with nothing to do does nothing.
$(GEN)/version.h: FORCE
	@mkdir -p $(@D)
	@echo '#define DYNPROF_VERSION "$(VERSION)"' | cmp -s - $@ || \
	 echo '#define DYNPROF_VERSION "$(VERSION)"' > $@

# ---- C++ -----------------------------------------------------------------------------------------
define compile_cxx
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CCACHE) $(CXX) $(CPPFLAGS_ALL) $(CXXFLAGS_ALL) $(1) -MMD -MP -c $< -o $@
endef

# Only user/ and the tests see the generated headers; symbolizer/ builds without any BPF tool.
$(BUILD)/obj/symbolizer/%.o: symbolizer/%.cpp
	$(call compile_cxx,$(STRICT))

$(BUILD)/obj/user/%.o: user/%.cpp | $(GENERATED)
	$(call compile_cxx,$(STRICT))

# Not optimized: that halves the time a gtest file takes to compile.
$(BUILD)/obj/tests/unit/%.o: tests/unit/%.cpp | $(GENERATED)
	$(call compile_cxx,-O0)

$(BUILD)/obj/tests/%.o: tests/%.cpp | $(GENERATED)
	$(call compile_cxx,)

$(BUILD)/obj/fuzzing/%.o: %.cpp | $(GENERATED)
	$(call compile_cxx,-DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION)

define link_cxx
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(1) $(LDLIBS_ALL)
endef

$(LIBRARY): $(call objects,$(SYMBOLIZER_SOURCES) $(USER_SOURCES))
	$(call say,AR,$@)
	@mkdir -p $(@D)
	$(Q)rm -f $@
	$(Q)$(AR) rcs $@ $^

$(PROGRAM): $(BUILD)/obj/user/main.o $(LIBRARY)
	$(call link_cxx,)

$(UNIT): $(call objects,$(UNIT_SOURCES) $(UNIT_C_SOURCES)) $(LIBRARY)
	$(call link_cxx,-lgmock_main -lgmock -lgtest)

$(TOOLS): $(BUILD)/tests/%: $(BUILD)/obj/tests/tools/%.o $(LIBRARY)
	$(call link_cxx,)

$(BENCHES): $(BUILD)/bench/%: $(BUILD)/obj/tests/bench/%.o $(LIBRARY)
	$(call link_cxx,$(if $(shell grep -l benchmark/benchmark.h tests/bench/$*.cpp),-lbenchmark))

$(FUZZ_REPLAYS): $(BUILD)/fuzz/%: $(BUILD)/obj/tests/fuzz/%_fuzz.o $(BUILD)/obj/tests/fuzz/replay_main.o \
                 $(FUZZING_OBJECTS) $(LIBRARY)
	$(call link_cxx,)

# libFuzzer wants coverage in the code under test: what reads foreign bytes is compiled anew.
LIBFUZZER_FLAGS := -DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION -std=c++20 -g -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
$(ROOT_BUILD)/libfuzzer/obj/%.o: %.cpp | $(GENERATED)
	$(call say,FUZZ,$<)
	@mkdir -p $(@D)
	$(Q)$(CCACHE) $(CLANGXX) $(CPPFLAGS_ALL) $(LIBFUZZER_FLAGS) -MMD -MP -c $< -o $@

$(LIBFUZZER_LIBRARY): $(LIBFUZZER_SOURCES:%.cpp=$(ROOT_BUILD)/libfuzzer/obj/%.o)
	$(call say,AR,$@)
	$(Q)rm -f $@
	$(Q)$(AR) rcs $@ $^

$(LIBFUZZERS): $(ROOT_BUILD)/libfuzzer/%: $(ROOT_BUILD)/libfuzzer/obj/tests/fuzz/%_fuzz.o $(LIBFUZZER_LIBRARY)
	$(call say,LINK,$@)
	$(Q)$(CLANGXX) -fsanitize=fuzzer,address,undefined -pthread -o $@ $^ $(LDLIBS_ALL)

# BPF sources on the host: attributes and pragmas there are for clang's BPF target.
$(BUILD)/obj/tests/unit/%.o: tests/unit/%.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_ALL) $(SANITIZE) -Wno-attributes -Wno-unknown-attributes -Wno-unknown-pragmas -I. -MMD -MP -c $< -o $@

# ---- programs the tests attach to: plain, so that what they do is what their source says ---------
$(BUILD)/tests/programs/%: tests/programs/%.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_ALL) -MMD -MP -MF $@.d $< -o $@ -pthread

$(BUILD)/tests/programs/%: tests/programs/%.cpp
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CXXFLAGS_ALL) -MMD -MP -MF $@.d $< -o $@ -pthread

# Symbols are bound when they are loaded: scribble.c changes the memory that a late binding would use.
$(ROOT_BUILD)/tests/faults/%.so: tests/faults/native/%.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_ALL) -shared -fPIC -Wl,-z,now -MMD -MP -MF $@.d $< -o $@ -pthread

# ---- set-up: done once, remembered by stamps -----------------------------------------------------
PACKAGES_STAMP := $(ROOT_BUILD)/setup/packages.stamp
VENV_STAMP := $(VENV)/.setup.stamp

$(PACKAGES_STAMP): scripts/setup.sh scripts/packages.txt
	$(Q)scripts/setup.sh packages
	@mkdir -p $(@D) && touch $@

$(VENV_STAMP): tests/requirements.txt tests/constraints.txt | $(PACKAGES_STAMP)
	$(Q)scripts/setup.sh venv $(VENV)
	@touch $@

FORCE:
.PHONY: FORCE
