#include "user/target/backward_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "symbolizer/attribution/compile.h"
#include "user/target/torch_threads.h"

namespace dynprof {
namespace {

constexpr const char* kRun = "CompiledFunctionBackward";
constexpr std::size_t kMaxId = 64;
constexpr std::uint16_t kBytes = 8 * DP_NODE_WORDS;
constexpr std::array<std::uint16_t, 8> kFirstWords = {0x60,
                                                      0x1a0,
                                                      0x60 + kBytes,
                                                      0x60 + 2 * kBytes,
                                                      0x60 + 3 * kBytes,
                                                      0x60 + 4 * kBytes,
                                                      0x1a0 + kBytes,
                                                      0x1a0 + 2 * kBytes};

std::string id_text(const TorchIds& ids) {
  std::string text = ids.autograd_id >= 0 ? fmt::format("!{}", ids.autograd_id) : std::string();
  if (ids.frame_id < 0) return text;
  return fmt::format("{}{}{}/{}", text, text.empty() ? "" : "/", ids.frame_id, ids.compile_id);
}

// CompiledFunction, where this is the class of its backward nodes; 0: it is something else.
std::uint64_t compiled_function(RemoteObjects& objects, std::uint64_t type) {
  if (!plausible_pointer(type) || objects.type_name(type) != kRun) return 0;
  std::uint64_t function = objects.type_get(type, "_forward_cls").value_or(0);
  return function != 0 && objects.type_get(function, "compiled_fw") ? function : 0;
}

// Of one that came out of a cache: its ViewAndMutationMeta has the id, since torch 2.13.
std::string id_of_cached(RemoteValues& values, std::uint64_t function) {
  auto metadata = values.objects().type_get(function, "metadata");
  auto text = metadata ? values.attribute(*metadata, "compile_id_str") : std::nullopt;
  auto id = text ? values.read_str(*text, kMaxId) : std::nullopt;
  return id && is_valid(parse_trace_id(*id)) ? *id : std::string();
}

}  // namespace

std::string backward_run_name(RemoteValues& values, const dp_torch_layout& torch,
                              std::uint64_t none, std::uint64_t type) {
  RemoteObjects& objects = values.objects();
  std::uint64_t function = compiled_function(objects, type);
  if (function == 0) return {};
  auto info = objects.type_get(function, "_lazy_backward_info");
  auto context = info ? values.attribute(*info, "saved_compile_context") : std::nullopt;
  auto ids = context ? read_compile_context(objects, torch, none, *context) : std::nullopt;
  std::string id = ids ? id_text(*ids) : id_of_cached(values, function);
  return id.empty() ? kRun : fmt::format("{} {}", kRun, id);
}

std::uint16_t first_node_words() { return kFirstWords[0]; }

std::uint16_t node_words_after(std::uint16_t first) {
  const auto* at = std::find(kFirstWords.begin(), kFirstWords.end(), first);
  return at == kFirstWords.end() || at + 1 == kFirstWords.end() ? kFirstWords[0] : at[1];
}

bool is_node_class(RemoteObjects& objects, std::uint64_t type) {
  return plausible_pointer(type) && objects.type_name(type).ends_with("Backward") &&
         objects.type_get(type, "_forward_cls").value_or(0) != 0;
}

}  // namespace dynprof
