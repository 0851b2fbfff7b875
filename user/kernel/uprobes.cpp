#include "user/kernel/uprobes.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <string_view>
#include <utility>

#include "user/kernel/bpf_object.h"
#include "user/kernel/closing_process.h"

namespace dynprof {
namespace {

// Of Linux 6.6; not in the headers of older systems.
constexpr auto kUprobeMulti = static_cast<bpf_attach_type>(48);
// union bpf_attr of BPF_LINK_CREATE, link_create.uprobe_multi.
struct LinkCreate {
  std::uint32_t program, target = 0, attach_type = kUprobeMulti, flags = 0;
  std::uint64_t path, offsets, semaphores, cookies;
  std::uint32_t count = 1, kind = 0, pid, unused = 0;
};

template <class T>
std::uint64_t address_of(const T* value) {
  return reinterpret_cast<std::uint64_t>(value);
}

// Nothing: see errno.
UniqueFd create_link(int program, const UprobePlace& place) {
  const LinkCreate create = {.program = static_cast<std::uint32_t>(program),
                             .path = address_of(place.path.c_str()),
                             .offsets = address_of(&place.offset),
                             .semaphores = place.semaphore ? address_of(&place.semaphore) : 0,
                             .cookies = address_of(&place.cookie),
                             .pid = static_cast<std::uint32_t>(place.pid)};
  return UniqueFd(static_cast<int>(::syscall(SYS_bpf, BPF_LINK_CREATE, &create, sizeof create)));
}

// Another descriptor of what is attached: it stays attached when the link is destroyed.
UniqueFd keep_attached(const bpf_link* link) {
  return UniqueFd(fcntl(bpf_link__fd(link), F_DUPFD_CLOEXEC, 0));
}

}  // namespace

void EventLinkDeleter::operator()(bpf_link* link) const { bpf_link__destroy(link); }

Uprobe::Uprobe(std::unique_ptr<bpf_link, EventLinkDeleter> event, UniqueFd link,
               ClosingProcess* closing)
    : event_(std::move(event)), link_(std::move(link)), closing_(closing) {}

Uprobe& Uprobe::operator=(Uprobe&& other) noexcept {
  reset();
  event_ = std::move(other.event_);
  link_ = std::move(other.link_);
  closing_ = other.closing_;
  return *this;
}

UniqueFd Uprobe::release() {
  if (event_) link_ = keep_attached(event_.get());
  event_.reset();
  return std::move(link_);
}

void Uprobe::reset() {
  if (!event_ && !link_) return;
  std::vector<UniqueFd> last;
  last.push_back(release());
  if (last[0]) closing_->close(std::move(last));
}

void close_together(std::vector<Uprobe> probes) {
  std::map<ClosingProcess*, std::vector<UniqueFd>> last;
  for (Uprobe& probe : probes)
    if (UniqueFd kept = probe.release()) last[probe.closing_].push_back(std::move(kept));
  for (auto& [closing, descriptors] : last) closing->close(std::move(descriptors));
}

// The root folder is no file with code. A kernel with links finds that (EBADF); one that limits them to a process checks the
// number of the process before (EINVAL), the first ones with links limited them to a thread.
bool has_uprobe_links() {
  constexpr bpf_insn kReturnZero[] = {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0},
                                      {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  LIBBPF_OPTS(bpf_prog_load_opts, options, .expected_attach_type = kUprobeMulti);
  const UniqueFd program(bpf_prog_load(BPF_PROG_TYPE_KPROBE, nullptr, "GPL", kReturnZero,
                                       std::size(kReturnZero), &options));
  if (!program) return false;
  const auto refused_with = [&](pid_t pid) {
    return create_link(program.get(), {.pid = pid, .path = "/"}) ? 0 : errno;
  };
  return refused_with(0) == EBADF && refused_with(-1) == EINVAL;
}

Uprobes::Uprobes(std::unique_ptr<ClosingProcess> closing, bool links)
    : closing_(std::move(closing)), links_(links) {}

Uprobes::~Uprobes() = default;

Result<std::unique_ptr<Uprobes>> Uprobes::start() {
  ASSIGN_OR_RETURN(auto closing, ClosingProcess::start());
  return std::unique_ptr<Uprobes>(new Uprobes(std::move(closing), has_uprobe_links()));
}

void Uprobes::prepare(bpf_object* object) const {
  if (!links_) return;
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, object) {
    if (std::string_view(bpf_program__section_name(program)) == "uprobe")
      bpf_program__set_expected_attach_type(program, kUprobeMulti);
  }
}

Result<Uprobe> Uprobes::attach(const bpf_program* program, const UprobePlace& place,
                               const std::string& failure) const {
  start_of_bpf_call();
  if (links_) {
    UniqueFd link = create_link(bpf_program__fd(program), place);
    if (!link) return bpf_error(failure, errno);
    return Uprobe(nullptr, std::move(link), closing_.get());
  }
  LIBBPF_OPTS(bpf_uprobe_opts, options, .ref_ctr_offset = place.semaphore,
              .bpf_cookie = place.cookie, .retprobe = false);
  std::unique_ptr<bpf_link, EventLinkDeleter> event(bpf_program__attach_uprobe_opts(
      program, place.pid, place.path.c_str(), place.offset, &options));
  if (!event) return bpf_error(failure, errno);
  return Uprobe(std::move(event), UniqueFd(), closing_.get());
}

}  // namespace dynprof
