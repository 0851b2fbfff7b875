#include "symbolizer/attribution/process_purpose.h"

#include <algorithm>
#include <array>

#include "symbolizer/attribution/process_command.h"
#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr std::string_view kLoad = "cdll.LoadLibrary(\"";
constexpr std::size_t kVersionArguments = 4;
// Inductor's hashes: "c" and 51 characters of base 32.
constexpr std::size_t kLeastHash = 40;

constexpr std::array kCompilers = {
    "g++", "gcc",    "c++",     "cc",       "clang++",  "clang",     "cc1plus", "cc1",
    "as",  "ld",     "ar",      "icpx",     "icpc",     "nvcc",      "cicc",    "hipcc",
    "lld", "ld.lld", "ld.gold", "collect2", "cudafe++", "fatbinary", "nvlink"};

// "x86_64-linux-gnu-g++-12" is g++.
bool is_compiler(std::string_view program) {
  return std::any_of(kCompilers.begin(), kCompilers.end(), [&](std::string_view name) {
    std::string_view rest = program;
    if (const std::size_t at = program.rfind(name);
        at != std::string_view::npos && (at == 0 || program[at - 1] == '-')) {
      rest.remove_prefix(at + name.size());
      return rest.empty() ||
             (rest[0] == '-' && rest.find_first_not_of("-.0123456789") == std::string_view::npos);
    }
    return false;
  });
}

std::string_view first_source(std::string_view command_line) {
  const auto sources = sources_of(command_line);
  return sources.empty() ? std::string_view() : sources.front();
}

std::string_view output_of(std::string_view command_line) {
  const auto arguments = split_arguments(command_line);
  const auto at = std::find(arguments.begin(), arguments.end(), "-o");
  return at == arguments.end() || at + 1 == arguments.end() ? std::string_view() : at[1];
}

bool loads_a_library(std::string_view command_line) {
  return !probed_library(command_line).empty();
}

bool asks_for_the_version(std::string_view command_line) {
  static constexpr std::array<std::string_view, 5> kQuestions = {
      "--version", "-v", "-dumpversion", "-dumpfullversion", "-dumpmachine"};
  const auto arguments = split_arguments(command_line);
  return arguments.size() > 1 && arguments.size() <= kVersionArguments &&
         std::all_of(arguments.begin() + 1, arguments.end(), [](std::string_view argument) {
           return std::find(kQuestions.begin(), kQuestions.end(), argument) != kQuestions.end();
         });
}

bool reads_a_header(std::string_view command_line) {
  const std::string_view source = first_source(command_line);
  return source.ends_with(".h") || source.ends_with(".hpp");
}

bool writes_triton_driver(std::string_view command_line) {
  const std::string_view name = base_name(output_of(command_line));
  return name.starts_with("cuda_utils.") || name.starts_with("hip_utils.");
}

bool writes_triton_launcher(std::string_view command_line) {
  return base_name(output_of(command_line)).starts_with("__triton_launcher.");
}

bool compiles_generated_code(std::string_view command_line) {
  return !inductor_hash(first_source(command_line)).empty();
}

bool is_worker(std::string_view command_line) { return worker_parent(command_line) != 0; }

