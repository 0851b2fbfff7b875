#include "user/target/fx_node.h"

#include "user/target/torch_layout.h"

namespace dynprof {
namespace {

constexpr int kMaxBases = 8;

}  // namespace

std::optional<std::uint64_t> node_member_offset(RemoteObjects& objects, std::uint64_t node,
                                                std::string_view name) {
  std::uint64_t type = objects.type_of(node).value_or(0);
  for (int depth = 0; type != 0 && depth < kMaxBases; ++depth) {
    if (objects.type_name(type).ends_with("_NodeBase")) {
      auto paths = attribute_paths(objects, type, name);
      if (!paths || paths->path.steps != 1 || paths->path.offset[0] < 0) return std::nullopt;
      return static_cast<std::uint64_t>(paths->path.offset[0]);
    }
    type = objects.memory().read_pointer(type + objects.layout().type_base).value_or(0);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> FxNodeReader::attribute(std::uint64_t node, std::string_view name) {
  auto type = values_.objects().type_of(node);
  if (!type || !values_.is_a(node, "Node")) return std::nullopt;
  auto [place, added] = offsets_.try_emplace({*type, std::string(name)});
  if (added) place->second = node_member_offset(values_.objects(), node, name);
  if (place->second) return values_.memory().read_pointer(node + *place->second);
  return values_.attribute(node, name);
}

}  // namespace dynprof
