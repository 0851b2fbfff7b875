// Torch's compiles in one process as they happen: receives the events of its phases, inlined calls and runs,
// and keeps the probes, watchpoints and readers of its memory that belong to them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bpf/events.h"
#include "symbolizer/recording/writer.h"
#include "user/kernel/kernel_side.h"
#include "user/process/kernel_entry.h"
#include "user/process/process_identity.h"
#include "user/process/process_python.h"
#include "user/process/torch_finder.h"
#include "user/torch/annotation_probes.h"
#include "user/torch/line_watch.h"
#include "user/torch/run_counts.h"
#include "user/torch/torch_facts.h"
#include "user/torch/torch_probes.h"
#include "user/torch/torch_watch.h"
#include "user/torch/triton_watch.h"

namespace dynprof {

// The parts of the followed process that a tracer uses.
struct TracedProcess {
  ProcessIdentity& identity;
  ProcessPython& python;
  TorchFinder& torch;
  const KernelEntry& entry;
  KernelSide& kernel;
  const std::vector<std::string>& user_packages;  // installed packages that are the user's own code
  bool record_functions = false;                  // see AnnotationProbes
  bool all_user_lines = false;                    // see LineWatch
};

// What a sample shows its thread in.
enum class Sighting : std::uint8_t {
  kCompile,  // without probes nothing else shows it
  kTriton,   // it compiles or tunes a kernel with Triton outside of torch's compiles
};

class TorchTracer {
 public:
  explicit TorchTracer(const TracedProcess& process) : process_(process), runs_(process.kernel) {}
  // The process runs another program.
  void forget();

  // Sources T and E: see torch_watch.h, torch_probes.h.
  void attach_probes();
  bool probes_attached() const { return probes_.attached(); }
  // Sets the probes that are still missing, and looks at all threads, or at one that compiles and is not known.
  void watch_threads(RecordingWriter& writer);
  void watch_thread(pid_t tid, RecordingWriter& writer);

  void on(const dp_phase_event& event, RecordingWriter& writer);
  void on(const dp_inline_event& event, RecordingWriter& writer);
  void on(const dp_probe_event& event, RecordingWriter& writer);
  void on(const dp_annotation_event& event, RecordingWriter& writer);
  void seen(Sighting what, pid_t tid, std::uint64_t now_ns);

  // The recording begins; some times a second; it ends. tick() returns when it is to be called at the latest,
  // UINT64_MAX: whenever.
  void begin(RecordingWriter& writer);
  std::uint64_t tick(std::uint64_t now_ns, RecordingWriter& writer);
  // The recording ends; image_ended() follows. What is left is read of the process's memory, by a thread that image_ended()
  // waits for where `in_thread`; true: there is one.
  bool finish(RecordingWriter& writer, bool in_thread);
  // The process has ended, or runs another program now, or finish() was called: writes what was read of its memory.
  void image_ended(RecordingWriter& writer);
  // Writes its runs of compiled code, which were counted until then. Of every process that has ended or runs another
  // program: also of those whose image_ended() is not called, since finish() comes at the end of the recording.
  void runs_ended(std::uint64_t time_ns, RecordingWriter& writer);

  // Sources of compiles that this torch does not have: see torch_lacks.h.
  std::vector<std::string> lacks() const;
  // Why an exact source is not available; once each, "" otherwise.
  std::string take_problem();
  const TorchWatch& watch() const { return watch_; }

 private:
  // False for torch's compile workers: only their samples are of interest, and there can be many of them.
  bool has_torch() const {
    return process_.python && process_.torch.imported() && !is_compile_worker();
  }
  bool is_compile_worker() const;
  std::optional<WatchedProcess> watched(RecordingWriter& writer) const;
  void look_for_more();
  bool look_for_phases(const dp_phase_event& event);
  void compile_goes_on();
  std::string node_name(const dp_probe_event& event);
  RunCounts::Describe describe_runs(RecordingWriter& writer);
  void write_lines(RecordingWriter& writer);
  void write_triton(RecordingWriter& writer);
  bool may_compile() const;
  void write_progress(std::chrono::milliseconds patience, RecordingWriter& writer);
  void write_thread_names(std::map<pid_t, std::string>& names, RecordingWriter& writer);

  TracedProcess process_;
  TorchWatch watch_;
  TorchProbes probes_;
  RunCounts runs_;
  TorchFacts facts_;
  std::unique_ptr<LineWatch> lines_;     // from the first compile on
  std::unique_ptr<TritonWatch> triton_;  // from the first such kernel on
  TritonCompilations compilations_;
  std::map<pid_t, std::string> thread_names_;  // that are in the recording
  AnnotationProbes annotations_;
  bool finished_ = false;  // finish() was called
  mutable std::optional<bool> compile_worker_;
};

}  // namespace dynprof
