#include "user/torch/compile_progress.h"

#include <algorithm>
#include <map>
#include <utility>

#include "symbolizer/recording/format.h"
#include "user/live/thread_moment.h"
#include "user/target/bounded_memory.h"
#include "user/target/clock.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxOpen = 64;
constexpr std::size_t kMaxReads = 300'000;
constexpr std::size_t kMaxBytes = 512 << 20;
// One look at a thread; it is repeated while there is time.
constexpr std::chrono::milliseconds kLook{5};

class ProgressReader {
 public:
  ProgressReader(RemoteMemory& memory, RemoteObjects& objects, const PythonRuntime& runtime,
                 const std::vector<std::string>& packages)
      : packages_(packages), view_(memory, objects, runtime), torch_(view_), graphs_(view_) {}

  std::vector<ProgressReading> read(Deadline deadline) {
    std::vector<ProgressReading> found;
    if (!torch_.imported()) return found;
    for (auto [tid, tstate] : thread_states(view_.objects, view_.runtime)) {
      if (found.size() == kMaxOpen) break;
      if (!torch_.read_open(tid, tstate).compiling()) continue;
      if (auto reading = read_thread(tid, tstate, deadline)) found.push_back(std::move(*reading));
    }
    return found;
  }

 private:
  std::optional<ProgressReading> read_thread(pid_t tid, std::uint64_t tstate, Deadline deadline) {
    ProgressReading reading;
    ThreadMoment moment;
    do {
      reading.time_ns = monotonic_ns();
      const auto look = std::min(deadline, std::chrono::steady_clock::now() + kLook);
      moment = read_thread_moment(view_, torch_, tid, tstate, look);
      if (!moment.compile) return std::nullopt;  // it is over
    } while (!moment.consistent && std::chrono::steady_clock::now() < deadline);
    const CompileNow& compile = *moment.compile;
    if (!is_valid(compile.id)) return std::nullopt;
    reading.tid = tid;
    reading.ids = {compile.id.autograd, compile.id.frame, compile.id.compile, compile.attempt};
    reading.phases = compile.phases;
    // A clock that was set meanwhile would make a compile older than the machine.
    const double age_ns = compile.seconds.value_or(0) * 1e9;
    if (compile.seconds && age_ns >= 0 && age_ns < static_cast<double>(reading.time_ns))
      reading.begun_ns = reading.time_ns - static_cast<std::uint64_t>(age_ns);
    if (!moment.user_code.lines.empty()) {
      reading.use = moment.user_code.use;
      reading.line = own_line(moment.user_code.lines, packages_);
    }
    if (moment.consistent) reading.at = graphs_.of(moment.stack).value_or(GraphPosition());
    return reading;
  }

  const std::vector<std::string>& packages_;
  TargetView view_;
  TorchReader torch_;
  GraphPositions graphs_;
};

}  // namespace

std::vector<ProgressReading> read_compile_progress(const PythonRuntime& runtime,
                                                   const std::vector<std::string>& packages,
                                                   std::chrono::milliseconds patience) {
  ProcessMemory process(runtime.pid);
  // However objects point at each other, reading them ends.
  BoundedMemory memory(process, kMaxReads, kMaxBytes);
  RemoteObjects objects(memory, runtime.layout);
  objects.set_str_type(runtime.str_type);
  return ProgressReader(process, objects, runtime, packages)
      .read(std::chrono::steady_clock::now() + patience);
}

void write_compile_progress(const std::vector<ProgressReading>& readings, ThreadIds& threads,
                            RecordingWriter& writer) {
  for (const ProgressReading& reading : readings) {
    Context context;
    context.torch.status = TorchStatus::kRead;
    context.torch.autograd_id = reading.ids.autograd_id;
    context.torch.frame_id = reading.ids.frame_id;
    context.torch.compile_id = reading.ids.compile_id;
    context.torch.attempt = reading.ids.attempt;
    for (const std::string& phase : reading.phases) {
      if (context.torch.phases.size() == recording::kMaxOpenPhases) break;
      context.torch.phases.push_back(writer.string(phase));
    }
    CompileProgress row;
    row.time_ns = reading.time_ns;
    row.begun_ns = reading.begun_ns;
    row.thread = threads.of(reading.tid, writer);
    row.context = writer.context(context);
    row.node = static_cast<std::uint32_t>(reading.at.node);
    row.nodes = static_cast<std::uint32_t>(reading.at.count);
    if (reading.use) {
      row.use = *reading.use;
      row.line = {writer.string(reading.line.file),
                  static_cast<std::uint32_t>(std::max(reading.line.line, 0)),
                  writer.string(reading.line.function)};
    }
    writer.compile_progress(row);
  }
}

}  // namespace dynprof
