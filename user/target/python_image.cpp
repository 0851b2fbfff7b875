#include "user/target/python_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "user/target/elf_image.h"
#include "user/target/python_layouts.h"

namespace dynprof {
namespace {

// Other files are asked for _PyRuntime only when nothing is named like an interpreter.
constexpr std::size_t kMaxOtherFiles = 512;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "<major>.<minor>" or "<major><minor>" (".cpython-311-") at the start of `text`.
std::uint16_t parse_version(std::string_view text, bool dotted) {
  if (text.empty() || (text[0] != '2' && text[0] != '3')) return 0;
  int major = text[0] - '0';
  text.remove_prefix(1);
  if (dotted) {
    if (text.empty() || text[0] != '.') return 0;
    text.remove_prefix(1);
  }
  int minor = 0;
  std::size_t digits = 0;
  while (digits < text.size() && digits < 2 && is_digit(text[digits])) {
    minor = minor * 10 + (text[digits] - '0');
    ++digits;
  }
  if (digits == 0 || (digits < text.size() && is_digit(text[digits]))) return 0;
  return python_version(major, minor);
}

std::uint16_t version_after(std::string_view text, std::string_view mark, bool dotted) {
  std::size_t at = text.find(mark);
  return at == std::string_view::npos ? 0 : parse_version(text.substr(at + mark.size()), dotted);
}

bool named_like_interpreter(std::string_view path) {
  std::string_view name = base_name(path);
  return name.starts_with("libpython") || name.starts_with("python");
}

bool is_c_library(std::string_view path) {
  std::string_view name = base_name(path);
  return name.starts_with("libc.so") || name.starts_with("libc-2.") ||
         name.starts_with("ld-musl-") || name.starts_with("libc.musl-");
}

struct MappedFile {
  std::vector<Mapping> mappings;
  int rank = 0;  // lower first
};

std::vector<MappedFile> mapped_files(std::span<const Mapping> mappings, const std::string& exe) {
  std::map<std::pair<std::string, std::uint64_t>, MappedFile> by_file;
  for (const Mapping& mapping : mappings) {
    if (mapping.is_file()) by_file[{mapping.path, mapping.inode}].mappings.push_back(mapping);
  }
  std::vector<MappedFile> files;
  for (auto& [key, file] : by_file) {
    bool runs = std::any_of(file.mappings.begin(), file.mappings.end(),
                            [](const Mapping& m) { return m.executable; });
    if (!runs) continue;
    bool likely = named_like_interpreter(key.first);
    file.rank = base_name(key.first).starts_with("libpython") ? 0
                : key.first == exe                            ? 1
                : likely                                      ? 2
                                                              : 3;
    files.push_back(std::move(file));
  }
  std::stable_sort(files.begin(), files.end(),
                   [](const MappedFile& a, const MappedFile& b) { return a.rank < b.rank; });
  return files;
}

// Writable memory of the file: its private mappings and the anonymous .bss that follows.
std::vector<AddressRange> writable_ranges(std::span<const ElfImage::Segment> segments,
                                          std::uint64_t bias) {
  std::vector<AddressRange> ranges;
  for (const ElfImage::Segment& segment : segments) {
    if (!segment.writable || segment.memory_size > 1ULL << 30) continue;
    std::uint64_t begin = (bias + segment.address + 7) / 8 * 8;
    ranges.push_back({begin, bias + segment.address + segment.memory_size});
  }
  return ranges;
}

constexpr std::array<std::string_view, kImageSymbols> kSymbols = {
    "_PyRuntime",  "Py_Version",     "PyLong_Type",   "PyCell_Type",
    "PyCode_Type", "PyUnicode_Type", "_Py_NoneStruct"};

Result<KnownImage> search_file(UniqueFd fd, const std::string& path, bool exported_only,
                               ReadBudget& budget) {
  ASSIGN_OR_RETURN(ElfImage elf, ElfImage::open(std::move(fd), path, budget));
  KnownImage image;
  const auto symbols = elf.find_symbols(kSymbols, budget, exported_only);
  for (std::size_t i = 0; i < kSymbols.size(); ++i)
    if (symbols[i]) image.symbols[i] = symbols[i]->address;
  image.segments = elf.segments();
  image.wants_loader = elf.wants_loader();
  return image;
}

Result<PythonImage> examine(pid_t pid, const MappedFile& file, KnownImages& known,
                            ReadBudget& budget) {
  const Mapping& first = file.mappings.front();
  const bool exported_only = file.rank == 3;
  ASSIGN_OR_RETURN(UniqueFd fd, open_mapped_file(pid, first));
  PythonImage image;
  image.file = KnownImages::key_of(fd.get(), exported_only);
  const KnownImage* found = image.file ? known.find(*image.file) : nullptr;
  KnownImage searched;
  if (!found) {
    ASSIGN_OR_RETURN(searched, search_file(std::move(fd), first.path, exported_only, budget));
    // What was not read to its end is read again.
    found = image.file && !budget.refused() ? &known.add(*image.file, searched) : &searched;
  }
  const auto bias = ElfImage::load_bias(found->segments, file.mappings);
  if (!bias) return error(fmt::format("{}: its mappings fit none of its segments", first.path));
  image.path = first.path;
  std::uint64_t* places[kImageSymbols] = {&image.runtime,   &image.version,   &image.long_type,
                                          &image.cell_type, &image.code_type, &image.str_type,
                                          &image.none};
  for (std::size_t i = 0; i < kImageSymbols; ++i)
    if (found->symbols[i] != 0) *places[i] = *bias + found->symbols[i];
  image.writable = writable_ranges(found->segments, *bias);
  image.wants_loader = found->wants_loader;
  image.no_debug_offsets = found->no_debug_offsets;
  return image;
}

}  // namespace

std::uint16_t version_in_path(std::string_view path) {
  if (auto v = version_after(base_name(path), ".cpython-", false)) return v;
  std::string_view name = base_name(path);
  if (name.starts_with("libpython")) return parse_version(name.substr(9), true);
  if (name.starts_with("python")) return parse_version(name.substr(6), true);
  return version_after(path, "/lib/python", true);
}

std::uint16_t version_from_paths(std::span<const Mapping> mappings, const std::string& exe) {
  // The interpreter's own file decides; else the version that most file names contain.
  std::map<std::uint16_t, int> votes;
  for (const Mapping& mapping : mappings) {
    if (!mapping.is_file()) continue;
    std::uint16_t version = version_in_path(mapping.path);
    if (version == 0) continue;
    if (base_name(mapping.path).starts_with("libpython")) return version;
    ++votes[version];
  }
  if (named_like_interpreter(exe)) {
    if (std::uint16_t version = version_in_path(exe)) return version;
  }
  std::uint16_t best = 0;
  for (auto [version, count] : votes) {
    if (best == 0 || count > votes[best]) best = version;
  }
  return best;
}

ImageSearch find_python_images(pid_t pid, std::span<const Mapping> mappings, const std::string& exe,
                               KnownImages& known) {
  ImageSearch search;
  // For all files of the process together: it can map thousands that look like interpreters.
  ReadBudget budget(2ULL << 30, std::chrono::milliseconds(3000));
  std::vector<PythonImage> without;
  bool c_library = false;
  bool other_loader = false;
  std::size_t others = 0;
  for (const Mapping& mapping : mappings) {
    c_library = c_library || is_c_library(mapping.path);
    other_loader = other_loader || base_name(mapping.path).starts_with("ld-linux");
  }
  std::vector<MappedFile> files = mapped_files(mappings, exe);
  search.loading = !c_library && (other_loader || files.empty());
  for (const MappedFile& file : files) {
    if (file.rank == 3 && (!search.images.empty() || ++others > kMaxOtherFiles)) break;
    auto image = examine(pid, file, known, budget);
    if (!image) {
      if (file.rank < 3 && search.unreadable.empty()) search.unreadable = image.error().what;
      continue;
    }
    search.loading = search.loading || (image->wants_loader && !c_library);
    if (image->runtime != 0) {
      search.images.push_back(*std::move(image));
    } else if (file.rank < 3) {
      without.push_back(*std::move(image));
    }
  }
  std::move(without.begin(), without.end(), std::back_inserter(search.images));
  return search;
}

}  // namespace dynprof
