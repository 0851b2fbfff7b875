#include "user/target/clock_function.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace dynprof {
namespace {

constexpr std::string_view kName = "time_ns";
constexpr std::uint64_t kMethodDefinition = 16;  // PyCFunctionObject.m_ml
constexpr std::uint64_t kMethodAddress = 8;      // PyMethodDef.ml_meth; ml_name is at 0

bool is_called(RemoteMemory& memory, std::uint64_t definition) {
  char name[kName.size() + 1] = {};
  // Not a pointer to an object: it need not be aligned, nor must that of the function.
  auto text = memory.read<std::uint64_t>(definition);
  return text && memory.read(*text, std::as_writable_bytes(std::span(name))) &&
         std::memcmp(name, kName.data(), sizeof name) == 0;
}

}  // namespace

Result<ClockFunction> find_clock_function(RemoteObjects& objects, const PythonRuntime& runtime) {
  RemoteMemory& memory = objects.memory();
  auto module = objects.find_module(runtime.main_interpreter, "time");
  auto function = module ? objects.module_get(*module, kName) : std::nullopt;
  if (!function) return error(fmt::format("process {} has no time.time_ns", runtime.pid));
  auto type = objects.type_of(*function);
  auto definition = type && objects.type_name(*type) == "builtin_function_or_method"
                        ? memory.read_pointer(*function + kMethodDefinition)
                        : std::nullopt;
  auto address = definition && is_called(memory, *definition)
                     ? memory.read<std::uint64_t>(*definition + kMethodAddress)
                     : std::nullopt;
  if (!address)
    return error(
        fmt::format("time.time_ns of process {} was replaced by another function", runtime.pid));
  ASSIGN_OR_RETURN(const std::vector<Mapping> mappings, read_mappings(runtime.pid));
  auto at = std::find_if(mappings.begin(), mappings.end(), [&](const Mapping& mapping) {
    return mapping.start <= *address && *address < mapping.end;
  });
  if (at == mappings.end() || !at->executable || !at->is_file())
    return error(fmt::format("time.time_ns of process {} lies at {:#x}, outside of its files",
                             runtime.pid, *address));
  return ClockFunction{*at, *address - at->start + at->offset};
}

}  // namespace dynprof
