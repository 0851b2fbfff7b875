#include "user/generated/leaf_guards.h"

#include <algorithm>
#include <array>
#include <span>
#include <unordered_set>

namespace dynprof {
namespace {

constexpr std::size_t kRootWords = 96;   // of a C++ RootGuardManager that are looked at
constexpr std::size_t kGuardWords = 8;   // of a LeafGuard
constexpr std::size_t kMaxGuards = 256;  // words of one vector
constexpr std::size_t kMaxTexts = 4096;

// Private objects of C++ again (see guard_managers.cpp). The root holds its guards in vectors, and each guard has a
// pointer back to the root and a list of its texts. What does not look like both is no guard.
class Root {
 public:
  Root(PythonObjects& python, std::uint64_t address) : python_(python), address_(address) {}

  // The lists of texts.
  std::vector<std::uint64_t> lists() {
    std::array<std::uint64_t, kRootWords> words{};
    RemoteRange range{address_, std::as_writable_bytes(std::span(words))};
    python_.objects().memory().read_many(std::span(&range, 1));
    const std::size_t read = range.done / sizeof words[0];
    for (std::size_t i = 0; i + 1 < read; ++i) vector(words[i], words[i + 1]);
    return std::move(lists_);
  }

 private:
  void vector(std::uint64_t begin, std::uint64_t end) {
    if (!plausible_pointer(begin) || end <= begin || end % 8 != 0) return;
    const std::uint64_t count = (end - begin) / 8;
    if (count > kMaxGuards) return;
    std::vector<std::uint64_t> words(count);
    if (!python_.objects().memory().read(begin, std::as_writable_bytes(std::span(words)))) return;
    for (std::uint64_t word : words) guard(word);
  }

  void guard(std::uint64_t address) {
    if (!plausible_pointer(address) || !seen_.insert(address).second) return;
    std::array<std::uint64_t, kGuardWords> words{};
    if (!python_.objects().memory().read(address, std::as_writable_bytes(std::span(words)))) return;
    if (std::find(words.begin(), words.end(), address_) == words.end()) return;
    for (std::uint64_t word : words) {
      if (!plausible_pointer(word) || python_.values().type_name(word) != "list") continue;
      lists_.push_back(word);
      return;
    }
  }

  PythonObjects& python_;
  std::uint64_t address_;
  std::vector<std::uint64_t> lists_;
  std::unordered_set<std::uint64_t> seen_;
};

}  // namespace

std::vector<std::string> root_guard_texts(PythonObjects& python, std::uint64_t manager,
                                          std::size_t max_bytes) {
  std::vector<std::string> texts;
  auto root = python.attribute(manager, {"root"});
  if (!root || !python.values().type_name(*root).ends_with("RootGuardManager")) return texts;
  auto address =
      python.objects().memory().read_pointer(*root + python.objects().layout().object_size);
  if (!address) return texts;
  std::size_t used = 0;
  for (std::uint64_t list : Root(python, *address).lists()) {
    auto items = python.values().list_items(list, kMaxTexts);
    for (std::uint64_t item : items.value_or(std::vector<std::uint64_t>())) {
      auto text = python.text(item, max_bytes - used);
      if (!text) continue;
      used += text->text.size();
      texts.push_back(std::move(text->text));
      if (used >= max_bytes) return texts;
    }
  }
  return texts;
}

}  // namespace dynprof
