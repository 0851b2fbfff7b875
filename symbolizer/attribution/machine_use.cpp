#include "symbolizer/attribution/machine_use.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace dynprof {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxBody = 1 << 20;
constexpr std::size_t kMaxOthers = 100;
constexpr std::uint64_t kMaxNs = std::uint64_t{1} << 60;  // 36 CPU years

std::uint64_t number(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_unsigned()) return 0;
  return std::min(found->get<std::uint64_t>(), kMaxNs);
}

}  // namespace

MachineUse read_machine_use(const Tables& tables) {
  MachineUse use;
  for (const Fact& fact : tables.facts) {
    if (tables.strings[fact.kind] != "machine") continue;
    const std::string_view body = tables.blobs[fact.body];
    if (body.size() > kMaxBody) continue;
    const Json json = Json::parse(body.begin(), body.end(), nullptr, false);
    if (!json.is_object() || number(json, "busy_ns") + number(json, "idle_ns") == 0) continue;
    use = {};
    use.known = true;
    use.cpus = static_cast<std::uint32_t>(std::min<std::uint64_t>(number(json, "cpus"), 1 << 20));
    use.busy_ns = number(json, "busy_ns");
    use.idle_ns = number(json, "idle_ns");
    use.steal_ns = number(json, "steal_ns");
    use.own_ns = number(json, "own_ns");
    std::map<std::string, std::uint64_t> by_name;
    if (const auto others = json.find("others"); others != json.end() && others->is_array()) {
      for (const Json& other : *others) {
        if (by_name.size() == kMaxOthers || !other.is_object()) break;
        const auto name = other.find("name");
        if (name == other.end() || !name->is_string()) continue;
        by_name[name->get<std::string>().substr(0, 64)] += number(other, "cpu_ns");
      }
    }
    use.others.assign(by_name.begin(), by_name.end());
    std::stable_sort(use.others.begin(), use.others.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
  }
  return use;
}

}  // namespace dynprof
