// Prints the unwind table of a file: rows as text, or with --raw as u64 base, u64 count and the rows'
// bytes, or with --stats its figures only. `--vdso` reads our own vdso instead of a file.
//   unwind_dump [--raw | --stats] [--cache DIRECTORY] FILE | --vdso
//   unwind_dump --maps PID       code mappings of a process: addresses, bias, key, path
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "symbolizer/base/text.h"
#include "user/unwind_tables/mappings.h"
#include "user/unwind_tables/table_cache.h"
#include "user/unwind_tables/unwind_table.h"

namespace dynprof {
namespace {

constexpr const char* kReasons[] = {
#define DP_UNWIND_REASON_NAME(id, name, sentence) name,
    DP_UNWIND_REASONS(DP_UNWIND_REASON_NAME)
#undef DP_UNWIND_REASON_NAME
};
constexpr const char* kSkips[] = {
#define DYNPROF_SKIP_NAME(id, name) name,
    DYNPROF_CFI_SKIPS(DYNPROF_SKIP_NAME)
#undef DYNPROF_SKIP_NAME
};

std::string cfa_text(std::uint32_t rule) {
  const int offset = dp_unwind_offset(rule);
  switch (dp_unwind_kind(rule)) {
    case DP_CFA_NONE:
      return "none";
    case DP_CFA_RSP:
      return fmt::format("rsp{:+}", offset);
    case DP_CFA_RBP:
      return fmt::format("rbp{:+}", offset);
    case DP_CFA_R10:
      return fmt::format("r10{:+}", offset);
    case DP_CFA_R13:
      return fmt::format("r13{:+}", offset);
    case DP_CFA_RBX:
      return fmt::format("rbx{:+}", offset);
    case DP_CFA_DEREF_RBP:
      return fmt::format("*(rbp{:+})", offset);
    case DP_CFA_DEREF_RSP:
      return fmt::format("*(rsp{:+})", offset);
    case DP_CFA_DEREF_RSP_8:
      return fmt::format("*(rsp{:+})+8", offset);
    case DP_CFA_PLT:
      return fmt::format("plt/{}", dp_unwind_argument(rule));
    case DP_CFA_SIGNAL:
      return fmt::format("signal{:+}", offset);
    case DP_CFA_OUTERMOST:
      return "outermost";
    case DP_CFA_UNSUPPORTED:
      return fmt::format("unsupported({})", dp_unwind_argument(rule) < std::size(kReasons)
                                                ? kReasons[dp_unwind_argument(rule)]
                                                : "?");
    default:
      return "?";
  }
}

std::string rbp_text(std::uint32_t rule) {
  const std::uint32_t rbp = dp_unwind_rbp(rule);
  if (rbp == DP_RBP_SAME) return "same";
  if (rbp == DP_RBP_LOST) return "lost";
  return fmt::format("*({}{:+})", dp_rbp_from_rbp(rbp) ? "rbp" : "cfa", dp_rbp_offset(rbp));
}

void print_stats(const UnwindTable& table, double seconds) {
  fmt::print(
      "{} build_id={} base={:#x} rows={} bytes={} fdes={} cies={} synthesized={} rbp_lost={} "
      "unsupported={} seconds={:.3f}",
      table.from_cache ? "cached" : "built", table.build_id, table.base, table.rows.size(),
      table.rows.size() * sizeof(dp_unwind_row), table.stats.fdes, table.stats.cies,
      table.stats.synthesized, table.stats.rbp_lost, table.stats.unsupported_rows(), seconds);
  for (std::size_t i = 0; i < table.stats.unsupported.size(); ++i) {
    if (table.stats.unsupported[i] != 0)
      fmt::print(" {}={}", kReasons[i], table.stats.unsupported[i]);
  }
  for (std::size_t i = 0; i < table.stats.skipped.size(); ++i) {
    if (table.stats.skipped[i] != 0)
      fmt::print(" skipped_{}={}", kSkips[i], table.stats.skipped[i]);
  }
  fmt::print("\n");
}

void print_raw(const UnwindTable& table) {
  const std::uint64_t head[2] = {table.base, table.rows.size()};
  std::fwrite(head, sizeof head, 1, stdout);
  std::fwrite(table.rows.data(), sizeof(dp_unwind_row), table.rows.size(), stdout);
}

Result<ByteSource> open_source(std::string_view name) {
  if (name == "--vdso") {
    // Two pages at least on every kernel; its headers say how much of them is the image.
    const auto* image = reinterpret_cast<const std::uint8_t*>(::getauxval(AT_SYSINFO_EHDR));
    return ByteSource::of_bytes({image, 8192});
  }
  UniqueFd file(::open(std::string(name).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return errno_error(std::string(name));
  return ByteSource::of_file(std::move(file));
}

int run(std::string_view mode, const std::string& cache_directory, std::string_view name) {
  std::unique_ptr<TableCache> cache;
  if (!cache_directory.empty()) {
    auto opened = TableCache::open(cache_directory);
    if (!opened) {
      fmt::print(stderr, "unwind_dump: {}\n", opened.error().what);
      return 2;
    }
    cache = *std::move(opened);
  }
  const auto began = std::chrono::steady_clock::now();
  auto source = open_source(name);
  if (!source) {
    fmt::print(stderr, "unwind_dump: {}\n", source.error().what);
    return 2;
  }
  auto table = load_or_build(*source, {}, cache.get());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (!table) {
    fmt::print(stderr, "unwind_dump: {} {}\n", name, table.error().what);
    return 1;
  }
  if (mode == "--raw") {
    print_raw(*table);
  } else if (mode == "--stats") {
    print_stats(*table, took.count());
  } else {
    for (const dp_unwind_row& row : table->rows) {
      fmt::print("{:016x} {:<12} {}\n", table->base + row.pc, cfa_text(row.rule),
                 rbp_text(row.rule));
    }
  }
  return 0;
}

int print_maps(pid_t pid) {
  ReadAccounts accounts(kWideReadLimits);
  CodeFiles files(accounts);
  const auto all = files.read(pid);
  if (!all) {
    fmt::print(stderr, "unwind_dump: {}\n", all.error().what);
    return 1;
  }
  for (const CodeMapping& code : all->mappings) {
    fmt::print("{:x}-{:x} {:x} bias={} key={}{} {}{}{}\n", code.mapping.start, code.mapping.end,
               code.mapping.offset, code.bias ? fmt::format("{:#x}", *code.bias) : "unknown",
               code.file->key, code.mapping.deleted ? " deleted" : "",
               escape_terminal(code.mapping.path), code.file->problem.empty() ? "" : ": ",
               code.file->problem);
  }
  fmt::print("left_out={} anonymous={}\n", all->left_out, all->anonymous);
  return 0;
}

}  // namespace
}  // namespace dynprof

int main(int argc, char** argv) {
  std::string_view mode;
  std::string cache;
  int at = 1;
  if (at < argc &&
      (std::string_view(argv[at]) == "--raw" || std::string_view(argv[at]) == "--stats")) {
    mode = argv[at++];
  }
  if (argc == 3 && std::string_view(argv[1]) == "--maps")
    return dynprof::print_maps(std::atoi(argv[2]));
  if (at + 1 < argc && std::string_view(argv[at]) == "--cache") {
    cache = argv[at + 1];
    at += 2;
  }
  if (at + 1 != argc) {
    fmt::print(stderr,
               "usage: unwind_dump [--raw | --stats] [--cache DIRECTORY] FILE | --vdso\n"
               "       unwind_dump --maps PID\n");
    return 2;
  }
  return dynprof::run(mode, cache, argv[at]);
}
