#include "user/torch/inline_watch.h"

#include <utility>

#include "user/kernel/perf_event.h"

namespace dynprof {
namespace {

constexpr std::string_view kTracing = "bytecode_tracing";

// Phases that lead to the tracing of a function, of torch 2.13 to 2.15 (bpf/uprobes.bpf.c has them too);
// older ones have no function to watch.
bool leads_to_tracing(std::string_view phase) {
  return phase == "dynamo" || phase == "entire_frame_compile" || phase == "fullgraph_capture" ||
         phase.starts_with("compile_attempt_");
}

}  // namespace

void InlineWatch::phase_begins(std::string_view name) {
  if (name == kTracing)
    stage_ = Stage::kTracing;
  else if (stage_ == Stage::kIdle && leads_to_tracing(name))
    stage_ = Stage::kExpected;
}

void InlineWatch::phase_ends(std::string_view name, bool outermost) {
  if (outermost || name == kTracing) stage_ = Stage::kIdle;
}

Result<void> InlineWatch::update(pid_t tid, const dp_torch_layout& torch, KernelSide& kernel,
                                 std::uint64_t time_ns) {
  if (!wanted()) {
    if (armer_) armer_->set(tid_, false, time_ns);
    return {};
  }
  auto prepared = prepare(tid, torch, kernel);
  if (armer_) armer_->set(tid_, true, time_ns);
  return prepared;
}

Result<void> InlineWatch::prepare(pid_t tid, const dp_torch_layout& torch, KernelSide& kernel) {
  if (armer_ || given_up_ || torch.inline_code == 0) return {};
  armer_ = kernel.armer();
  given_up_ = armer_ == nullptr;  // watchpoints are not wanted
  if (given_up_) return {};
  auto opened = open(tid, torch, kernel);
  if (opened) return {};
  armer_ = nullptr;
  given_up_ = true;
  return opened;
}

Result<void> InlineWatch::open(pid_t tid, const dp_torch_layout& torch, KernelSide& kernel) {
  ASSIGN_OR_RETURN(UniqueFd begin, open_instruction_watchpoint(tid, torch.inline_begin));
  ASSIGN_OR_RETURN(Watchpoint first, kernel.watch_inline(std::move(begin), true));
  first.arm(false);
  ASSIGN_OR_RETURN(UniqueFd end, open_instruction_watchpoint(tid, torch.inline_end, first.fd()));
  ASSIGN_OR_RETURN(Watchpoint last, kernel.watch_inline(std::move(end), false));
  begin_ = std::move(first);
  end_ = std::move(last);
  tid_ = tid;
  armer_->add(tid, [this](bool on) { begin_.arm(on); });
  return {};
}

void InlineWatch::close() {
  if (armer_) armer_->remove(tid_);
  armer_ = nullptr;
  begin_.arm(false);
  end_.reset();  // first: without its leader it would be armed
  begin_.reset();
  given_up_ = true;
  stage_ = Stage::kIdle;
}

}  // namespace dynprof
