#include "user/live/python_threads.h"

#include <string_view>

namespace dynprof {
namespace {

constexpr std::size_t kMaxThreads = 1024;
constexpr std::size_t kMaxName = 64;

}  // namespace

std::map<std::uint64_t, std::string> python_thread_names(TargetView& view) {
  std::map<std::uint64_t, std::string> names;
  auto module = view.objects.find_module(view.runtime.main_interpreter, "threading");
  auto active = module ? view.objects.module_get(*module, "_active") : std::nullopt;
  auto threads = active ? view.values.dict_items(*active, kMaxThreads) : std::nullopt;
  if (!threads) return names;
  for (const DictEntry& entry : *threads) {
    auto ident = view.values.read_int(entry.key);
    auto name = view.values.attribute(entry.value, "_name");
    auto text = name ? view.values.read_str(*name, kMaxName) : std::nullopt;
    if (!ident || !text || text->empty() || text->starts_with("Dummy-")) continue;
    names.emplace(static_cast<std::uint64_t>(*ident), std::move(*text));
  }
  return names;
}

}  // namespace dynprof
