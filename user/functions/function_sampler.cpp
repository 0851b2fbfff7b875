#include "user/functions/function_sampler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>

#include "user/functions/function_writer.h"
#include "user/preflight/capabilities.h"
#include "user/process/process_table.h"
#include "user/session/poll_pace.h"
#include "user/session/sources.h"
#include "user/target/clock.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kTickNs = 20'000'000;
constexpr std::uint64_t kShowEveryNs = 500'000'000;
constexpr auto kEndPatience = std::chrono::seconds(2);

SessionOptions sampling_options(pid_t pid) {
  SessionOptions options;
  options.targets = {pid};
  options.children = false;
  options.passive = true;
  options.watchpoints = false;
  options.native = false;
  options.command_lines = false;
  return options;
}

}  // namespace

struct FunctionSampler::Shared {
  pid_t pid = 0;
  std::vector<std::string> user_packages;
  std::vector<std::string> missing_rights;
  std::mutex mutex;
  std::condition_variable changed;
  bool begin = false, quit = false, ended = false;
  TopFunctions shown;

  void add_problem(const std::string& sentence) {
    const std::scoped_lock lock(mutex);
    shown.problems.push_back(sentence);
  }
  bool quits() {
    const std::scoped_lock lock(mutex);
    return quit;
  }
};

namespace {

// The target's samples and waits, from the first to the last.
class Sampling {
 public:
  Sampling(Sources sources, const SessionOptions& options,
           const std::vector<std::string>& user_packages, Notes& notes)
      : options_(options),
        notes_(notes),
        writer_(times_, user_packages),
        native_(writer_),
        sources_(std::move(sources)),
        processes_({.children = false, .command_lines = false}, *sources_.kernel),
        encoder_(writer_, native_),
        target_(processes_.follow_at_begin(options.targets[0], 0)) {}

  Result<void> begin() {
    TRY(target_.discover(monotonic_ns()));
    TRY(target_.entry().introduce());
    TRY(sources_.kernel->attach_process_events());
    sources_.attach_off_cpu(processes_, notes_);
    TRY(sources_.begin_sampling());
    since_ns_ = monotonic_ns();
    return {};
  }

  // Reads what waits, for some milliseconds at most.
  void turn() {
    if (all_read_) wait_for_events(sources_.kernel->ring_fd(), pace_.wait_ns(monotonic_ns()));
    const std::uint64_t now_ns = monotonic_ns();
    all_read_ = sources_.kernel->consume([this](std::span<const std::byte> bytes) { take(bytes); },
                                         DrainBudget{});
    if (sources_.off_cpu && now_ns >= next_tick_ns_) {
      sources_.off_cpu->tick();
      next_tick_ns_ = now_ns + kTickNs;
    }
    notes_.add(sources_.sampling.follow(now_ns));
    if (target_.next_look_ns() != 0 && now_ns >= target_.next_look_ns())
      (void)target_.discover(now_ns);
    writer_.bound_memory();
  }

  TopFunctions show() {
    TopFunctions shown;
    const std::uint64_t now_ns = monotonic_ns();
    if (sources_.off_cpu) sources_.off_cpu->write_open(target_, writer_);
    shown.asked = shown.begun = true;
    shown.sampled_s = static_cast<double>(now_ns - since_ns_) * 1e-9;
    shown.frequency_hz = options_.frequency_hz;
    shown.samples = samples_;
    const Counters counters = sources_.kernel->counters();
    shown.lost = counters[DP_COUNT_RING_FULL] + counters[DP_COUNT_NO_SCRATCH];
    shown.rows = times_.rows(now_ns, writer_.take_open());
    return shown;
  }

 private:
  void take(std::span<const std::byte> bytes) {
    const auto event = decode_event(bytes);
    if (!event) return;
    const auto header = event_header(bytes);
    if (!header || static_cast<pid_t>(header->pid) != target_.pid()) return;
    writer_.bound_memory();
    std::visit([this](const auto& one) { on(one, target_); }, *event);
  }

