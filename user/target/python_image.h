// The file that holds the interpreter: the executable (static builds, Debian's python3.11) or a
// libpython, found by its symbols, or where those are gone by what its data looks like.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "user/target/known_images.h"
#include "user/target/process.h"
#include "user/target/remote_memory.h"

namespace dynprof {

struct AddressRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Addresses in the process; 0: the symbol is not there.
struct PythonImage {
  std::string path;
  std::uint64_t runtime = 0;  // _PyRuntime
  std::uint64_t version = 0;  // Py_Version (3.11+)
  std::uint64_t long_type = 0;
  std::uint64_t cell_type = 0;
  std::uint64_t code_type = 0;
  std::uint64_t str_type = 0;
  std::uint64_t none = 0;
  std::vector<AddressRange> writable;  // .data and .bss
  bool wants_loader = false;           // has a PT_INTERP
  bool no_debug_offsets = false;       // see KnownImage
  std::optional<KnownImages::Key> file;
};

// What names of mapped files say about the version: major << 8 | minor, 0: nothing. Seen in
// ".cpython-311-" of an extension module, "libpython3.11.so", "/lib/python3.11/", "python3.11".
std::uint16_t version_from_paths(std::span<const Mapping> mappings, const std::string& exe);

// The version in one path, 0: none.
std::uint16_t version_in_path(std::string_view path);

struct ImageSearch {
  std::vector<PythonImage> images;  // those with _PyRuntime first, best first
  bool loading = false;             // the dynamic loader is still at work: ask again
  std::string unreadable;  // a file that looks like an interpreter and could not be opened: why
};
ImageSearch find_python_images(pid_t pid, std::span<const Mapping> mappings, const std::string& exe,
                               KnownImages& known);

}  // namespace dynprof
