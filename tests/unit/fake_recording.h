// A recording built in memory, for tests of everything downstream of the reader. Nothing is
// checked on the way in except ids: a test may build what no real process would do.
//
//   FakeRecording fake;
//   auto thread = fake.thread(100, 100, "python3");
//   auto main = fake.python("train.py", "main", 10, 12);          // file, qualname, first line, line
//   auto stack = fake.stack({main, fake.native("memcpy", "/usr/lib/libc.so.6")});  // root first
//   fake.sample(thread, stack);                                   // time moves on by one period
//   Attribution attribution(fake);
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "symbolizer/attribution/compile.h"
#include "symbolizer/base/result.h"
#include "symbolizer/python/python_version.h"
#include "symbolizer/recording/reader.h"

namespace dynprof {

class FakeRecording : public Recording {
 public:
  static constexpr std::uint16_t kPython311 = python_version(3, 11);

  FakeRecording() {
    meta_.target_pid = 100;
    meta_.frequency_hz = 100;
    meta_.period_ns = 10'000'000;
    meta_.start_ns = 1'000'000'000;
    meta_.realtime_offset_ns = 1'700'000'000'000'000'000;
    meta_.event = "cpu-clock";
    meta_.host = "testhost";
    meta_.kernel = "6.1.0";
    meta_.command = "python3 train.py";
    meta_.python = "3.11.7";
    meta_.torch = "2.13.0+cpu";
    meta_.version = "0.1.0";
    now_ = meta_.start_ns;
    trailer_.reason = "interrupted";
    string("");
    blob("");
    tables_.codes.push_back(Code{.unreadable = Unreadable::kFault});
    tables_.frames.push_back(Frame{});
    tables_.stacks.push_back(StackNode{});
    tables_.contexts.push_back(Context{});
  }

  // ---- building --------------------------------------------------------------------------------
  Meta& edit_meta() { return meta_; }
  Trailer& edit_trailer() { return trailer_; }
  Tables& edit_tables() { return tables_; }
  void set_complete(bool complete) { complete_ = complete; }
  void add_damage(std::string sentence) { damage_.push_back(std::move(sentence)); }

