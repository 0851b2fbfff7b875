// The compiles that torch has noted as finished, followed from look to look: of each only what is new is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "user/history/compile_history.h"
#include "user/live/target_view.h"
#include "user/top/reading.h"

namespace dynprof {

// A row as it is shown.
FinishedCompile finished_compile(const HistoryRow& row);

// By how many items `now` begins later than `then`, a list of which old items fall out at the front.
std::size_t items_gone(const std::vector<std::uint64_t>& then,
                       const std::vector<std::uint64_t>& now);

class FinishedRows {
 public:
  static constexpr std::size_t kMaxRows = 256;  // the newest; torch keeps 64 unless told otherwise
  static constexpr std::size_t kReadsAtOnce = 64;

  // Whether rows() changed.
  bool read(TargetView& view);
  // What was learnt of addresses is of an older view.
  void forget_addresses() { deque_ = 0; }

  const std::vector<FinishedCompile>& rows() const { return shown_; }  // newest first
  bool dropped() const { return dropped_; }
  // The function of a frame id, by the newest compile of it; nullopt: none has finished.
  std::optional<TopPlace> function_of(std::int64_t frame) const;

 private:
  static constexpr int kTries = 3;
  struct Item {
    std::uint64_t address = 0;
    std::optional<HistoryRow> row;
    int tries = 0;
  };
  std::optional<std::vector<std::uint64_t>> items(TargetView& view);
  void show();

  std::uint64_t deque_ = 0;  // torch._dynamo.utils._compilation_metrics
  std::vector<Item> items_;  // oldest first
  std::vector<FinishedCompile> shown_;
  std::vector<HistoryRow> named_;  // without their metrics
  std::set<std::string> unread_fields_;
  bool dropped_ = false;
};

}  // namespace dynprof
