// Tables from their chunks: what is missing between two chunks of a table gets stand-ins, so that
// every id that is left means what it meant when it was written.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "symbolizer/recording/damage.h"
#include "symbolizer/recording/format.h"
#include "symbolizer/recording/model.h"
#include "symbolizer/recording/row_formats.h"

namespace dynprof::recording {

// Ids that stand for what the file no longer has, one of each; made when the first is needed.
struct LostIds {
  StringId string = 0;
  CodeId code = 0;
  FrameId frame = 0;
  StackId stack = 0;
  ContextId context = 0;
  ThreadId thread = 0;
};

class TableBuilder {
 public:
  // A file may ask for this much memory for its tables, and not more.
  explicit TableBuilder(std::uint64_t file_bytes);

  // A table will have about so many rows: memory taken once instead of by doubling.
  void reserve(ChunkKind kind, std::uint64_t rows);
  // `raw` is the payload of a chunk of a table. A chunk that is malformed adds nothing.
  void add(const ChunkHeader& header, std::span<const std::uint8_t> raw, Damage& damage);
  // After the last chunk: fills the gaps and makes every id valid.
  void finish(Damage& damage);

  const Tables& tables() const { return tables_; }
  Tables& edit_tables() { return tables_; }
  // What tables may still take.
  std::uint64_t memory_left() const { return memory_left_; }
  // For an id in a sample that nothing defines. Only after finish(); may add a row.
  StackId lost_stack();
  ContextId lost_context();
  ThreadId lost_thread();
  // The sample's stack has a frame that is lost. After finish().
  bool stack_is_lost(StackId id) const { return !lost_stacks_.empty() && lost_stacks_[id]; }
  bool context_is_lost(ContextId id) const { return contains(contexts_gaps_, id); }
  bool thread_is_lost(ThreadId id) const { return contains(threads_gaps_, id); }

 private:
  struct Range {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };
  using Gaps = std::vector<Range>;  // ascending
  static bool contains(const Gaps& gaps, std::uint32_t id);

  template <class T, class Decode>
  void add_rows(const ChunkHeader& header, std::vector<T>& table, Gaps& gaps, const T& stand_in,
                const Decode& decode, Damage& damage);
  void add_text(const ChunkHeader& header, std::span<const std::uint8_t> raw,
                std::vector<std::string_view>& table, std::string_view stand_in, Gaps& gaps,
                Damage& damage);
  bool charge(std::uint64_t bytes);

  StringId lost_string();
  CodeId lost_code();
  FrameId lost_frame();
  void finish_codes(Damage& damage);
  void finish_frames(Damage& damage);
  void finish_stacks(Damage& damage);
  void finish_others(Damage& damage);
  bool charge_items(const ChunkHeader& header, std::size_t size, std::size_t smallest,
                    Damage& damage);
  bool admit_repetitive(const ChunkHeader& header, std::size_t size, std::size_t smallest,
                        Damage& damage);
  template <class Row>
  void finish_list(std::vector<Row>& rows, const Gaps& gaps, Damage& damage);
  // False: `id` is of something that is lost, and without it a row says nothing.
  bool repair(Ref what, std::uint32_t& id, Damage& damage);
  // An undefined string becomes "<lost>"; true if it was one.
  bool repair_string(StringId& id);

  Tables tables_;
  std::vector<std::unique_ptr<char[]>> text_;  // what the views of strings and blobs point into
  std::uint64_t memory_left_;
#define DYNPROF_GAPS(kind, number, name, Row, member, ...) Gaps member##_gaps_;
  DYNPROF_TABLES(DYNPROF_GAPS)
  DYNPROF_LISTS(DYNPROF_GAPS)
#undef DYNPROF_GAPS
  std::vector<bool> lost_frames_, lost_stacks_;  // empty if nothing is lost
  LostIds lost_;
  bool have_lost_thread_ = false;  // 0 is a thread like any other
};

}  // namespace dynprof::recording
