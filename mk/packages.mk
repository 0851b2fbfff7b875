# The program as others install it: a Debian package, and an archive that needs libc alone.

PACKAGE_BUILD := $(ROOT_BUILD)/package
STATIC_PROGRAM := $(BUILD)/dynprof-bpf-static
STATIC_LDLIBS := -static-libstdc++ -static-libgcc -Wl,-Bstatic -lbpf -ldw -lelf -lzstd -llzma -lbz2 -lz -Wl,-Bdynamic
MAN_PAGE := $(BUILD)/dynprof-bpf.1

$(STATIC_PROGRAM): $(BUILD)/obj/user/main.o $(LIBRARY)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(LDFLAGS_ALL) -o $@ $^ $(STATIC_LDLIBS)

$(MAN_PAGE): packaging/man_page.py $(PROGRAM)
	$(call say,MAN,$@)
	$(Q)packaging/man_page.py $(PROGRAM) > $@

.PHONY: deb dist check-packages package-files package-tools

package-files: $(PROGRAM) $(STATIC_PROGRAM) $(MAN_PAGE) $(CUPTI_LIBRARY)

package-tools: $(PACKAGES_STAMP)
	$(Q)scripts/setup.sh packages scripts/packages-packaging.txt
	$(Q)$(MAKE) --no-print-directory PACKAGE=1 package-files

deb: package-tools  ## build/package/*.deb for Debian 12 and newer, Ubuntu 24.04 and newer
	$(Q)packaging/deb.sh $(PACKAGE_BUILD) '$(VERSION)'

dist: package-tools  ## build/package/*.tar.gz: the program with its libraries in it, needs glibc alone
	$(Q)packaging/dist.sh $(PACKAGE_BUILD) '$(VERSION)'

# Roots of three Debians and a torch for each: gigabytes, kept in the cache directory.
check-packages: setup deb dist  ## install, record, remove, in clean Debian 12, 13 and sid (root)
	$(Q)$(VENV)/bin/python tests/packages/run.py $(ARGS)
