#include "user/target/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <memory>

#include "user/target/awaiting_target.h"
#include "user/target/safe_open.h"
#include "user/target/served_files.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kKernelThreadFlag = 0x00200000;  // PF_KTHREAD, include/linux/sched.h
constexpr std::uint64_t kForkedFlag = 0x40;              // PF_FORKNOEXEC
constexpr std::string_view kDeleted = " (deleted)";

// The first `limit` bytes of a file of /proc.
Result<std::string> read_file(const std::string& path, std::size_t limit) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return errno_error(fmt::format("cannot open {}", path));
  std::string text;
  std::array<char, 16384> buffer;
  while (text.size() < limit) {
    ssize_t got = ::read(fd.get(), buffer.data(), std::min(buffer.size(), limit - text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(fmt::format("cannot read {}", path));
    if (got == 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return text;
}

template <class T>
bool parse_number(std::string_view& text, T& value, int base) {
  auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (problem != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool skip(std::string_view& text, char c) {
  if (text.empty() || text[0] != c) return false;
  text.remove_prefix(1);
  return true;
}

// /proc/PID/maps writes a newline in a path as \012 and leaves everything else, backslashes too.
std::string undo_newlines(std::string_view path) {
  std::string plain;
  plain.reserve(path.size());
  while (!path.empty()) {
    if (path.starts_with("\\012")) {
      plain += '\n';
      path.remove_prefix(4);
    } else {
      plain += path[0];
      path.remove_prefix(1);
    }
  }
  return plain;
}

std::string read_link(const std::string& path) {
  std::array<char, 4096> buffer;
  ssize_t size = ::readlink(path.c_str(), buffer.data(), buffer.size());
  return size < 0 ? std::string() : std::string(buffer.data(), static_cast<std::size_t>(size));
}

Error no_such_process(pid_t pid) {
  Error e = error(fmt::format("there is no process {}", pid),
                  "it may just have ended; pgrep -af python lists the Python processes");
  e.errno_value = ESRCH;
  return e;
}

}  // namespace

Result<ProcessStat> read_process_stat(pid_t pid) {
  if (pid <= 0) return no_such_process(pid);
  auto text = read_file(fmt::format("/proc/{}/stat", pid), 4096);
  if (!text) {
    int problem = text.error().errno_value;
    if (problem == ENOENT || problem == ESRCH) return no_such_process(pid);
    return std::move(text).error();
  }
  // "pid (comm) S ppid ...": comm may hold anything, ')' included, so cut at the last one.
  std::size_t open = text->find('(');
  std::size_t close = text->rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) {
    return error(fmt::format("/proc/{}/stat is not as expected", pid));
  }
  ProcessStat stat;
  stat.pid = pid;
  stat.comm = text->substr(open + 1, close - open - 1);
  std::string_view rest = std::string_view(*text).substr(close + 1);
  std::vector<std::string_view> fields;  // fields[0] is field 3 of proc(5)
  while (!rest.empty() && fields.size() < 50) {
    std::size_t begin = rest.find_first_not_of(" \n");
    if (begin == std::string_view::npos) break;
    rest.remove_prefix(begin);
    std::size_t size = std::min(rest.find_first_of(" \n"), rest.size());
    fields.push_back(rest.substr(0, size));
    rest.remove_prefix(size);
  }
  std::uint64_t flags = 0, user = 0, system = 0;
  if (fields.size() < 20 || !parse_number(fields[1], stat.parent, 10) ||
      !parse_number(fields[6], flags, 10) || !parse_number(fields[11], user, 10) ||
      !parse_number(fields[12], system, 10) || !parse_number(fields[19], stat.start_ticks, 10)) {
    return error(fmt::format("/proc/{}/stat is not as expected", pid));
  }
  stat.state = fields[0][0];
  stat.cpu_ticks = user + system;
  stat.kernel_thread = (flags & kKernelThreadFlag) != 0;
  stat.forked = (flags & kForkedFlag) != 0;
  return stat;
}

Result<std::vector<pid_t>> list_threads(pid_t pid) {
  std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(fmt::format("/proc/{}/task", pid).c_str()),
                                             &::closedir);
  if (!folder) {
    if (errno == ENOENT) return no_such_process(pid);
    return errno_error(fmt::format("cannot list the threads of process {}", pid));
  }
  std::vector<pid_t> threads;
  while (const dirent* entry = ::readdir(folder.get())) {
    std::string_view name = entry->d_name;
    pid_t tid = 0;
    if (parse_number(name, tid, 10) && name.empty()) threads.push_back(tid);
  }
  std::sort(threads.begin(), threads.end());
  return threads;
}

std::string read_comm(pid_t pid, pid_t tid) {
  auto text = read_file(fmt::format("/proc/{}/task/{}/comm", pid, tid), 64);
  if (!text) return {};
  if (!text->empty() && text->back() == '\n') text->pop_back();
  return *std::move(text);
}

std::string read_arguments(pid_t pid) {
  // They lie in the target's memory, but the kernel waits for no page of them (Linux 4.17).
  auto text = read_file(fmt::format("/proc/{}/cmdline", pid), 4096);
  if (!text) return {};
  while (!text->empty() && text->back() == '\0') text->pop_back();
  return *std::move(text);
}

std::string read_environment(pid_t pid, std::string_view name) {
  // As for arguments, the kernel waits for no page of it.
  auto text = read_file(fmt::format("/proc/{}/environ", pid), 1 << 20);
  if (!text) return {};
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return std::string(entry.substr(name.size() + 1));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
  }
  return {};
}

std::string read_command_line(pid_t pid) {
  std::string text = read_arguments(pid);
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

std::string read_exe(pid_t pid) {
  std::string path = read_link(fmt::format("/proc/{}/exe", pid));
  if (path.ends_with(kDeleted)) path.resize(path.size() - kDeleted.size());
  return path;
}

Result<std::string> read_status_field(pid_t pid, std::string_view name) {
  ASSIGN_OR_RETURN(std::string status, read_file(fmt::format("/proc/{}/status", pid), 65536));
  std::string key = fmt::format("\n{}:", name);
  std::size_t begin = status.find(key);
  if (begin == std::string::npos) {
    return error(fmt::format("/proc/{}/status has no line {}", pid, name));
  }
  begin += key.size();
  return status.substr(begin, status.find('\n', begin) - begin);
}

bool has_shadow_stack(pid_t pid) {
  const auto features = read_status_field(pid, "x86_Thread_features");
  return features && features->find("shstk") != std::string::npos;
}

Result<uid_t> process_uid(pid_t pid) {
  ASSIGN_OR_RETURN(std::string field, read_status_field(pid, "Uid"));
  std::string_view text = field;
  uid_t uid = 0;
  while (skip(text, '\t') || skip(text, ' ')) {
  }
  if (!parse_number(text, uid, 10)) return error(fmt::format("/proc/{}/status: no uid", pid));
  return uid;
}

Result<pid_t> thread_group_of(pid_t pid) {
  ASSIGN_OR_RETURN(std::string field, read_status_field(pid, "Tgid"));
  std::string_view text = field;
  pid_t group = 0;
  while (skip(text, '\t') || skip(text, ' ')) {
  }
  if (!parse_number(text, group, 10)) return error(fmt::format("/proc/{}/status: no Tgid", pid));
  return group;
}

std::optional<Mapping> parse_mapping(std::string_view line) {
  // "start-end rwxp offset major:minor inode      path"
  Mapping m;
  if (!parse_number(line, m.start, 16) || !skip(line, '-') || !parse_number(line, m.end, 16) ||
      !skip(line, ' ') || line.size() < 5 || m.end <= m.start) {
    return std::nullopt;
  }
  m.readable = line[0] == 'r';
  m.writable = line[1] == 'w';
  m.executable = line[2] == 'x';
  line.remove_prefix(4);
  if (!skip(line, ' ') || !parse_number(line, m.offset, 16) || !skip(line, ' ') ||
      !parse_number(line, m.device_major, 16) || !skip(line, ':') ||
      !parse_number(line, m.device_minor, 16) || !skip(line, ' ') ||
      !parse_number(line, m.inode, 10)) {
    return std::nullopt;
  }
  while (skip(line, ' ')) {
  }
  if (m.inode != 0 && line.ends_with(kDeleted)) {
    line.remove_suffix(kDeleted.size());
    m.deleted = true;
  }
  m.path = undo_newlines(line);
  return m;
}

Result<std::vector<Mapping>> read_mappings(pid_t pid) {
  // A line is at most 73 characters and a path of at most 4 KiB, four times that when escaped.
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(fmt::format("/proc/{}/maps", pid).c_str(), "re"), &std::fclose);
  if (!file) {
    if (errno == ENOENT) return no_such_process(pid);
    return errno_error(fmt::format("cannot open /proc/{}/maps", pid),
                       "run as root (sudo), or give it CAP_SYS_PTRACE");
  }
  const AwaitingTarget awaiting(pid);
  std::vector<Mapping> mappings;
  std::string buffer(20'000, '\0');
  errno = 0;
  while (mappings.size() < kMaxMappings &&
         std::fgets(buffer.data(), static_cast<int>(buffer.size()), file.get())) {
    std::string_view line(buffer.c_str());
    if (line.ends_with('\n')) line.remove_suffix(1);
    if (auto mapping = parse_mapping(line)) mappings.push_back(*std::move(mapping));
  }
  if (std::ferror(file.get()) != 0) {
    return errno_error(fmt::format("cannot read /proc/{}/maps", pid),
                       "run as root (sudo), or give it CAP_SYS_PTRACE");
  }
  return mappings;
}

bool has_ended(pid_t pid) {
  const auto stat = read_process_stat(pid);
  if (!stat) return stat.error().errno_value == ESRCH;
  if (stat->zombie()) return true;
  // Between the end of its memory and that of the process it has no mappings, or they cannot be read.
  const AwaitingTarget awaiting(pid);
  const auto maps = read_file(fmt::format("/proc/{}/maps", pid), 1);
  if (maps) return maps->empty();
  return maps.error().errno_value == ENOENT || maps.error().errno_value == ESRCH;
}

Error ended_error(pid_t pid) {
  Error ended = error(fmt::format("process {} has ended", pid),
                      "dynprof-bpf needs a process that runs: pgrep -af python");
  ended.errno_value = ESRCH;
  return ended;
}

Result<UniqueFd> open_mapped_file(pid_t pid, const Mapping& mapping) {
  // map_files names the inode itself, so it works for deleted and replaced files; it wants
  // CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE. The path below /proc/PID/root may be another file by
  // now, so inode and device are compared.
  auto mapped = open_proc_link(
      fmt::format("/proc/{}/map_files/{:x}-{:x}", pid, mapping.start, mapping.end), pid);
  // Even looking up the path could wait for who serves it.
  if (mapped || mapped.error().errno_value == kServedByOther) return mapped;
  const UniqueFd root = open_root_of(pid);
  auto named = open_below(root.get(), mapping.path, pid);
  if (!named) {
    Error failure = std::move(named).error();
    failure.what = fmt::format("{} of process {} {}", mapping.path, pid, failure.what);
    return failure;
  }
  struct stat info {};
  if (::fstat(named->get(), &info) != 0) return errno_error(fmt::format("fstat {}", mapping.path));
  // Overlay and btrfs show another device number in maps than in stat: compare the inode only.
  if (info.st_ino != mapping.inode) {
    return error(fmt::format("{} was replaced since process {} mapped it", mapping.path, pid),
                 "run as root (sudo), which can open the old file");
  }
  return named;
}

bool in_initial_pid_namespace() {
  // PROC_PID_INIT_INO: the initial pid namespace has a fixed inode number.
  return read_link("/proc/self/ns/pid") == "pid:[4026531836]";
}

Result<bool> shares_our_pid_namespace(pid_t pid) {
  std::string ours = read_link("/proc/self/ns/pid");
  std::string theirs = read_link(fmt::format("/proc/{}/ns/pid", pid));
  if (theirs.empty()) return errno_error(fmt::format("cannot read /proc/{}/ns/pid", pid));
  return ours == theirs;
}

std::vector<pid_t> namespace_ids(pid_t pid, pid_t tid) {
  std::vector<pid_t> ids;
  auto status = read_file(fmt::format("/proc/{}/task/{}/status", pid, tid), 65536);
  if (!status) return ids;
  std::size_t begin = status->find("\nNSpid:");
  if (begin == std::string::npos) return ids;
  std::string_view text = std::string_view(*status).substr(begin + 7);
  while (skip(text, '\t') || skip(text, ' ')) {
    pid_t id = 0;
    if (!parse_number(text, id, 10)) break;
    ids.push_back(id);
  }
  return ids;
}

}  // namespace dynprof
