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
# $(1): the precompiled header, $(2): more flags
define compile_cxx
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CCACHE) $(CXX) $(CPPFLAGS_ALL) $(CXXFLAGS_ALL) $(2) $(call with_pch,$(1)) -MMD -MP -c $< -o $@
endef

# Only user/ and the tests see the generated headers; symbolizer/ builds without any BPF tool.
$(BUILD)/obj/symbolizer/%.o: symbolizer/%.cpp $(call pch,program)
	$(call compile_cxx,program,$(STRICT) $(DEBUG_INFO))

# The assembler includes these files, which -MMD does not see.
PAGE_ASSETS := $(wildcard symbolizer/export/html/*.html symbolizer/export/html/*.css symbolizer/export/html/*.js)
$(BUILD)/obj/symbolizer/export/html/assets.o: $(PAGE_ASSETS)

$(BUILD)/obj/user/%.o: user/%.cpp $(call pch,program) | $(GENERATED)
	$(call compile_cxx,program,$(STRICT) $(DEBUG_INFO))

# Not optimized: that halves the time a gtest file takes to compile.
$(BUILD)/obj/tests/unit/%.o: tests/unit/%.cpp $(call pch,unit) | $(GENERATED)
	$(call compile_cxx,unit,-O0)

$(BUILD)/obj/tests/%.o: tests/%.cpp $(call pch,program) | $(GENERATED)
	$(call compile_cxx,program,)

$(BUILD)/obj/fuzzing/%.o: %.cpp $(call pch,program) | $(GENERATED)
	$(call compile_cxx,program,-DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION)

# With PCH=1 what mk/pch/NAME.h includes is parsed once and then loaded by every file. Files still include what they use:
# other builds and clang-tidy see them without it.
$(BUILD)/pch/%.h: mk/pch/%.h
	@mkdir -p $(@D)
	@cp $< $@

.PRECIOUS: $(BUILD)/pch/%.h
$(BUILD)/pch/program.h.gch: PCH_FLAGS := $(STRICT)
$(BUILD)/pch/unit.h.gch: PCH_FLAGS := -O0
$(BUILD)/pch/%.h.gch: $(BUILD)/pch/%.h
	$(call say,PCH,$@)
	$(Q)$(CXX) $(CPPFLAGS_ALL) $(CXXFLAGS_ALL) $(PCH_FLAGS) -MD -MP -MT $@ -MF $@.d -x c++-header -c $< -o $@
	$(Q){ echo '$(CXX) $(CXXFLAGS_ALL) $(PCH_FLAGS)'; $(CXX) $(CPPFLAGS_ALL) $(CXXFLAGS_ALL) $(PCH_FLAGS) -x c++-header -E $<; } | \
	 sha256sum > $@.sum

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

$(FUZZ_LIBRARY): $(call objects,$(LIBFUZZER_SOURCES))
	$(call say,AR,$@)
	@mkdir -p $(@D)
	$(Q)rm -f $@
	$(Q)$(AR) rcs $@ $^

$(FUZZ_REPLAYS): $(BUILD)/fuzz/%: $(BUILD)/obj/tests/fuzz/%_fuzz.o $(BUILD)/obj/tests/fuzz/replay_main.o \
                 $(FUZZING_OBJECTS) $(FUZZ_LIBRARY)
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

# BPF sources on the host: attributes and pragmas there are for clang's BPF target, which reads unaligned words too.
$(BUILD)/obj/tests/unit/%.o: tests/unit/%.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_ALL) $(SANITIZE) -fno-sanitize=alignment -Wno-attributes -Wno-unknown-attributes -Wno-unknown-pragmas -I. -MMD -MP -c $< -o $@

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
