// The parts of the report, in the order they are printed, and what they share. Each appends whole
// lines of at most kReportColumns columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/report/report.h"

namespace dynprof {

inline constexpr std::size_t kReportColumns = 100;

// What the options leave of the samples.
struct Selection {
  const Analysis& analysis;
  const ReportOptions& options;
  std::vector<CompileIndex> compiles;  // all, if the options name none
  std::vector<StackCount> counts;
  std::uint64_t samples = 0;
  std::uint64_t ns = 0;  // of CPU time that these stand for

  const Attribution& attribution() const { return analysis.attribution(); }
  const Tables& tables() const { return analysis.attribution().recording().tables(); }
};

// The first line, and what was selected. Then, at the end: how it was recorded, and how complete it is.
void append_title(std::string& out, const Selection& selection);
void append_about(std::string& out, const Selection& selection);
void append_losses(std::string& out, const Selection& selection);
void append_compile_table(std::string& out, const Selection& selection);
// Of each of them: what is known beyond its row.
void append_compile_page(std::string& out, const Selection& selection, CompileIndex compile);
void append_symbol_table(std::string& out, const Selection& selection);
void append_user_lines(std::string& out, const Selection& selection);
// From the begin of a process to its first step without a compile, where the recording has that begin.
void append_start_up(std::string& out, const Selection& selection);
// What it cost to compile the operators of each nn.Module.
void append_modules(std::string& out, const Selection& selection);
// Child processes: of the whole recording, and those one compile waited for.
void append_processes(std::string& out, const Selection& selection);
void append_waited_for(std::string& out, const Selection& selection, CompileIndex compile);
// Runs of compiled regions.
void append_regions(std::string& out, const Selection& selection);
// Kernels that Triton compiled or tuned outside of torch's compiles.
void append_triton(std::string& out, const Selection& selection);
// Kernels that Inductor generated.
void append_kernels(std::string& out, const Selection& selection);
// Ranges that the program marks in itself.
void append_annotations(std::string& out, const Selection& selection);
// Torch's operators, from sampled stacks.
void append_operators(std::string& out, const Selection& selection);
void append_gpu(std::string& out, const Selection& selection);
// What threads waited for: of the whole recording, or of one compile.
void append_waits(std::string& out, const Selection& selection);
// Which thread waited for the compile lock while which other compiled, and which process for a file lock.
void append_lock_waits(std::string& out, const Selection& selection);
void append_profile_tables(std::string& out, const Selection& selection);

// By ThreadId: whether its process was started for a compile (compilers, compile workers).
std::vector<bool> helper_threads(const Analysis& analysis);

// ---- text ------------------------------------------------------------------------------------
// A name from the target in `width` columns: escaped, cut, and filled up with spaces on the right.
std::string cell(std::string_view text, std::size_t width, bool keep_tail = false);
// The same without filling up.
std::string cut(std::string_view text, std::size_t width, bool keep_tail = false);
// Each run of spaces and line breaks as one space.
std::string one_line(std::string_view text);
// "<title>  <text>" with the text broken at spaces into lines below each other, at most `most`.
void append_item(std::string& out, std::string_view title, std::string_view text,
                 std::size_t most = 6);
// The text broken at spaces into at most `most` lines, the first after `first` and the others after
// `rest`, which are as they are printed.
void append_wrapped(std::string& out, std::string_view first, std::string_view rest,
                    std::string_view text, std::size_t most);
// "# <text>" broken at spaces into lines.
void append_comment(std::string& out, std::string_view text);
// "12,345".
std::string grouped(std::uint64_t number);
// "12.34%", "-" of nothing.
std::string percent(std::uint64_t part, std::uint64_t whole);
// In percent, at most 100; 0 of nothing.
double share_percent(std::uint64_t part, std::uint64_t whole);

}  // namespace dynprof
