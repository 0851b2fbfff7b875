// The tables of the page, each from the rows that the report's text is made from.
#pragma once

#include <optional>
#include <vector>

#include "symbolizer/export/html/flame_data.h"
#include "symbolizer/export/html/page.h"
#include "symbolizer/report/sections.h"

namespace dynprof {

PageTable compile_table(const Selection& selection, const FlameData& flame);
PageTable user_line_table(const Selection& selection);
// What it cost to compile the operators of each nn.Module.
PageTable module_table(const Selection& selection);
PageTable start_up_table(const Selection& selection);
PageTable wait_table(const Selection& selection);
PageTable process_table(const Selection& selection);
// Torch's operators, from sampled stacks.
PageTable operator_table(const Selection& selection);
// Ranges that the program marks, of the whole recording.
PageTable annotation_table(const Selection& selection);
PageTable region_table(const Selection& selection);
// Kernels that Triton compiled or tuned outside of torch's compiles.
PageTable triton_table(const Selection& selection);
// Nothing where a recording has no GPU work.
std::vector<PageTable> gpu_tables(const Selection& selection);

// Generated code with the time of each line, from the copies in the recording. The user's own
// files are not opened: their paths are the target's to choose.
void add_code(Page& page, const Selection& selection);

// As text without a row's end: "train.py:92", "memcpy in libc.so.6".
std::string frame_place(const ResolvedFrame& frame);

inline PageCell cell_of(std::uint64_t number) { return static_cast<std::int64_t>(number); }

}  // namespace dynprof
