// The edges one thread leaves as torch opens and closes phases, on top of FakeRecording: time is the
// recording's, the caller moves it.
//
//   FakeEdges edges(fake, thread);
//   edges.compile("0/0");                 // what torch's thread-locals say from here on
//   edges.begin("dynamo"); fake.pass_ms(5); edges.end();
#pragma once

#include <string>
#include <vector>

#include "tests/unit/fake_recording.h"

namespace dynprof {

class FakeEdges {
 public:
  FakeEdges(FakeRecording& recording, ThreadId thread) : fake(recording), thread_(thread) {}

  void compile(std::string id, std::int32_t attempt = 0) {
    id_ = std::move(id);
    attempt_ = attempt;
  }
  void no_compile() { compile(""); }

  void begin(const std::string& name) {
    open_.push_back(name);
    emit(EdgeKind::kPhaseBegin, name, depth());
  }
  void end() {
    std::string name = open_.back();
    emit(EdgeKind::kPhaseEnd, name, depth());
    open_.pop_back();
  }
  // A begin or an end that is not recorded.
  void lose_begin(const std::string& name) { open_.push_back(name); }
  void lose_end() { open_.pop_back(); }
  // A phase of this length, with nothing in it.
  void phase(const std::string& name, std::uint64_t ms) {
    begin(name);
    fake.pass_ms(ms);
    end();
  }
  void watch() {
    SpanEdge edge = make(EdgeKind::kWatchBegin, "", depth());
    edge.context = fake.torch_context(fake.torch_state(id_, attempt_, open_));
    fake.edge(edge);
  }
  void unwatch() { emit(EdgeKind::kWatchEnd, "", 0); }
  void region_begin(const std::string& name) { emit(EdgeKind::kRegionBegin, name, 0); }
  void region_end() { emit(EdgeKind::kRegionEnd, "", 0); }
  void emit(EdgeKind kind, const std::string& name, std::size_t depth) {
    fake.edge(make(kind, name, depth));
  }
  SpanEdge make(EdgeKind kind, const std::string& name, std::size_t depth) {
    SpanEdge edge;
    edge.time_ns = fake.now();
    edge.thread = thread_;
    edge.kind = kind;
    edge.name = fake.string(name);
    edge.depth = static_cast<std::uint32_t>(depth);
    edge.context = context_now();
    edge.cpu_ns = cpu_ns;
    return edge;
  }
  // The open compile breaks its graph; `calls` lead to the line that broke, outermost first.
  void graph_break(const std::string& reason, const std::vector<UserCall>& calls = {}) {
    fake.edit_tables().graph_breaks.push_back(
        {fake.now(), thread_, context_now(), fake.string(reason), calls});
  }
  UserCall call(const std::string& file, std::uint32_t line, const std::string& function) {
    return {fake.string(file), line, fake.string(function)};
  }
  // The open compile is seen at a line, or the thread waiting for the compile lock.
  void line_sample(std::uint64_t weight_ns, LineUse use, const UserCall& line) {
    fake.edit_tables().line_samples.push_back(
        {fake.now(), weight_ns, thread_, context_now(), use, line});
  }
  void lock_sample(std::uint64_t weight_ns, std::int32_t holder_tid) {
    fake.edit_tables().lock_samples.push_back({fake.now(), weight_ns, thread_, holder_tid});
  }
  // As a sample taken now finds it.
  ContextId context(std::vector<Marker> markers = {}) {
    return fake.torch_context(fake.torch_state(id_, attempt_, open_), std::move(markers));
  }

  // A forward compile as torch 2.13 does it, 100 ms: 10 tracing, 20 in AOTAutograd, 30 in Inductor and
  // 20 waiting inside that, 15 guards, 5 after.
  void forward(const std::string& id) {
    compile(id);
    begin("dynamo");
    begin("entire_frame_compile");
    begin("compile_attempt_0");
    phase("bytecode_tracing", 10);
    begin("backend_compile");
    begin("create_aot_dispatcher_function");
    fake.pass_ms(20);
    begin("inductor_compile");
    fake.pass_ms(30);
    phase("async_compile.wait", 20);
    for (int i = 0; i < 4; ++i) end();
    phase("build_guards", 15);
    end();
    fake.pass_ms(5);
    end();
    no_compile();
  }
  void backward(const std::string& id, std::int32_t attempt = 0) {
    compile(id, attempt);
    begin("entire_backward_compile");
    fake.pass_ms(10);
    phase("compile_fx.<locals>.bw_compiler", 40);
    end();
    no_compile();
  }

  FakeRecording& fake;
  std::uint64_t cpu_ns = 0;

 private:
  std::size_t depth() const { return open_.size(); }
  ContextId context_now() { return fake.torch_context(fake.torch_state(id_, attempt_)); }

  ThreadId thread_;
  std::string id_;
  std::int32_t attempt_ = 0;
  std::vector<std::string> open_;
};

}  // namespace dynprof
