// An address space and its unwind tables as user space gives them to the BPF unwinder, and a thread in it.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tests/unit/bpf_walk_host.h"
#include "user/kernel/event_view.h"
#include "user/stacks/native_maps.h"

namespace dynprof::testing {

// Slot 1 of native_spaces, with tables from slot 1 of unwind_tables on.
class NativeSpaceImage {
 public:
  static constexpr std::uint32_t kSlot = 1, kOwner = 7;

  NativeSpaceImage() { tables_.emplace_back(); }

  // Returns its slot, which is its serial too.
  std::uint32_t add(const UnwindTable& table) {
    const auto slot = static_cast<std::uint32_t>(tables_.size());
    std::vector<dp_unwind_row>& rows = tables_.emplace_back();
    rows.resize(NativeMaps::bytes_of(table) / sizeof(dp_unwind_row));
    fill_table(table, slot, rows.data());
    return slot;
  }
  std::vector<dp_unwind_row>& elements(std::uint32_t slot) { return tables_[slot]; }
  // In order of address.
  void map(std::uint64_t start, std::uint64_t end, std::uint64_t bias, std::uint32_t table) {
    mappings_.push_back({start, end, bias, table, table});
  }
  void publish() {
    entries_.assign(mappings_.size() + 1, {});
    fill_space(entries_.data(), kOwner, next_content(), mappings_);
  }
  // Entry 0 is the header.
  std::vector<dp_native_mapping>& entries() { return entries_; }

  void give_to(dp_host_thread& thread) {
    spaces_[kSlot] = {entries_.data(), static_cast<__u32>(entries_.size()),
                      sizeof(dp_native_mapping)};
    arrays_.clear();
    for (std::vector<dp_unwind_row>& rows : tables_)
      arrays_.push_back({rows.empty() ? nullptr : rows.data(), static_cast<__u32>(rows.size()),
                         sizeof(dp_unwind_row)});
    thread.spaces = spaces_.data();
    thread.space_count = static_cast<__u32>(spaces_.size());
    thread.tables = arrays_.data();
    thread.table_count = static_cast<__u32>(arrays_.size());
  }

  // The unwinder remembers rules by it: no two contents of a test program may share one.
  static std::uint64_t next_content() {
    static std::uint64_t last = 0;
    return ++last;
  }

 private:
  std::vector<std::vector<dp_unwind_row>> tables_;  // by slot
  std::vector<dp_native_mapping> mappings_, entries_;
  std::array<dp_host_array, kSlot + 1> spaces_{};
  std::vector<dp_host_array> arrays_;
};

// The event of a thread as user space decodes it.
class SampledThread {
 public:
  SampledThread() : event_(std::make_unique<Event>()) {}

  const SampleView& take(const dp_host_thread& thread) {
    const __u32 size = dp_host_sample(&thread, event_->bytes);
    const auto view = decode_sample(std::span(event_->bytes).first(size));
    EXPECT_TRUE(view) << "user space would call the event malformed";
    view_ = view.value_or(SampleView{});
    return view_;
  }
  // Without DP_NATIVE_EXACT.
  std::vector<std::uint64_t> addresses() const {
    std::vector<std::uint64_t> found;
    for (std::uint64_t address : view_.native) found.push_back(address & ~DP_NATIVE_EXACT);
    return found;
  }

 private:
  struct Event {
    alignas(8) std::byte bytes[DP_HOST_EVENT_BYTES];
  };
  std::unique_ptr<Event> event_;
  SampleView view_{};
};

}  // namespace dynprof::testing
