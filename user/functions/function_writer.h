// The part of a recording that `top` uses, kept in memory: which Python functions a stack has. What samplers write
// beside that is dropped.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "symbolizer/recording/writer.h"
#include "user/top/function_times.h"

namespace dynprof {

class FunctionWriter final : public RecordingWriter {
 public:
  // `times` outlives it.
  FunctionWriter(FunctionTimes& times, std::vector<std::string> user_packages)
      : times_(times), user_packages_(std::move(user_packages)) {}

  // Functions of a stack, leaf first; those of one that was forgotten are not known.
  std::vector<FunctionTimes::Id> functions(StackId stack) const;
  // Call it between two events: texts of the last one, and stacks when there are too many, are forgotten.
  void bound_memory();
  // The waits that have been written as going on.
  std::vector<FunctionTimes::Stretch> take_open() { return std::exchange(open_, {}); }

 private:
  static constexpr std::size_t kMaxStacks = 500'000;

  StringId string(std::string_view text) override;
  BlobId blob(std::string_view) override { return 0; }
  CodeId code(const Code& code) override;
  FrameId frame(const Frame& frame) override;
  StackId stack(const StackNode& node) override;
  ContextId context(const Context&) override { return 0; }
  ThreadId thread(const Thread&) override { return 0; }
  void sample(const Sample&) override {}
#define DYNPROF_DROP(kind, number, name, Row, member, function) \
  void function(const Row& row) override { keep(row); }
  DYNPROF_LISTS(DYNPROF_DROP)
#undef DYNPROF_DROP
  Result<void> flush() override { return {}; }
  Result<void> finish(const Trailer&) override { return {}; }
  std::uint64_t size() const override { return 0; }
  std::uint64_t samples_dropped() const override { return 0; }

  template <class Row>
  void keep(const Row&) {}
  void keep(const Wait& wait);

  // Code objects and frames have the number of their function.
  struct Node {
    StackId caller = 0;
    FunctionTimes::Id function = 0;
  };
  FunctionTimes& times_;
  std::vector<std::string> user_packages_;
  std::vector<std::string> texts_;  // of one event; their numbers begin with 1
  // Numbers are not used again, so that one kept elsewhere never names another stack.
  StackId first_stack_ = 1;
  std::vector<Node> stacks_;
  std::unordered_map<std::uint64_t, StackId> stack_ids_;  // by caller and function
  std::vector<FunctionTimes::Stretch> open_;
};

}  // namespace dynprof
