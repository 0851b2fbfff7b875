#!/bin/bash
# make dist: dist.sh BUILD VERSION puts dynprof-bpf-VERSION-linux-MACHINE.tar.gz together in BUILD.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
name=dynprof-bpf-$2-linux-$(uname -m)
stage=${build}/dist/${name}
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}

rm -rf "${build}/dist"
install -D -m 755 "${build}/dynprof-bpf-static" "${stage}/bin/dynprof-bpf"
strip "${stage}/bin/dynprof-bpf"
install -D -m 755 build/libdynprof_cupti.so "${stage}/lib/dynprof-bpf/libdynprof_cupti.so"
strip --strip-unneeded "${stage}/lib/dynprof-bpf/libdynprof_cupti.so"
install -D -m 644 "${build}/dynprof-bpf.1" "${stage}/share/man/man1/dynprof-bpf.1"
install -m 644 LICENSE README.md "${stage}/"
cp -r docs "${stage}/docs"
# The libraries that are linked in, under their own licences.
for package in libbpf-dev libdw-dev libelf-dev libfmt-dev libzstd-dev liblzma-dev libbz2-dev zlib1g-dev nlohmann-json3-dev \
               libcli11-dev libstdc++-12-dev; do
  install -D -m 644 "/usr/share/doc/${package}/copyright" "${stage}/licenses/${package}"
done

# What the C library must have, from the file itself.
program=${stage}/bin/dynprof-bpf
needed=$(objdump -p "${program}" | sed -n 's/^ *NEEDED *//p' | sort | paste -sd' ')
glibc=$(objdump -T "${program}" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
cat > "${stage}/NEEDS" <<END
Shared libraries: ${needed} (glibc ${glibc#GLIBC_} or newer)
Kernel: Linux 6.1 or newer with BTF (/sys/kernel/btf/vmlinux); bin/dynprof-bpf doctor checks it
Rights: root, or the capabilities in docs/security.md
Optional: dot (graphviz) in PATH, for call graphs
END

rm -f "${build}"/*.tar.gz
tar --sort=name --mtime="@${epoch}" --owner=0 --group=0 --numeric-owner -C "${build}/dist" -cf - "${name}" |
  gzip -9n > "${build}/${name}.tar.gz"
printf '  %-8s%s\n' DIST "${build}/${name}.tar.gz"
cat "${stage}/NEEDS"
