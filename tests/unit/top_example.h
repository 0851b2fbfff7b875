// A process with one compile that lowers a graph, a thread that waits for its lock, and a compiler.
#pragma once

#include "user/top/model.h"

namespace dynprof::testing {

inline OpenCompile lowering_compile() {
  OpenCompile compile;
  compile.tid = 100;
  compile.thread = "MainThread";
  compile.id = "0/1";
  compile.attempt = 0;
  compile.function = {"step", "/home/me/train.py", 40};
  compile.age_s = 12.3;
  compile.phase = "inductor";
  compile.torch_phases = {"_compile.compile_inner", "GraphLowering.run"};
  compile.activity = "lowering";
  compile.at = TopPlace{"forward", "/home/me/model.py", 17};
  compile.node = 12;
  compile.nodes = 310;
  compile.state = 'R';
  return compile;
}

inline OpenCompile waiting_thread() {
  OpenCompile waiting;
  waiting.tid = 101;
  waiting.thread = "second";
  waiting.function = {"serve", "/home/me/serve.py", 7};
  waiting.wait = TopWait::kCompileLock;
  waiting.lock_holder = 100;
  waiting.state = 'S';
  return waiting;
}

inline TopProcess compiler(pid_t pid, pid_t parent, pid_t started_by,
                           const char* title = "g++ main.cpp") {
  TopProcess process;
  process.pid = pid;
  process.parent = parent;
  process.started_by = started_by;
  process.start_ticks = 5000 + static_cast<std::uint64_t>(pid);
  process.title = title;
  process.purpose = "compiler";
  process.state = 'R';
  process.cpu_s = 1;
  process.age_s = 3.2;
  process.rss_bytes = 50'000'000;
  return process;
}

inline FinishedCompile finished(const char* id, double wall_s, std::int64_t end_us) {
  FinishedCompile row;
  row.id = id;
  row.function = {"step", "/home/me/train.py", 40};
  row.wall_s = wall_s;
  row.end_us = end_us;
  row.phases = {{Phase::kInductor, wall_s / 2}, {Phase::kDynamo, wall_s / 4}};
  row.cache = "miss";
  return row;
}

// One that runs, one that calls it, and one that waits.
inline TopFunctions example_functions() {
  TopFunctions functions;
  functions.asked = functions.begun = true;
  functions.sampled_s = 20;
  functions.frequency_hz = 99;
  functions.samples = 1234;
  functions.rows = {
      {{"step", "/home/me/train.py", 40}, true, {0.1, 5, 0, 1}, {0.2, 9, 0, 2}},
      {{"Linear.forward", "/torch/nn/modules/linear.py", 125},
       false,
       {4.9, 4.9, 0, 0},
       {8, 8, 0, 0}},
      {{"Queue.get", "/usr/lib/python3.11/queue.py", 154}, false, {0, 0, 9, 9}, {0, 0, 19, 19}}};
  return functions;
}

// Read at `time_s`, with everything above in it.
inline TopReading example_reading(double time_s) {
  TopReading reading;
  reading.time_s = reading.details_time_s = time_s;
  reading.epoch_us = 2'000'000'000 + static_cast<std::int64_t>(time_s * 1e6);
  reading.target.pid = 100;
  reading.target.command = "python train.py";
  reading.target.python = "3.11.2";
  reading.target.torch = "2.13.0+cpu";
  reading.target.state = 'R';
  reading.target.threads = 23;
  reading.target.uptime_s = 125;
  reading.target.cpu_s = time_s;
  reading.target.rss_bytes = 1'200'000'000;
  reading.target.peak_bytes = 1'300'000'000;
  reading.open = {lowering_compile(), waiting_thread()};
  reading.processes = {compiler(77, 100, 100), compiler(78, 77, 77, "cc1plus main.cpp")};
  reading.finished = {finished("0/0", 13.87, 2'000'000'000), finished("1/0", 0.5, 1'990'000'000)};
  reading.finished[0].recompile_reason =
      "tensor 'x' size mismatch at index 0. expected 4, actual 5";
  reading.functions = example_functions();
  reading.own = {0.01 * time_s, 100 * static_cast<std::uint64_t>(time_s)};
  return reading;
}

}  // namespace dynprof::testing
