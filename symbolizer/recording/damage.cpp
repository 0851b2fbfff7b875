#include "symbolizer/recording/damage.h"

#include <fmt/format.h>

#include <string_view>

namespace dynprof::recording {
namespace {

// 1234567 -> "1,234,567".
std::string grouped(std::uint64_t value) {
  std::string digits = fmt::format("{}", value);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

// "1 sample is", "1,234 samples are".
std::string counted(std::uint64_t count, std::string_view noun, std::string_view singular_verb,
                    std::string_view plural_verb) {
  bool one = count == 1;
  return fmt::format("{} {}{} {}", grouped(count), noun, one ? "" : "s",
                     one ? singular_verb : plural_verb);
}

std::string kind_name(ChunkKind kind) {
  std::string_view text = chunk_kind_text(kind);
  if (!text.empty()) return std::string(text);
  return fmt::format("kind {}", static_cast<unsigned>(kind));
}

using Kinds = std::map<ChunkKind, std::uint64_t>;

// "samples: 2, stacks: 1"
std::string listed(const Kinds& kinds) {
  std::string text;
  std::size_t shown = 0;
  for (const auto& [kind, count] : kinds) {
    if (shown++ == 12) return text + ", ...";
    if (!text.empty()) text += ", ";
    text += fmt::format("{}: {}", kind_name(kind), grouped(count));
  }
  return text;
}

std::uint64_t total(const Kinds& kinds) {
  std::uint64_t sum = 0;
  for (const auto& [kind, count] : kinds) sum += count;
  return sum;
}

void add_chunks(std::vector<std::string>& out, const Kinds& kinds, std::string_view one,
                std::string_view several) {
  if (kinds.empty()) return;
  out.push_back(
      fmt::format("{} ({})", counted(total(kinds), "chunk", one, several), listed(kinds)));
}

}  // namespace

std::vector<std::string> Damage::sentences() const {
  std::vector<std::string> out;
  add_chunks(out, bad_checksum, "is damaged: its checksum does not match",
             "are damaged: their checksums do not match");
  add_chunks(out, malformed, "is malformed and was left out", "are malformed and were left out");
  add_chunks(out, out_of_order, "is out of order and was left out",
             "are out of order and were left out");
  add_chunks(out, too_large, "would take too much memory and was left out",
             "would take too much memory and were left out");
  add_chunks(out, unreadable, "could not be read from the disk", "could not be read from the disk");
  add_chunks(out, unknown, "is of a kind this version does not know and was left out",
             "are of kinds this version does not know and were left out");
  if (missing_chunks > 0) {
    out.push_back(counted(missing_chunks, "chunk", "is missing", "are missing"));
  }
  if (skipped_bytes > 0) {
    out.push_back(counted(skipped_bytes, "byte", "belongs to no intact chunk and was skipped",
                          "belong to no intact chunk and were skipped"));
  }
  if (torn_bytes > 0) {
    out.push_back(fmt::format("the file does not end with a whole chunk: its last {}",
                              counted(torn_bytes, "byte", "is not used", "are not used")));
  }
  if (bytes_after_end > 0) {
    out.push_back(counted(bytes_after_end, "byte", "after the end mark was not read",
                          "after the end mark were not read"));
  }
  if (meta_lost) {
    out.push_back("what was known at the start (host, command, versions, frequency) is lost");
  } else if (meta_from_trailer) {
    out.push_back("the first chunk is lost; what it says was taken from the trailer");
  }
  if (trailer_lost) out.push_back("the trailer (how it ended, counters of losses) is lost");
  if (!lost_entries.empty()) {
    out.push_back(fmt::format("{} ({}); what it held reads <lost> or has no name",
                              counted(total(lost_entries), "table row", "is lost", "are lost"),
                              listed(lost_entries)));
  }
  if (deep_stacks > 0) {
    out.push_back(fmt::format("{} of more than {} frames, cut at the root side",
                              counted(deep_stacks, "stack", "is", "are"), grouped(kMaxStackDepth)));
  }
  if (samples_lost > 0) out.push_back(counted(samples_lost, "sample", "is lost", "are lost"));
  if (samples_partly_lost > 0) {
    out.push_back(counted(samples_partly_lost, "sample",
                          "has frames, a thread or a context that is lost",
                          "have frames, a thread or a context that is lost"));
  }
  if (samples_out_of_order > 0) {
    out.push_back(
        counted(samples_out_of_order, "sample",
                "is older than the one before it on its thread; its time was raised",
                "are older than the one before on their thread; their times were raised"));
  }
  return out;
}

}  // namespace dynprof::recording
