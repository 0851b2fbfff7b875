// The edges one thread leaves while Dynamo traces a user's function, as torch 2.13 makes them, on top of
// FakeRecording: time is the recording's, the caller moves it.
//
//   FakeTracing tracing(fake, thread);
//   tracing.compile("0/0", 0, fake.code("job.py", "step", 10));     // up to "bytecode_tracing"
//   tracing.call(leaf, 5);                                          // 5 ms, nothing in it
//   tracing.enter(leaf); fake.pass_ms(5); tracing.leave();          // the same; or raise()
//   tracing.done();
#pragma once

#include <string>
#include <vector>

#include "tests/unit/fake_recording.h"

namespace dynprof {

class FakeTracing {
 public:
  FakeTracing(FakeRecording& recording, ThreadId thread) : fake(recording), thread_(thread) {}

  // One attempt from its begin to where tracing begins; inside whatever is open.
  void compile(const std::string& id, std::int32_t attempt = 0, CodeId user_code = 0) {
    if (attempt == 0 || compiles_.empty()) open_compile(id, user_code);
    attempt_begin(attempt);
  }
  void attempt_begin(std::int32_t attempt) {
    compiles_.back().attempt = attempt;
    begin("compile_attempt_" + std::to_string(attempt));
    begin("bytecode_tracing");
  }
  void traced() { end(); }  // the compile's own function
  void attempt_end() { end(); }
  void done() {
    traced();
    attempt_end();
    close_compile();
  }
  void open_compile(const std::string& id, CodeId user_code = 0,
                    const std::string& phase = "dynamo") {
    compiles_.push_back({id, 0, user_code});
    begin(phase);
  }
  void close_compile() {
    end();
    compiles_.pop_back();
  }

  void enter(CodeId code) { inlined(EdgeKind::kInlineBegin, "", ++depth_, code); }
  void leave() { inlined(EdgeKind::kInlineEnd, "", depth_--, 0); }
  void raise() { inlined(EdgeKind::kInlineEnd, "raised", depth_--, 0); }
  void call(CodeId code, std::uint64_t ms) {
    enter(code);
    fake.pass_ms(ms);
    leave();
  }
  // Begins and ends that are not recorded.
  void lose_enter() { ++depth_; }
  void lose_leave() { --depth_; }
  void lose_begin(const std::string& name) { phases_.push_back(name); }
  void lose_end() { phases_.pop_back(); }

  void begin(const std::string& name) {
    phases_.push_back(name);
    emit(EdgeKind::kPhaseBegin, name, phases_.size());
  }
  void end() {
    emit(EdgeKind::kPhaseEnd, phases_.back(), phases_.size());
    phases_.pop_back();
  }
  void watch_begin() {
    SpanEdge edge = make(EdgeKind::kWatchBegin, "", phases_.size());
    TorchState state = this->state();
    for (const std::string& phase : phases_) state.phases.push_back(fake.string(phase));
    edge.context = fake.torch_context(state);
    fake.edge(edge);
  }
  void watch_end() {
    while (depth_ > 0) raise();
    emit(EdgeKind::kWatchEnd, "", 0);
  }
  void emit(EdgeKind kind, const std::string& name, std::size_t depth) {
    fake.edge(make(kind, name, depth));
  }
  SpanEdge make(EdgeKind kind, const std::string& name, std::size_t depth, CodeId code = 0) {
    SpanEdge edge;
    edge.time_ns = fake.now();
    edge.thread = thread_;
    edge.kind = kind;
    edge.name = fake.string(name);
    edge.depth = static_cast<std::uint32_t>(depth);
    edge.code = code;
    edge.context = fake.torch_context(state(), markers());
    return edge;
  }

  FakeRecording& fake;

 private:
  struct Open {
    std::string id;
    std::int32_t attempt;
    CodeId user_code;
  };
  TorchState state() {
    return compiles_.empty() ? fake.torch_state("", 0)
                             : fake.torch_state(compiles_.back().id, compiles_.back().attempt);
  }
  std::vector<Marker> markers() const {
    if (compiles_.empty()) return {};
    TraceId id = parse_trace_id(compiles_.back().id);
    return {FakeRecording::compile_marker(id.frame, id.compile, 0x1000 + compiles_.size(),
                                          compiles_.back().user_code)};
  }
  void inlined(EdgeKind kind, const std::string& name, std::size_t depth, CodeId code) {
    SpanEdge edge = make(kind, name, depth, code);
    edge.context = fake.torch_context(state());
    fake.edge(edge);
  }

  ThreadId thread_;
  std::vector<Open> compiles_;
  std::vector<std::string> phases_;
  std::size_t depth_ = 0;
};

}  // namespace dynprof
