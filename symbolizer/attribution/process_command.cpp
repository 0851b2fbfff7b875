#include "symbolizer/attribution/process_command.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxTitle = 120;
constexpr std::size_t kMaxArgument = 200;
constexpr std::string_view kWorkerScript = "torch/_inductor/compile_worker/__main__.py";
constexpr std::string_view kParentOption = "--parent=";
constexpr std::array<std::string_view, 15> kSourceSuffixes = {
    ".cpp", ".cc",    ".cxx", ".c",     ".s", ".S",   ".o", ".cu",
    ".ptx", ".cubin", ".ii",  ".ninja", ".h", ".hpp", ".py"};
// Inductor's files are named by a hash of 52 characters.
constexpr std::size_t kLongName = 32, kNameHead = 10, kNameTail = 16;

// Of a compiler's sources the one that names it: not what every program is linked with.
std::string source_name(std::string_view command_line) {
  for (std::string_view source : sources_of(command_line)) {
    const std::string_view name = base_name(source);
    if (name.starts_with("crt") && name.ends_with(".o")) continue;
    if (name.size() <= kLongName) return std::string(name);
    return std::string(name.substr(0, kNameHead)) + "..." +
           std::string(name.substr(name.size() - kNameTail));
  }
  return {};
}

// What Python's threading calls threads, by process and thread; not its names for main threads.
std::map<std::pair<std::int32_t, std::int32_t>, std::string> python_names(const Tables& tables) {
  constexpr std::size_t kMaxBody = 1 << 20, kMaxName = 64;
  std::map<std::pair<std::int32_t, std::int32_t>, std::string> names;
  for (const Fact& fact : tables.facts) {
    if (tables.strings[fact.kind] != "threads") continue;
    const std::string_view body = tables.blobs[fact.body];
    if (body.size() > kMaxBody) continue;
    const auto json = nlohmann::json::parse(body.begin(), body.end(), nullptr, false);
    if (!json.is_object()) continue;
    for (const auto& [tid, name] : json.items()) {
      std::int32_t number = 0;
      std::from_chars(tid.data(), tid.data() + tid.size(), number);
      if (number <= 0 || !name.is_string() || name == "MainThread") continue;
      names[{fact.pid, number}] = name.get<std::string>().substr(0, kMaxName);
    }
  }
  return names;
}

bool is_source(std::string_view argument) {
  if (argument.empty() || argument[0] == '-') return false;
  return std::any_of(kSourceSuffixes.begin(), kSourceSuffixes.end(), [&](std::string_view suffix) {
    return argument.size() > suffix.size() && argument.ends_with(suffix);
  });
}

}  // namespace

std::vector<std::string_view> split_arguments(std::string_view command_line) {
  std::vector<std::string_view> arguments;
  if (command_line.empty()) return arguments;
  while (arguments.size() < kMaxArguments) {
    const std::size_t end = command_line.find('\0');
    arguments.push_back(command_line.substr(0, end));
    if (end == std::string_view::npos) break;
    command_line.remove_prefix(end + 1);
  }
  return arguments;
}

std::int32_t worker_parent(std::string_view command_line) {
  bool is_worker = false;
  std::int32_t parent = 0;
  for (std::string_view argument : split_arguments(command_line)) {
    if (argument.ends_with(kWorkerScript)) is_worker = true;
    if (!argument.starts_with(kParentOption)) continue;
    argument.remove_prefix(kParentOption.size());
    std::int32_t pid = 0;
    auto [end, problem] = std::from_chars(argument.data(), argument.data() + argument.size(), pid);
    if (problem == std::errc() && end == argument.data() + argument.size() && pid > 0) parent = pid;
  }
  return is_worker ? parent : 0;
}

std::vector<std::string_view> sources_of(std::string_view command_line) {
  std::vector<std::string_view> sources;
  std::vector<std::string_view> arguments = split_arguments(command_line);
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    // What follows -o is written, and what follows -include is not what is compiled.
    if (is_source(arguments[i]) && arguments[i - 1] != "-o" && arguments[i - 1] != "-include")
      sources.push_back(arguments[i]);
  }
  return sources;
}

std::string command_title(std::string_view command_line, std::string_view exe,
                          std::string_view comm) {
  if (worker_parent(command_line) != 0) return "compile_worker";
  const std::vector<std::string_view> arguments = split_arguments(command_line);
  std::string title(base_name(!exe.empty()                                  ? exe
                              : !arguments.empty() && !arguments[0].empty() ? arguments[0]
                                                                            : comm));
  if (title.empty()) title = comm;
  if (std::string source = source_name(command_line); !source.empty()) title += " " + source;
  if (title.size() > kMaxTitle) title.resize(kMaxTitle);
  return title;
}

std::vector<std::string> shortened_arguments(std::string_view command_line, std::size_t limit) {
  std::vector<std::string> kept;
  const std::vector<std::string_view> all = split_arguments(command_line);
  std::size_t used = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::string argument(all[i].substr(0, kMaxArgument));
    if (all[i].size() > kMaxArgument) argument += "...";
    used += argument.size() + 1;
    if (used > limit && i > 0) {
      kept.emplace_back("...");
      break;
    }
    kept.push_back(std::move(argument));
  }
  return kept;
}

std::vector<std::string> thread_commands(const Tables& tables) {
  std::map<std::int32_t, const Process*> processes;
  for (const Process& process : tables.processes) processes[process.pid] = &process;
  const auto names = python_names(tables);
  std::vector<std::string> commands;
  commands.reserve(tables.threads.size());
  // A thread that has not been named has the name of its process's first one.
  std::map<std::int32_t, std::string_view> first;
  for (const Thread& thread : tables.threads)
    if (thread.pid == thread.tid) first[thread.pid] = tables.strings[thread.comm];
  const auto process_name = [&](std::int32_t pid) {
    const auto found = first.find(pid);
    return found == first.end() ? std::string_view() : found->second;
  };
  for (const Thread& thread : tables.threads) {
    std::string command(tables.strings[thread.comm]);
    if (auto process = processes.find(thread.pid); command.empty() && process != processes.end()) {
      command = tables.strings[process->second->comm];
      if (command.empty()) command = base_name(tables.strings[process->second->exe]);
    }
    if (command.empty()) command = "[pid " + std::to_string(thread.pid) + "]";
    // A thread that was given a name of its own by the operating system's means keeps it.
    const auto name = names.find({thread.pid, thread.tid});
    if (name != names.end() && process_name(thread.pid) == command) command = name->second;
    commands.push_back(std::move(command));
  }
  return commands;
}

}  // namespace dynprof
