#include "user/top/reader.h"

#include <utility>

#include "user/preflight/check_target.h"
#include "user/target/bounded_memory.h"
#include "user/target/clock.h"
#include "user/target/process.h"
#include "user/top/open_compiles.h"

namespace dynprof {
namespace {

// Modules, types and the places of torch's thread-locals are looked up once for so long. Before torch is
// complete they may come at any moment, but looking for them costs some milliseconds.
constexpr double kViewSeconds = 30, kIncompleteViewSeconds = 3;
constexpr double kPythonSeconds = 10;
constexpr std::size_t kMaxReads = 1'000'000;
constexpr std::size_t kMaxBytes = std::size_t{1} << 30;

double seconds_of(clockid_t clock) { return static_cast<double>(clock_ns(clock)) * 1e-9; }

class CountedMemory final : public RemoteMemory {
 public:
  CountedMemory(RemoteMemory& memory, std::uint64_t& reads) : memory_(memory), reads_(reads) {}
  void read_many(std::span<RemoteRange> ranges) override {
    ++reads_;
    memory_.read_many(ranges);
  }

 private:
  RemoteMemory& memory_;
  std::uint64_t& reads_;
};

}  // namespace

struct TopReader::View {
  View(const PythonRuntime& runtime, std::uint64_t& reads, double now_s)
      : process(runtime.pid),
        counted(process, reads),
        memory(counted, kMaxReads, kMaxBytes),
        objects(memory, runtime.layout),
        view((objects.set_str_type(runtime.str_type), counted), objects, runtime),
        compiles(view),
        made_s(now_s) {}
  bool usable(double now_s) const {
    const double age_s = now_s - made_s;
    return !memory.exhausted() && age_s < kViewSeconds &&
           (compiles.torch().complete() || age_s < kIncompleteViewSeconds);
  }

  ProcessMemory process;
  CountedMemory counted;
  BoundedMemory memory;  // however objects point at each other, reading them ends
  RemoteObjects objects;
  TargetView view;
  OpenCompiles compiles;
  double made_s;
};

TopReader::TopReader(PythonRuntime runtime)
    : runtime_(std::move(runtime)),
      processes_(runtime_.pid),
      command_(read_command_line(runtime_.pid)),
      first_cpu_s_(seconds_of(CLOCK_PROCESS_CPUTIME_ID)) {}

TopReader::~TopReader() = default;

Result<std::unique_ptr<TopReader>> TopReader::open(pid_t pid) {
  TRY(check_target(pid));
  ASSIGN_OR_RETURN(PythonRuntime runtime, discover_python(pid));
  return std::unique_ptr<TopReader>(new TopReader(std::move(runtime)));
}

// The process may have become another program by exec.
void TopReader::find_python_again(double now_s) {
  details_.problems.emplace_back("it no longer has Python threads");
  if (now_s - looked_for_python_s_ < kPythonSeconds) return;
  looked_for_python_s_ = now_s;
  auto found = discover_python(runtime_.pid);
  if (!found) return;
  view_.reset();
  runtime_ = *std::move(found);
  finished_ = {};
  command_ = read_command_line(runtime_.pid);
}

void TopReader::read_compiles(View& view, bool anew) {
  const TorchTarget* torch = view.compiles.torch().torch();
  details_.target.torch = torch ? std::optional(torch->version) : std::nullopt;
  finished_.read(view.view);
  details_.finished = finished_.rows();
  details_.finished_dropped = finished_.dropped();
  // Without torch threads are only looked at to see whether it still is a Python.
  if (!torch && !anew) return;
  const auto states = thread_states(view.objects, runtime_);
  details_.open = view.compiles.read(states, finished_);
  if (view.memory.exhausted())
    details_.problems.emplace_back("the read limit was reached: parts are missing");
  if (states.empty()) find_python_again(seconds_of(CLOCK_MONOTONIC));
}

void TopReader::read_details(double now_s) {
  details_.problems.clear();
  const bool anew = !view_ || !view_->usable(now_s);
  if (anew) {
    view_ = std::make_unique<View>(runtime_, reads_, now_s);
    finished_.forget_addresses();
  }
  read_compiles(*view_, anew);
  details_.processes = processes_.read_children(details_.processes_left_out);
  details_.details_time_s = now_s;
}

std::optional<TopReading> TopReader::read() {
  TopTarget target;
  if (!processes_.read_target(target)) return std::nullopt;
  const double now_s = seconds_of(CLOCK_MONOTONIC);
  const double cpu_s = seconds_of(CLOCK_THREAD_CPUTIME_ID);
  if (budget_.may_read(now_s)) {
    read_details(now_s);
    budget_.spend(seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu_s);
  }
  TopReading reading = details_;
  target.command = command_;
  target.python = runtime_.version;
  target.torch = details_.target.torch;
  reading.target = std::move(target);
  reading.time_s = now_s;
  reading.epoch_us = static_cast<std::int64_t>(seconds_of(CLOCK_REALTIME) * 1e6);
  reading.own = {seconds_of(CLOCK_PROCESS_CPUTIME_ID) - first_cpu_s_, reads_};
  return reading;
}

}  // namespace dynprof
