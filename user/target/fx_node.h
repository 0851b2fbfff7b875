// Attributes of nodes of torch.fx. In torch 2.6 they are an instance's; since then more and more are members of its
// base class torch._C._NodeBase, which is written in C and describes them by member descriptors.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "user/target/remote_values.h"

namespace dynprof {

// Where a member of _NodeBase lies in each node, in bytes; nothing where it has no such member.
std::optional<std::uint64_t> node_member_offset(RemoteObjects& objects, std::uint64_t node,
                                                std::string_view name);

// Short-lived, as RemoteValues is: where the members of a type are is kept.
class FxNodeReader {
 public:
  explicit FxNodeReader(RemoteValues& values) : values_(values) {}

  // "op", "name", "target", "meta", ...: nothing where `node` is no Node or has none.
  std::optional<std::uint64_t> attribute(std::uint64_t node, std::string_view name);

 private:
  RemoteValues& values_;
  // By type and name; nothing: an attribute of the instance.
  std::map<std::pair<std::uint64_t, std::string>, std::optional<std::uint64_t>, std::less<>>
      offsets_;
};

}  // namespace dynprof
