#include "user/inject/folder_guard.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "symbolizer/base/unique_fd.h"

namespace dynprof {
namespace {

// Until it has answered; then the folder stays.
constexpr int kPatienceMs = 60'000, kPollMs = 20;
constexpr int kProgram = 0, kParent = 1, kReady = 2;
constexpr int kMaxBatches = 64;  // of names
constexpr int kReadyMs = 1000;

// What follows runs in the other process: no memory is taken, no lock.

// Takes a table of descriptors of its own, since the process that closes probes empties the shared one when the program was
// killed. A copy of a probe kept open here would leave that probe set. Then says so on `ready`.
bool keep_only(int program, int parent, int ready) {
  if (::unshare(CLONE_FILES) != 0) return false;
  const std::array wanted = {program, parent, ready};
  static_assert(kProgram == 0 && kParent == 1 && kReady == 2);
  std::array<int, 3> copies = {};
  // None may be overwritten before it is copied.
  for (int i = 0; i <= kReady; i++) copies[i] = ::fcntl(wanted[i], F_DUPFD, kReady + 1);
  for (int i = 0; i <= kReady; i++)
    if (::dup2(copies[i], i) != i) return false;
  ::syscall(SYS_close_range, kReady + 1, ~0U, 0U);
  (void)!::write(kReady, "", 1);
  ::close(kReady);
  return true;
}

bool is_awaited(int folder) {
  struct stat answer {};
  return ::fstatat(folder, kAnswerFile, &answer, AT_SYMLINK_NOFOLLOW) == 0 && answer.st_size == 0;
}

void remove_files(int folder) {
  struct Name {  // linux_dirent64
    std::uint64_t inode, offset;
    std::uint16_t size;
    std::uint8_t type;
    char text[1];
  };
  alignas(Name) std::array<char, 4096> names;
  for (int batch = 0; batch < kMaxBatches; batch++) {
    const long size = ::syscall(SYS_getdents64, folder, names.data(), names.size());
    if (size <= 0) return;
    for (long at = 0; at < size;) {
      const auto* name = reinterpret_cast<const Name*>(names.data() + at);
      ::unlinkat(folder, name->text, 0);
      at += name->size;
    }
  }
}

void remove_folder(const char* name) {
  const int folder = ::openat(kParent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat status {};
  // Another user could have put a folder of their own in its place.
  if (folder < 0 || ::fstat(folder, &status) != 0 || status.st_uid != ::geteuid()) return;
  for (int waited = 0; is_awaited(folder); waited += kPollMs) {
    if (waited >= kPatienceMs) return;
    ::poll(nullptr, 0, kPollMs);
  }
  remove_files(folder);
  ::unlinkat(kParent, name, AT_REMOVEDIR);
}

void serve(int program, int parent, int ready, const char* name) {
  if (!keep_only(program, parent, ready)) return;
  pollfd end = {kProgram, POLLIN, 0};
  while (::poll(&end, 1, -1) < 0 && errno == EINTR) {
  }
  if (end.revents & POLLIN) remove_folder(name);
}

}  // namespace

std::unique_ptr<FolderGuard> FolderGuard::start(int parent, const std::string& name) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return nullptr;
  const UniqueFd told(ends[0]), ready(ends[1]);
  auto process = OutlivingProcess::start(
      "folder-remover", [&](int program) { serve(program, parent, ready.get(), name.c_str()); });
  if (!process) return nullptr;
  std::unique_ptr<FolderGuard> guard(new FolderGuard(std::move(process)));
  // Until it holds its own copies, the process that closes probes could close the originals.
  pollfd event = {told.get(), POLLIN, 0};
  while (::poll(&event, 1, kReadyMs) < 0 && errno == EINTR) {
  }
  return guard;
}

}  // namespace dynprof
