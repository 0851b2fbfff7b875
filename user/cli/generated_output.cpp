#include "user/cli/generated_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "symbolizer/base/text.h"
#include "symbolizer/export/decompiler.h"

namespace dynprof {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kEach{5'000};
constexpr std::size_t kMaxStem = 70;  // a name has at most 100 bytes

std::string counted(std::size_t count, std::size_t of) {
  return fmt::format("{} of {} code objects", count, of);
}

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

class Files {
 public:
  explicit Files(const OutputDirectory& top) : top_(top) {}

  // A file of ours: with a number where the target's names have taken its name.
  bool write_own(const std::string& directory, std::string_view stem, const std::string& suffix,
                 std::string_view bytes, GeneratedOutput& result) {
    stem = stem.substr(0, kMaxStem);
    std::string name = std::string(stem) + suffix;
    for (int next = 2; taken_.contains(directory + "/" + lower(name)); ++next)
      name = fmt::format("{}_{}{}", stem, next, suffix);
    return write(directory, name, bytes, result);
  }

  bool write(const std::string& directory, const std::string& name, std::string_view bytes,
             GeneratedOutput& result) {
    taken_.insert(directory + "/" + lower(name));
    auto folder = folders_.find(directory);
    if (folder == folders_.end()) {
      auto made = top_.subdirectory(sanitize_file_component(directory));
      if (!made) return failed(made.error(), result);
      folder = folders_.emplace(directory, std::move(*made)).first;
    }
    auto file = folder->second.file(sanitize_file_component(name));
    if (!file) return failed(file.error(), result);
    (*file)->write(bytes);
    if (auto done = (*file)->finish(); !done) return failed(done.error(), result);
    return true;
  }

 private:
  static bool failed(const Error& error, GeneratedOutput& result) {
    if (!result.first_error) result.first_error = error;
    return false;
  }
  const OutputDirectory& top_;
  std::map<std::string, OutputDirectory> folders_;
  std::set<std::string> taken_;  // in lower case, as the names of copies differ
};

}  // namespace

Decompiled decompile_all(const Attribution& attribution, const Generated& generated,
                         const DecompileOptions& options, Terminal& terminal) {
  Decompiled done;
  std::vector<std::uint32_t> wanted;
  for (std::uint32_t i = 0; i < generated.files().size(); ++i) {
    const GeneratedCopy& copy = generated.files()[i];
    // The user's own code has a source.
    if (copy.kind == "code_object" && !copy.name.starts_with("original_")) wanted.push_back(i);
  }
  if (wanted.empty() || options.python.empty()) return done;
  const std::string asked = options.python == kAnyDecompiler ? "" : options.python;
  const Clock::time_point deadline = Clock::now() + options.time;
  const char* path = std::getenv("PATH");
  std::size_t failures = 0;
  std::string why;
  for (std::size_t n = 0; n < wanted.size(); ++n) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (n >= options.count || left.count() <= 0) {
      if (why.empty())
        why = fmt::format("limits: {} code objects, {} s for all", options.count,
                          options.time.count() / 1000);
      failures += wanted.size() - n;
      break;
    }
    terminal.progress(fmt::format("decompiling {}", counted(n + 1, wanted.size())));
    const std::string_view pyc =
        attribution.recording().tables().blobs[generated.files()[wanted[n]].body];
    auto python = find_decompiler(pyc, asked, path ? path : "");
    DecompilerLimits limits;
    limits.program.time = std::min(kEach, left);
    auto text =
        python ? decompile(*python, pyc, limits.program) : Result<std::string>(python.error());
    if (text) {
      done.emplace(wanted[n], *std::move(text));
      continue;
    }
    ++failures;
    if (why.empty()) why = text.error().what;
    // The next one would fail for the same reason.
    const bool of_python = !python || text.error().what.ends_with(kNoDepyf);
    if (of_python && done.empty()) {
      failures = wanted.size();
      break;
    }
  }
  terminal.clear_progress();
  if (failures > 0) {
    terminal.line(fmt::format(
        "note: {} are shown as bytecode: {}; --decompiler PYTHON names a Python of the target's "
        "version with the package depyf",
        counted(failures, wanted.size()), why));
  }
  return done;
}

GeneratedOutput write_generated(const OutputDirectory& directory, const Attribution& attribution,
                                const Generated& generated, const Decompiled& decompiled) {
  GeneratedOutput result;
  if (generated.files().empty()) return result;
  auto top = directory.subdirectory("generated");
  if (!top) {
    result.first_error = top.error();
    return result;
  }
  Files files(*top);
  const Tables& tables = attribution.recording().tables();
  for (const GeneratedCopy& file : generated.files()) {
    if (files.write(file.directory, file.name, tables.blobs[file.body], result)) ++result.files;
  }
  for (const GeneratedPage& page : generated_pages(attribution, generated, decompiled)) {
    const bool written = files.write_own(page.directory, page.stem, page.suffix, page.text, result);
    if (written && result.page.empty() && page.suffix == ".md")
      result.page = page.directory + "/" + page.stem + page.suffix;
  }
  for (const auto& [index, text] : decompiled) {
    const GeneratedCopy& copy = generated.files()[index];
    const std::string_view name = copy.name;
    if (files.write_own(copy.directory, name.substr(0, name.rfind('.')), "_decompiled.py", text,
                        result)) {
      ++result.files;
    }
  }
  return result;
}

}  // namespace dynprof