  // Of other kinds there are none, or they say nothing of functions.
  template <class Other>
  void on(const Other&, FollowedProcess&) {}
  void on(const SampleView& view, FollowedProcess& process) {
    pace_.sampled(view.sample);
    if (view.frames.empty()) return;
    ++samples_;
    const std::uint64_t end_ns = view.sample.header.time_ns;
    const std::uint64_t period_ns = 1'000'000'000 / options_.frequency_hz;
    times_.add({.use = FunctionTimes::Use::kCpu,
                .begin_ns = end_ns,
                .end_ns = end_ns,
                .length_ns = period_ns,
                .stack = writer_.functions(encoder_.place(view, process).stack)});
  }
  void on(const WaitStackView& view, FollowedProcess& process) {
    pace_.waited(view.stack.sample);
    if (sources_.off_cpu) sources_.off_cpu->on_stack(view.stack, process, encoder_);
  }
  void on(const dp_wait_event& event, FollowedProcess& process) {
    if (sources_.off_cpu) sources_.off_cpu->on_wait(event, &process, writer_);
  }
  void on(const ProcessEventView& view, FollowedProcess& process) {
    if (view.event.header.kind != DP_EVENT_EXEC) return;
    process.forget_image(view.event.header.time_ns);
    (void)process.entry().update();
  }

  const SessionOptions& options_;
  Notes& notes_;
  FunctionTimes times_;
  FunctionWriter writer_;
  NativeFrames native_;
  Sources sources_;
  ProcessTable processes_;
  SampleEncoder encoder_;
  FollowedProcess& target_;
  PollPace pace_{sources_.events.period_ns};
  std::uint64_t since_ns_ = 0, next_tick_ns_ = 0, samples_ = 0;
  bool all_read_ = true;
};

template <class Shared>
Result<void> sample(Shared& shared) {
  if (!shared.missing_rights.empty())
    return error(fmt::format("missing {}", fmt::join(shared.missing_rights, ", ")));
  Notes notes([&](const std::string& sentence) { shared.add_problem(sentence); });
  const SessionOptions options = sampling_options(shared.pid);
  ASSIGN_OR_RETURN(Sources sources, Sources::load(options, notes));
  Sampling sampling(std::move(sources), options, shared.user_packages, notes);
  TRY(sampling.begin());
  drop_capabilities(false);
  std::uint64_t next_show_ns = 0;
  while (!shared.quits()) {
    sampling.turn();
    const std::uint64_t now_ns = monotonic_ns();
    if (now_ns < next_show_ns) continue;
    TopFunctions shown = sampling.show();
    next_show_ns = now_ns + kShowEveryNs;
    const std::scoped_lock lock(shared.mutex);
    shown.problems = std::move(shared.shown.problems);
    shared.shown = std::move(shown);
  }
  return {};
}

template <class Shared>
void run(const std::shared_ptr<Shared>& shared) {
  {
    std::unique_lock lock(shared->mutex);
    shared->changed.wait(lock, [&] { return shared->begin || shared->quit; });
  }
  if (!shared->quits()) {
    if (auto sampled = sample(*shared); !sampled)
      shared->add_problem(fmt::format("functions are not sampled: {}", sampled.error().what));
  }
  const std::scoped_lock lock(shared->mutex);
  shared->ended = true;
  shared->changed.notify_all();
}

}  // namespace

FunctionSampler::FunctionSampler(pid_t pid, std::vector<std::string> user_packages)
    : shared_(std::make_shared<Shared>()) {
  shared_->pid = pid;
  shared_->user_packages = std::move(user_packages);
  shared_->missing_rights = missing_capabilities(own_capabilities());
  // Signals are for the main thread, which waits for them; a crash is of the thread that crashes.
  sigset_t held, before;
  sigfillset(&held);
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&held, number);
  pthread_sigmask(SIG_SETMASK, &held, &before);
  std::thread([shared = shared_] { run(shared); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

FunctionSampler::~FunctionSampler() {
  std::unique_lock lock(shared_->mutex);
  shared_->quit = true;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, kEndPatience, [&] { return shared_->ended; });
}

void FunctionSampler::begin() {
  const std::scoped_lock lock(shared_->mutex);
  if (std::exchange(shared_->begin, true)) return;
  shared_->shown.asked = true;
  shared_->changed.notify_all();
}

TopFunctions FunctionSampler::read() const {
  const std::scoped_lock lock(shared_->mutex);
  return shared_->shown;
}

}  // namespace dynprof
