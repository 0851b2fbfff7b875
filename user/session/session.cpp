#include "user/session/session.h"

#include <optional>
#include <string>
#include <utility>

#include "user/kernel/counter_names.h"
#include "user/preflight/capabilities.h"
#include "user/preflight/check_target.h"
#include "user/session/machine_cpu.h"
#include "user/session/notes.h"
#include "user/session/process_follower.h"
#include "user/session/reader_priority.h"
#include "user/session/recording_loop.h"
#include "user/session/session_meta.h"
#include "user/session/sources.h"
#include "user/session/targets.h"
#include "user/target/clock.h"
#include "user/target/read_losses.h"

namespace dynprof {
namespace {

class LiveSession final : public Session {
 public:
  LiveSession(const SessionOptions& options, SessionHooks hooks)
      : options_(options), hooks_(std::move(hooks)), notes_(hooks_.note) {}

  Result<void> prepare() {
    for (const pid_t pid : options_.targets) {
      TRY(check_target(pid));
      targets_.add(pid);
    }
    ASSIGN_OR_RETURN(sources_, Sources::load(options_, notes_));
    if (!options_.launched)
      TRY(sources_.gpu->load_libraries(options_.children, hooks_.stop_requested));
    follower_.emplace(options_, sources_, targets_, notes_, hooks_.stop_requested);
    return follower_->examine();
  }

  Meta meta() const override {
    return describe_session(
        options_, sources_.events, follower_->start_ns(),
        options_.targets.empty() ? nullptr : follower_->processes().find(options_.targets[0]));
  }

  Result<void> attach() override {
    machine_.begin();
    TRY(follower_->begin());
    follower_->drop_rights(options_.watchpoints && !options_.passive && perf_events_need_admin());
    sampling_since_ns_ = monotonic_ns();
    return {};
  }

  Result<SessionStatus> run(RecordingWriter& writer) override {
    ReaderPriority priority;
    RecordingLoop loop({options_, hooks_, sources_, *follower_, targets_, notes_, writer, priority},
                       sampling_since_ns_);
    trailer_.reason = loop.run();
    priority.raise();  // what was seen last may be freed soon
    sources_.detach();
    drop_capabilities(false);  // no more probes: what follows reads memory and files
    const std::string machine =
        machine_.end([this](pid_t pid) { return follower_->processes().find(pid) != nullptr; });
    loop.read_rest();
    trailer_.end_ns = monotonic_ns();
    if (!machine.empty())
      writer.fact({.kind = writer.string("machine"), .body = writer.blob(machine)});
    loop.begin_end();
    priority.lower();
    give_way();  // what follows needs nothing of the target's memory, but for the threads that read it
    loop.write_names();
    loop.write_end();
    for (std::string loss; !(loss = ReadLosses::of_program().take_note()).empty();)
      notes_.add(loss);
    trailer_.counters = named_counters(loop.counters());
    trailer_.counters.merge(ReadLosses::of_program().named());
    Result<void> finished = writer.finish(trailer_);
    if (!loop.written()) return loop.written().error();
    if (!finished) return std::move(finished).error();
    return loop.status(trailer_.end_ns);
  }

  const Trailer& trailer() const override { return trailer_; }

 private:
  SessionOptions options_;
  SessionHooks hooks_;
  Notes notes_;
  Targets targets_;
  Sources sources_;
  std::optional<ProcessFollower> follower_;
  MachineCpu machine_;
  std::uint64_t sampling_since_ns_ = 0;
  Trailer trailer_;
};

}  // namespace

Result<std::unique_ptr<Session>> Session::prepare(const SessionOptions& options,
                                                  SessionHooks hooks) {
  auto session = std::make_unique<LiveSession>(options, std::move(hooks));
  TRY(session->prepare());
  return std::unique_ptr<Session>(std::move(session));
}

}  // namespace dynprof
