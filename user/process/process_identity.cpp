#include "user/process/process_identity.h"

#include <algorithm>

#include "user/target/clock.h"
#include "user/target/process.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRankDigits = 7;

}  // namespace

ProcessIdentity::ProcessIdentity(pid_t pid, pid_t parent, bool keep_command_line)
    : pid_(pid),
      parent_(parent),
      keep_command_line_(keep_command_line),
      first_seen_ns_(monotonic_ns()),
      threads_(pid) {}

void ProcessIdentity::runs(std::string_view comm, std::string_view exe,
                           std::string_view command_line) {
  comm_ = comm;
  threads_.set_last_known_comm(comm);
  exe_ = exe;
  command_line_ = command_line;
  while (!command_line_.empty() && command_line_.back() == '\0') command_line_.pop_back();
  std::replace(command_line_.begin(), command_line_.end(), '\0', ' ');
}

// torchrun and others set it for each rank of a job. Nothing but a number is kept of the environment.
void ProcessIdentity::write_rank(RecordingWriter& writer) {
  const std::string rank = read_environment(pid_, "RANK");
  if (rank.empty() || rank.size() > kMaxRankDigits ||
      rank.find_first_not_of("0123456789") != std::string::npos)
    return;
  writer.fact({.pid = pid_,
               .time_ns = monotonic_ns(),
               .kind = writer.string("rank"),
               .name = writer.string(rank),
               .body = writer.blob("")});
}

void ProcessIdentity::describe(std::string_view python, std::string_view torch,
                               RecordingWriter& writer) {
  // A child that was never sampled needs no row.
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
  process.python = writer.string(python);
  process.torch = writer.string(torch);
  process.start_ns = parent_ ? first_seen_ns_ : 0;
  process.no_compile_at_start = no_compile_at_start_;
  writer.process(process);
  if (!torch.empty()) write_rank(writer);
  described_ = true;
}

}  // namespace dynprof
