#include "symbolizer/export/operator_trace.h"

#include <string>

#include "symbolizer/base/cap_text.h"
#include "symbolizer/export/trace_metadata.h"

namespace dynprof {

void write_operator_rows(const TraceShared& shared, TraceFile& file) {
  for (const TraceRow& row : shared.rows) {
    if (!row.has_operators || !file.shows(row.pid)) continue;
    write_metadata(file.json(), "thread_name", row.pid, row.operators_tid(), "name",
                   "operators, sampled (tid " + std::to_string(row.tid) + ')');
    write_metadata(file.json(), "thread_sort_index", row.pid, row.operators_tid(), "sort_index",
                   row.tid);
  }
}

OperatorSlices::OperatorSlices(const TraceShared& shared, TraceFile& file, const TraceRow& row,
                               std::uint64_t period_ns)
    : shared_(shared), file_(file), row_(row), emit_([this](const FrameSlice& s) { draw(s); }) {
  if (row.has_operators) slices_.emplace(shared.operators.stacks(), period_ns);
}

void OperatorSlices::add(std::uint64_t time_ns, StackId stack) {
  if (slices_) slices_->add(time_ns, shared_.operators.call_of(stack), 0, false, emit_);
}

void OperatorSlices::wait(std::uint64_t begin_ns, std::uint64_t end_ns, StackId stack,
                          bool keeps_stack) {
  if (slices_)
    slices_->wait(begin_ns, end_ns, shared_.operators.call_of(stack), 0, false, keeps_stack, emit_);
}

void OperatorSlices::close() {
  if (slices_) slices_->close(emit_);
}

void OperatorSlices::draw(const FrameSlice& slice) {
  const OperatorName& op = shared_.operators.all()[slice.frame - 1];
  if (!file_.sampled_slice_begin("cpu_op", row_.pid, row_.operators_tid(), slice.begin_ns,
                                 slice.end_ns))
    return;
  JsonWriter& json = file_.json();
  json.field("name", cap_text(op.name));
  json.key("args");
  json.begin_object();
  if (!op.overload.empty()) json.field("overload", cap_text(op.overload));
  json.field("kind", operator_kind_text(op.kind));
  json.field("sampled", true);
  json.end_object();
  json.end_object();
}

}  // namespace dynprof
