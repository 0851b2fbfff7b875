#include "user/process/followed_process.h"

#include <fmt/format.h>

#include <algorithm>

#include "symbolizer/base/text.h"
#include "user/kernel/clock.h"
#include "user/process/target_access.h"
#include "user/target/marker_rules.h"
#include "user/target/process.h"

namespace dynprof {
namespace {

// A process that is no Python now may be one soon: a shell that will exec it, an interpreter that is
// starting. Looked at often at first, then rarely, then left.
constexpr std::uint64_t kFirstLookNs = 5'000'000;
constexpr std::uint64_t kForkLookNs = 20'000'000;
constexpr std::uint64_t kSlowestLookNs = 1'000'000'000;
constexpr unsigned kPythonLooks = 16;
constexpr std::uint64_t kNoDescriptorsLookNs = 1'000'000'000;

std::uint64_t backoff(unsigned looks) {
  return std::min(kFirstLookNs << std::min(looks, 10U), kSlowestLookNs);
}

}  // namespace

FollowedProcess::FollowedProcess(pid_t pid, pid_t parent, bool follow_forks)
    : pid_(pid),
      parent_(parent),
      follow_forks_(follow_forks),
      space_(pid),
      first_seen_ns_(monotonic_ns()) {
  // Most children exec, or end, before a look is worth its time.
  if (parent != 0) next_look_ns_ = first_seen_ns_ + kForkLookNs;
}

FollowedProcess::~FollowedProcess() = default;

void FollowedProcess::inherit(const FollowedProcess& parent, KernelSide& kernel) {
  python_ = parent.python_;
  set_native_space(parent.native_space_);
  eval_ranges_ = parent.eval_ranges_;
  if (!python_) return;
  python_->pid = pid_;
  access_ = std::make_unique<Access>(pid_, *python_);
  torch_ = parent.torch_;
  codes_ = parent.codes_;
  for (const auto& [code, marker] : parent.markers_) add_marker({code, marker, nullptr}, kernel);
  next_look_ns_ = torch_.complete ? 0 : 1;
  // The kernel side made its own copy at the fork; by now the child may be another program.
}

void FollowedProcess::forget_image(std::uint64_t now_ns) {
  python_.reset();
  access_.reset();
  torch_ = {};
  codes_.clear();
  markers_.clear();
  watch_ = {};
  probes_ = {};
  facts_ = {};
  lines_.reset();
  phase_names_.clear();
  space_.forget();
  set_native_space(nullptr);
  native_addresses_.clear();
  eval_ranges_.reset();
  described_ = false;
  no_compile_at_start_ = true;  // we are here from its first instruction
  looks_ = 0;
  next_look_ns_ = now_ns + kFirstLookNs;
}

Result<void> FollowedProcess::discover(std::uint64_t now_ns, KernelSide& kernel) {
  if (!python_) {
    PythonDiscovery details;
    auto found = discover_python(pid_, &details);
    if (!found) {
      looks_++;
      bool again = details.fault == PythonFault::kNotPython ||
                   details.fault == PythonFault::kStarting ||
                   details.fault == PythonFault::kNoThreadState;
      next_look_ns_ = again && looks_ < kPythonLooks ? now_ns + backoff(looks_) : 0;
      if (details.no_descriptors) {
        // Others will be closed; until then nothing said of this process holds.
        next_look_ns_ = now_ns + kNoDescriptorsLookNs;
        waits_for_descriptors_ = true;
        return std::move(found).error();
      }
      fault_ = details.fault;
      if (fault_ == PythonFault::kStarting) no_compile_at_start_ = true;
      return std::move(found).error();
    }
    fault_ = PythonFault::kNone;
    python_ = std::move(*found);
    access_ = std::make_unique<Access>(pid_, *python_);
    described_ = false;
    // Before its first sample: by then it may have ended.
    if (native_space_) knows_eval_loop();
  }
  look_for_torch(now_ns, kernel);
  looks_++;
  return tell_kernel(kernel);
}

void FollowedProcess::add_marker(const ResolvedMarker& marker, KernelSide& kernel) {
  auto [at, added] = markers_.insert_or_assign(marker.code, marker.marker);
  kernel.add_code(static_cast<std::uint32_t>(pid_), at->first, at->second);
}

dp_process FollowedProcess::kernel_view() const {
  dp_process process = {};
  std::uint32_t flags = follow_forks_ ? DP_PROCESS_FOLLOW_FORKS : 0;
  if (python_) {
    process = python_->fill_bpf(flags | DP_PROCESS_PYTHON);
    if (torch_.layout.compile_id_type) {
      process.torch = torch_.layout;
      process.flags |= DP_PROCESS_TORCH;
    }
  } else {
    process.flags = flags;
  }
  if (native_space_) {
    process.native_space = native_space_->slot;
    process.native_owner = native_space_->owner;
  }
  return process;
}

Result<void> FollowedProcess::introduce(KernelSide& kernel) const {
  return kernel.set_process(static_cast<std::uint32_t>(pid_), kernel_view());
}

Result<void> FollowedProcess::tell_kernel(KernelSide& kernel) const {
  return kernel.update_process(static_cast<std::uint32_t>(pid_), kernel_view());
}

void FollowedProcess::runs(std::string_view comm, std::string_view exe,
                           std::string_view command_line) {
  comm_ = comm;
  exe_ = exe;
  command_line_ = command_line;
  while (!command_line_.empty() && command_line_.back() == '\0') command_line_.pop_back();
  std::replace(command_line_.begin(), command_line_.end(), '\0', ' ');
}

void FollowedProcess::learn(std::span<const CodeRequest> codes, RecordingWriter& writer,
                            KernelSide& kernel) {
  if (!access_) return;
  codes_.learn(codes, access_->reader, writer, python_->layout.python,
               [&](const RemoteCode& remote) {
                 if (auto marker = match_marker(access_->reader, remote, python_->layout.python)) {
                   add_marker(*marker, kernel);
                   // The first sight of a marker says that torch is there by now.
                   if (!torch_.complete) next_look_ns_ = 1;
                   return;
                 }
                 dp_marker_code plain = {};
                 plain.identity = remote.identity;
                 kernel.add_code(static_cast<std::uint32_t>(pid_), remote.address, plain);
               });
}

std::string FollowedProcess::take_problem() {
  if (eval_ranges_ && eval_ranges_->empty() && !told_stripped_) {
    told_stripped_ = true;
    return fmt::format(
        "{} has no symbol for the interpreter's loop: native frames are shown beside Python "
        "frames, "
        "not among them",
        escape_terminal(python_ ? python_->image_path : "the interpreter"));
  }
  if (waits_for_descriptors_ && !python_ && !told_descriptors_) {
    told_descriptors_ = true;
    return fmt::format(
        "process {} is examined again every second: too many files are open (raise ulimit -Hn)",
        pid_);
  }
  std::string problem = probes_.take_problem();
  return problem.empty() ? watch_.take_problem() : problem;
}

void FollowedProcess::set_native_space(NativeSpaceRef space) {
  native_space_ = std::move(space);
  space_.set_kept(native_space_);
}

bool FollowedProcess::knows_eval_loop() {
  if (!python_) return false;
  if (!eval_ranges_) {
    auto found = EvalRanges::find(pid_, python_->image_path);
    if (!found) told_stripped_ = true;  // it has ended: not that
    eval_ranges_ = std::move(found).value_or(EvalRanges());
    // Addresses met before this was known to be Python were taken for other code.
    native_addresses_.clear();
  }
  return !eval_ranges_->empty();
}

NativeAddress FollowedProcess::native_address(std::uint64_t word, NativeFrames& native,
                                              std::uint64_t now_ns) {
  constexpr std::size_t kMaxAddresses = 1 << 20;
  const std::uint32_t version =
      native_space_ ? native_space_->version.load(std::memory_order_acquire) : 0;
  if (version != native_version_ || native_addresses_.size() >= kMaxAddresses) {
    // Another file may lie there now.
    native_addresses_.clear();
    space_.forget();
    native_version_ = version;
  }
  const bool knows_loop = knows_eval_loop();
  auto [at, added] = native_addresses_.try_emplace(word);
  if (added) {
    // A return address may lie behind the function that made the call.
    const std::uint64_t address = (word & DP_NATIVE_EXACT) ? word & ~DP_NATIVE_EXACT : word - 1;
    at->second.frame = native.user_frame(pid_, space_, address, now_ns);
    at->second.in_eval_loop = knows_loop && eval_ranges_->contains(address);
  }
  return at->second;
}

ThreadId FollowedProcess::thread(pid_t tid, RecordingWriter& writer) {
  auto [at, added] = threads_.try_emplace(tid, 0);
  if (added) {
    Thread thread;
    thread.pid = pid_;
    thread.tid = tid;
    const std::string comm = read_comm(pid_, tid);
    thread.comm = writer.string(comm.empty() && tid == pid_ ? comm_ : comm);  // it may have ended
    at->second = writer.thread(thread);
    if (threads_.size() == 1) described_ = false;
  }
  return at->second;
}

void FollowedProcess::describe(RecordingWriter& writer) {
  // A child that was never sampled needs no entry.
  if (described_ || threads_.empty()) return;
  Process process;
  process.pid = pid_;
  process.parent_pid = parent_;
  auto or_known = [&writer](const std::string& read, const std::string& known) {
    return writer.string(read.empty() ? known : read);
  };
  process.comm = or_known(read_comm(pid_, pid_), comm_);
  process.exe = or_known(read_exe(pid_), exe_);
  if (keep_command_line_) process.command_line = or_known(read_command_line(pid_), command_line_);
  if (python_) process.python = writer.string(python_->version);
  process.torch = writer.string(torch_.version);
  process.start_ns = parent_ ? first_seen_ns_ : 0;
  process.no_compile_at_start = no_compile_at_start_;
  writer.process(process);
  described_ = true;
}

}  // namespace dynprof