constexpr std::array kRules = {
    PurposeRule{.purpose = Purpose::kWorker, .name = "compile worker", .holds = is_worker},
    PurposeRule{.purpose = Purpose::kAutotuning,
                .name = "autotuning process",
                .argument_end = "torch/_inductor/__autotune_main__.py"},
    PurposeRule{.purpose = Purpose::kIsaProbe,
                .name = "loading a probe",
                .argument_part = kLoad.data(),
                .holds = loads_a_library},
    PurposeRule{.purpose = Purpose::kVersion,
                .name = "compiler version",
                .program = "compiler",
                .holds = asks_for_the_version},
    PurposeRule{.purpose = Purpose::kHeader,
                .name = "checksum of a header",
                .program = "openssl",
                .argument_end = "/header.i"},
    PurposeRule{.purpose = Purpose::kHeader,
                .name = "precompiled header",
                .program = "compiler",
                .holds = reads_a_header},
    PurposeRule{.purpose = Purpose::kTritonDriver,
                .name = "Triton's driver",
                .program = "compiler",
                .holds = writes_triton_driver},
    PurposeRule{.purpose = Purpose::kLauncher,
                .name = "Triton's launcher",
                .program = "compiler",
                .holds = writes_triton_launcher},
    PurposeRule{.purpose = Purpose::kAssembler, .name = "assembler", .program = "ptxas"},
    PurposeRule{.purpose = Purpose::kKernel,
                .name = "generated code",
                .program = "compiler",
                .holds = compiles_generated_code},
};

bool holds(const PurposeRule& rule, std::string_view command_line, std::string_view program) {
  const std::string_view wanted = rule.program;
  if (wanted == "compiler" ? !is_compiler(program) : !wanted.empty() && program != wanted)
    return false;
  const std::string_view end = rule.argument_end, part = rule.argument_part;
  if (!end.empty() || !part.empty()) {
    const auto arguments = split_arguments(command_line);
    const bool found =
        std::any_of(arguments.begin(), arguments.end(), [&](std::string_view argument) {
          return argument.ends_with(end) && argument.find(part) != std::string_view::npos;
        });
    if (!found) return false;
  }
  return rule.holds == nullptr || rule.holds(command_line);
}

}  // namespace

const char* purpose_text(Purpose purpose) {
  switch (purpose) {
    case Purpose::kOther:
      return "other";
    case Purpose::kKernel:
      return "kernel";
    case Purpose::kLauncher:
      return "kernel launcher";
    case Purpose::kAssembler:
      return "ptxas";
    case Purpose::kAutotuning:
      return "autotuning";
    case Purpose::kWorker:
      return "compile worker";
    case Purpose::kIsaProbe:
      return "instruction-set probe";
    case Purpose::kHeader:
      return "precompiled header";
    case Purpose::kVersion:
      return "compiler version";
    case Purpose::kTritonDriver:
      return "Triton driver";
  }
  return "other";
}

bool is_one_off(Purpose purpose) {
  return purpose == Purpose::kIsaProbe || purpose == Purpose::kHeader ||
         purpose == Purpose::kVersion || purpose == Purpose::kTritonDriver;
}

std::span<const PurposeRule> purpose_rules() { return kRules; }

Purpose purpose_of(std::string_view command_line, std::string_view program) {
  if (program.empty()) program = base_name(command_line.substr(0, command_line.find('\0')));
  for (const PurposeRule& rule : kRules)
    if (holds(rule, command_line, program)) return rule.purpose;
  return Purpose::kOther;
}

std::string_view probed_library(std::string_view command_line) {
  const auto arguments = split_arguments(command_line);
  for (std::size_t i = 1; i + 1 < arguments.size(); ++i) {
    if (arguments[i] != "-c") continue;
    const std::string_view program = arguments[i + 1];
    const std::size_t at = program.find(kLoad);
    if (at == std::string_view::npos) return {};
    const std::string_view rest = program.substr(at + kLoad.size());
    const std::string_view path = rest.substr(0, rest.find('"'));
    return path.ends_with(".so") ? path : std::string_view();
  }
  return {};
}

std::string_view inductor_hash(std::string_view path) {
  const std::string_view name = base_name(path);
  const std::string_view hash = name.substr(0, name.find('.'));
  const bool is_hash = hash.size() >= kLeastHash && hash[0] == 'c' &&
                       std::all_of(hash.begin(), hash.end(), [](char c) {
                         return (c >= 'a' && c <= 'z') || (c >= '2' && c <= '7');
                       });
  return is_hash ? hash : std::string_view();
}

}  // namespace dynprof
