// What a command line says: arguments with a 0 byte between two, written by the target, cut anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/recording/model.h"

namespace dynprof {

// Arguments looked at, of any command line.
inline constexpr std::size_t kMaxArguments = 512;

std::vector<std::string_view> split_arguments(std::string_view command_line);
// Of torch's compile workers, sidecar and pool alike (torch/_inductor/compile_worker/__main__.py, 2.6 to
// 2.14): the process they work for. 0: it is none.
std::int32_t worker_parent(std::string_view command_line);
// The arguments that name a file a compiler compiles: .cpp, .c, .s, .o, .cu, .ptx ...
std::vector<std::string_view> sources_of(std::string_view command_line);
// "g++ main.cpp", "compile_worker", "sh": from the arguments, else the path, else the short name.
std::string command_title(std::string_view command_line, std::string_view exe,
                          std::string_view comm);
// At most `limit` bytes in all; "..." stands for what is left out.
std::vector<std::string> shortened_arguments(std::string_view command_line, std::size_t limit);
// By ThreadId: its own short name, else that of its process or its program, else "[pid 77]".
std::vector<std::string> thread_commands(const Tables& tables);

}  // namespace dynprof