  StringId string(std::string_view text) {
    return intern(string_ids_, text_storage_, tables_.strings, text);
  }
  BlobId blob(std::string_view bytes) {
    return intern(blob_ids_, blob_storage_, tables_.blobs, bytes);
  }
  CodeId code(const Code& code) {
    for (CodeId id = 0; id < tables_.codes.size(); ++id) {
      if (tables_.codes[id] == code) return id;
    }
    tables_.codes.push_back(code);
    return static_cast<CodeId>(tables_.codes.size() - 1);
  }
  // A CPython 3.11 code object whose code unit i is on line first_line + i. `name` (co_name) is
  // what follows the last dot of the qualname.
  CodeId code(std::string_view file, std::string_view qualname, std::int32_t first_line) {
    std::size_t dot = qualname.rfind('.');
    std::string_view name = dot == std::string_view::npos ? qualname : qualname.substr(dot + 1);
    return code(Code{.filename = string(file),
                     .name = string(name),
                     .qualname = string(qualname),
                     .first_line = first_line,
                     .line_table = blob(one_line_per_unit()),
                     .python = kPython311});
  }
  FrameId frame(const Frame& frame) {
    for (FrameId id = 0; id < tables_.frames.size(); ++id) {
      if (tables_.frames[id] == frame) return id;
    }
    tables_.frames.push_back(frame);
    return static_cast<FrameId>(tables_.frames.size() - 1);
  }
  FrameId python(CodeId code, std::int32_t unit = -1, bool entry = false) {
    return frame(Frame{.kind = FrameKind::kPython, .entry = entry, .code = code, .unit = unit});
  }
  // `line` 0 or the first line: not started.
  FrameId python(std::string_view file, std::string_view qualname, std::int32_t first_line,
                 std::int32_t line = 0) {
    return python(code(file, qualname, first_line), line > first_line ? line - first_line : -1);
  }
  FrameId native(std::string_view symbol, std::string_view object, std::uint64_t offset = 0) {
    return frame(Frame{.kind = FrameKind::kNative,
                       .symbol = string(symbol),
                       .object = string(object),
                       .offset = offset});
  }
  FrameId kernel(std::string_view symbol) {
    return frame(
        Frame{.kind = FrameKind::kKernel, .symbol = string(symbol), .object = string("[kernel]")});
  }
  // Root first, leaf last.
  StackId stack(const std::vector<FrameId>& frames, StackId below = 0) {
    StackId id = below;
    for (FrameId frame : frames) id = node(StackNode{.caller = id, .frame = frame});
    return id;
  }
  StackId node(const StackNode& node) {
    auto [it, added] = stack_ids_.try_emplace(std::pair(node.caller, node.frame),
                                              static_cast<StackId>(tables_.stacks.size()));
    if (added) tables_.stacks.push_back(node);
    return it->second;
  }
  // Root first.
  ContextId context(std::vector<Marker> markers) { return context(Context{std::move(markers)}); }
  ContextId context(Context context) {
    for (ContextId id = 0; id < tables_.contexts.size(); ++id) {
      if (tables_.contexts[id] == context) return id;
    }
    tables_.contexts.push_back(std::move(context));
    return static_cast<ContextId>(tables_.contexts.size() - 1);
  }
  static Marker compile_marker(std::int32_t frame, std::int32_t compile, std::uint64_t instance,
                               CodeId user_code = 0, std::int32_t autograd = -1) {
    return Marker{.kind = MarkerKind::kCompile,
                  .autograd_id = autograd,
                  .frame_id = frame,
                  .compile_id = compile,
                  .instance = instance,
                  .user_code = user_code};
  }
  static Marker attempt_marker(std::int32_t attempt, std::uint64_t instance) {
    return Marker{.kind = MarkerKind::kAttempt, .attempt = attempt, .instance = instance};
  }
  static Marker backward_marker(std::int32_t frame, std::int32_t compile, std::int32_t attempt,
                                std::uint64_t instance) {
    return Marker{.kind = MarkerKind::kBackward,
                  .frame_id = frame,
                  .compile_id = compile,
                  .attempt = attempt,
                  .instance = instance};
  }
  // What torch's thread-locals say: `id` as torch prints it ("" for no compile), phases outermost first.
  TorchState torch_state(std::string_view id, std::int32_t attempt,
                         const std::vector<std::string>& phases = {}) {
    TraceId parsed = parse_trace_id(id);
    TorchState state{TorchStatus::kRead, parsed.autograd, parsed.frame, parsed.compile, -1, {}};
    if (is_valid(parsed)) state.attempt = attempt;
    for (const std::string& phase : phases) state.phases.push_back(string(phase));
    return state;
  }
  ContextId torch_context(const TorchState& state, std::vector<Marker> markers = {}) {
    return context(Context{std::move(markers), state});
  }
  void edge(const SpanEdge& edge) { tables_.edges.push_back(edge); }
  // By then the thread had run for so long.
  void ran(ThreadId thread, std::uint64_t time_ns, std::uint64_t cpu_ns) {
    Wait mark{.begin_ns = time_ns, .cpu_ns = cpu_ns};
    mark.thread = thread;
    mark.kind = WaitKind::kNone;
    tables_.waits.push_back(mark);
  }
  void fact(std::int32_t pid, std::string_view kind, std::string_view name, std::string_view body) {
    tables_.facts.push_back(Fact{pid, now_, string(kind), string(name), blob(body)});
  }
  void process(const Process& process) { tables_.processes.push_back(process); }
  ThreadId thread(std::int32_t pid, std::int32_t tid, std::string_view comm = "python3") {
    tables_.threads.push_back(Thread{.pid = pid, .tid = tid, .comm = string(comm)});
    return static_cast<ThreadId>(tables_.threads.size() - 1);
  }
  // `count` samples one period apart; the clock then stands one period after the last.
  void sample(ThreadId thread, StackId stack, ContextId context = 0, std::uint8_t flags = 0,
              std::uint64_t count = 1) {
    for (std::uint64_t i = 0; i < count; ++i) {
      sample_at(now_, thread, stack, context, flags);
      now_ += meta_.period_ns;
    }
  }
  void sample_at(std::uint64_t time_ns, ThreadId thread, StackId stack, ContextId context = 0,
                 std::uint8_t flags = 0) {
    DYNPROF_CHECK(thread < tables_.threads.size() && stack < tables_.stacks.size() &&
                  context < tables_.contexts.size());
    samples_.push_back(Sample{time_ns, thread, stack, context, flags});
    trailer_.end_ns = std::max(trailer_.end_ns, time_ns + meta_.period_ns);
  }
  std::uint64_t now() const { return now_; }
  void skip(std::uint64_t periods) { now_ += periods * meta_.period_ns; }
  void pass_ms(std::uint64_t ms) { now_ += ms * 1'000'000; }

  // ---- Recording -------------------------------------------------------------------------------
  const Meta& meta() const override { return meta_; }
  const Tables& tables() const override { return tables_; }
  const Trailer& trailer() const override { return trailer_; }
  bool complete() const override { return complete_; }
  const std::vector<std::string>& damage() const override { return damage_; }
  std::uint64_t sample_count() const override { return samples_.size(); }
  void for_each_sample(const std::function<void(const Sample&)>& visit) const override {
    for (const Sample& sample : samples_) visit(sample);
  }

 private:
  using Ids = std::map<std::string, std::uint32_t, std::less<>>;

  static std::uint32_t intern(Ids& ids, std::deque<std::string>& storage,
                              std::vector<std::string_view>& views, std::string_view text) {
    if (auto it = ids.find(text); it != ids.end()) return it->second;
    auto id = static_cast<std::uint32_t>(views.size());
    views.push_back(storage.emplace_back(text));
    ids.emplace(std::string(text), id);
    return id;
  }
  // CPython 3.11 location table: entries of one code unit without columns (kind 13), line deltas
  // 0, 1, 1, ... as signed varints.
  static std::string one_line_per_unit() {
    std::string table;
    for (int unit = 0; unit < 512; ++unit) {
      table += static_cast<char>(0x80 | (13 << 3));
      table += static_cast<char>(unit == 0 ? 0 : 2);
    }
    return table;
  }

  Meta meta_;
  Trailer trailer_;
  Tables tables_;
  bool complete_ = true;
  std::vector<std::string> damage_;
  std::vector<Sample> samples_;
  std::uint64_t now_ = 0;
  std::deque<std::string> text_storage_, blob_storage_;
  Ids string_ids_, blob_ids_;
  std::map<std::pair<StackId, FrameId>, StackId> stack_ids_;
};

}  // namespace dynprof
