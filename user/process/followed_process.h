// One process the recording follows, and what is known of it: its Python, its torch, the code objects
// and threads seen. Python and torch may appear later (a command just started, an exec, an import),
// so both are looked for again until found or given up.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "bpf/events.h"
#include "symbolizer/recording/writer.h"
#include "user/kernel/kernel_side.h"
#include "user/process/code_table.h"
#include "user/stacks/eval_ranges.h"
#include "user/stacks/native_frames.h"
#include "user/stacks/native_unwind.h"
#include "user/target/marker_rules.h"
#include "user/target/python_runtime.h"
#include "user/target/torch_layout.h"
#include "user/torch/line_watch.h"
#include "user/torch/torch_facts.h"
#include "user/torch/torch_probes.h"
#include "user/torch/torch_watch.h"

namespace dynprof {

// What an address of a native stack is.
struct NativeAddress {
  FrameId frame = 0;
  bool in_eval_loop = false;
};

class FollowedProcess {
 public:
  FollowedProcess(pid_t pid, pid_t parent, bool follow_forks);
  ~FollowedProcess();

  // Takes over what the parent's memory image had at the moment of fork.
  void inherit(const FollowedProcess& parent, KernelSide& kernel);
  // The old image is gone: exec.
  void forget_image(std::uint64_t now_ns);
  // What it runs since, for when it is gone before anybody looks.
  void runs(std::string_view comm, std::string_view exe, std::string_view command_line);
  void leave_out_command_line() { keep_command_line_ = false; }
  // Installed packages that are the user's own code.
  void take_as_user_code(std::vector<std::string> packages) {
    user_packages_ = std::move(packages);
  }

  // Looks for Python and torch, if it is time to, and tells the kernel side. An error only when
  // Python is there but cannot be used.
  Result<void> discover(std::uint64_t now_ns, KernelSide& kernel);
  // When discover() wants to be called next; 0: never again.
  std::uint64_t next_look_ns() const { return next_look_ns_; }

  // Reads the code objects of a sample that are new, while they still exist; then code() knows them.
  void learn(std::span<const CodeRequest> codes, RecordingWriter& writer, KernelSide& kernel);
  CodeId code(std::uint64_t address, std::uint32_t identity) const {
    return codes_.find(address, identity);
  }
  ThreadId thread(pid_t tid, RecordingWriter& writer);
  // Sources T and E: see torch_watch.h, torch_probes.h. A thread that compiles and is not known is
  // looked at.
  void attach_probes(KernelSide& kernel);
  // No probe will be set any more: they are, or this is no Python.
  bool probes_settled() const { return probes_.attached() || next_look_ns_ == 0; }
  void watch_torch(RecordingWriter& writer, KernelSide& kernel);
  void watch_thread(pid_t tid, RecordingWriter& writer, KernelSide& kernel);
  void on_phase(const dp_phase_event& event, RecordingWriter& writer, KernelSide& kernel);
  void on_inline(const dp_inline_event& event, RecordingWriter& writer, KernelSide& kernel);
  void on_probe(const dp_probe_event& event, RecordingWriter& writer, KernelSide& kernel);
  // A sample shows a compile: without probes nothing else does.
  void compile_seen(const KernelSide& kernel);
  // Writes where compiles were: see line_watch.h.
  void write_lines(RecordingWriter& writer);
  void end_watches(RecordingWriter& writer, KernelSide& kernel);
  // What is kept of the process as a whole: see torch_facts.h.
  void refresh_facts(std::uint64_t now_ns);
  void refresh_facts_at_attach();
  void refresh_facts_at_end();
  const TorchFacts& facts() const { return facts_; }
  // Sources of compiles that this torch does not have: see torch_lacks.h.
  std::vector<std::string> torch_lacks();
  // Why an exact source is not available; once each, "" otherwise.
  std::string take_problem();
  // The name of an open phase in a sample; 0: the str is gone.
  StringId phase_name(const dp_phase_name& name, RecordingWriter& writer);
  // Null: native stacks are not wanted. Tell the kernel side after a change.
  void set_native_space(NativeSpaceRef space);
  const NativeSpaceRef& native_space() const { return native_space_; }
  // Of a word of a native stack: an address, | DP_NATIVE_EXACT.
  NativeAddress native_address(std::uint64_t word, NativeFrames& native, std::uint64_t now_ns);
  bool knows_eval_loop();
  // Writes what is known of the process into the recording, when that changed.
  void describe(RecordingWriter& writer);
  // From here on the kernel side follows it; a child it followed by itself needs no word.
  Result<void> introduce(KernelSide& kernel) const;
  Result<void> tell_kernel(KernelSide& kernel) const;

  pid_t pid() const { return pid_; }
  AddressSpace& space() { return space_; }
  const std::optional<PythonRuntime>& python() const { return python_; }
  PythonFault fault() const { return fault_; }  // why there is no python()
  const std::string& torch() const { return torch_.version; }
  std::uint64_t unreadable_codes() const { return codes_.unreadable(); }
  std::uint64_t lost_edges() const { return watch_.lost_edges(); }
  std::uint64_t armed_late() const { return watch_.armed_late(); }
  std::size_t markers() const { return markers_.size(); }

 private:
  dp_process kernel_view() const;
  void look_for_tracing();
  void look_for_more(std::uint64_t now_ns, KernelSide& kernel);
  bool look_for_phases(const dp_phase_event& event, KernelSide& kernel);
  void compile_goes_on();
  void write_thread_names(std::map<pid_t, std::string>& names, RecordingWriter& writer);
  std::string node_name(const dp_probe_event& event, KernelSide& kernel);
  void look_for_torch(std::uint64_t now_ns, KernelSide& kernel);
  bool is_compiling() const;
  std::optional<WatchedProcess> watched(RecordingWriter& writer, KernelSide& kernel);
  void add_marker(const ResolvedMarker& marker, KernelSide& kernel);

  pid_t pid_;
  pid_t parent_;
  bool follow_forks_;
  AddressSpace space_;
  NativeSpaceRef native_space_;
  std::uint32_t native_version_ = 0;  // of the space when native_addresses_ were looked up
  std::unordered_map<std::uint64_t, NativeAddress> native_addresses_;
  std::optional<EvalRanges> eval_ranges_;
  bool told_stripped_ = false;
  std::optional<PythonRuntime> python_;
  struct Access;  // readers of the target's memory, made when Python is found
  std::unique_ptr<Access> access_;
  TorchTarget torch_;
  TorchWatch watch_;
  TorchProbes probes_;
  TorchFacts facts_;
  std::unique_ptr<LineWatch> lines_;           // from the first compile on
  std::map<pid_t, std::string> thread_names_;  // that are in the recording
  std::map<std::pair<std::uint64_t, std::uint64_t>, StringId> phase_names_;  // by object and hash
  PythonFault fault_ = PythonFault::kNone;
  bool described_ = false;
  bool keep_command_line_ = true;
  std::vector<std::string> user_packages_;
  std::string comm_, exe_, command_line_;  // as of its last exec, "" if none was seen
  bool no_compile_at_start_ = false;
  std::uint64_t first_seen_ns_;
  std::uint64_t next_look_ns_ = 1;
  bool waits_for_descriptors_ = false;  // it could not be looked at: no file could be opened
  bool told_descriptors_ = false;
  unsigned looks_ = 0;
  std::uint64_t next_tracing_look_ns_ = 0, tracing_backoff_ns_ = 0;
  CodeTable codes_;
  std::unordered_map<std::uint64_t, dp_marker_code> markers_;  // by code address
  std::unordered_map<pid_t, ThreadId> threads_;
};

}  // namespace dynprof
