#!/bin/bash
# make deb: deb.sh BUILD VERSION puts dynprof-bpf_VERSION_ARCH.deb together in BUILD.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
# "-" would begin a Debian revision.
version=${2//-/.}
package=dynprof-bpf
architecture=$(dpkg --print-architecture)
stage=${build}/deb
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

rm -rf "${stage}"
mkdir -p "${stage}/tree/DEBIAN" "${stage}/debian"
root=${stage}/tree
documents=${root}/usr/share/doc/${package}

install -D -m 755 "${build}/dynprof-bpf" "${root}/usr/bin/dynprof-bpf"
strip --remove-section=.comment "${root}/usr/bin/dynprof-bpf"
# Not in a directory of the linker: only processes with CUDA_INJECTION64_PATH load it.
install -D -m 644 build/libdynprof_cupti.so "${root}/usr/lib/${package}/libdynprof_cupti.so"
strip --strip-unneeded --remove-section=.comment "${root}/usr/lib/${package}/libdynprof_cupti.so"
install -D -m 644 "${build}/dynprof-bpf.1" "${root}/usr/share/man/man1/dynprof-bpf.1"
install -D -m 644 packaging/copyright "${documents}/copyright"
printf '%s (%s) unstable; urgency=medium\n\n  * Built from the tree of that version.\n\n -- %s  %s\n' \
  "${package}" "${version}" "$(sed -n 's/^Maintainer: //p' packaging/control)" \
  "$(date -u -R -d "@${SOURCE_DATE_EPOCH}")" > "${documents}/changelog"
gzip -9n "${documents}/changelog" "${root}/usr/share/man/man1/dynprof-bpf.1"
install -m 755 packaging/postrm "${root}/DEBIAN/postrm"

# dpkg-shlibdeps wants a source package around it. Newer Debians have some of these libraries in packages of other
# names, which say that they provide the old ones.
printf 'Source: %s\n\nPackage: %s\nArchitecture: any\n' "${package}" "${package}" > "${stage}/debian/control"
depends=$(cd "${stage}" && dpkg-shlibdeps -O tree/usr/bin/dynprof-bpf "tree/usr/lib/${package}/libdynprof_cupti.so" |
          sed -n 's/^shlibs:Depends=//p')
size=$(du -sk --exclude=DEBIAN "${root}" | cut -f1)
sed -e "s/@VERSION@/${version}/; s/@ARCHITECTURE@/${architecture}/; s/@DEPENDS@/${depends}/; s/@SIZE@/${size}/" \
  packaging/control > "${root}/DEBIAN/control"
(cd "${root}" && find usr -type f -print0 | sort -z | xargs -0 md5sum) > "${root}/DEBIAN/md5sums"

find "${root}" -newermt "@${SOURCE_DATE_EPOCH}" -print0 | xargs -0r touch --no-dereference --date="@${SOURCE_DATE_EPOCH}"
rm -f "${build}"/*.deb
dpkg-deb --root-owner-group --build "${root}" "${build}/${package}_${version}_${architecture}.deb" >/dev/null
lintian --fail-on error,warning "${build}/${package}_${version}_${architecture}.deb"
printf '  %-8s%s\n' DEB "${build}/${package}_${version}_${architecture}.deb"
