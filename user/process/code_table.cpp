#include "user/process/code_table.h"

#include <utility>

namespace dynprof {
namespace {

constexpr std::uint8_t kReadAttempts = 4;
// Bounds the memory for a target that creates code objects without end (exec in a loop).
constexpr std::size_t kMaxEntries = 1'000'000;

Code recorded_code(const RemoteCode& remote, RecordingWriter& writer, std::uint16_t python) {
  Code code;
  code.python = python;
  code.unreadable = remote.unreadable;
  if (remote.unreadable != Unreadable::kNo) return code;
  code.filename = writer.string(remote.filename);
  code.name = writer.string(remote.name);
  code.qualname = writer.string(remote.qualname);
  code.first_line = remote.first_line;
  code.line_table = writer.blob(remote.line_table);
  return code;
}

}  // namespace

CodeId CodeTable::find(std::uint64_t address, std::uint32_t identity) const {
  auto at = entries_.find(address);
  return at == entries_.end() || at->second.identity != identity ? 0 : at->second.code;
}

std::vector<RemoteCode> CodeTable::learn(std::span<const CodeRequest> codes, CodeReader& reader,
                                         RecordingWriter& writer, std::uint16_t python) {
  if (entries_.size() > kMaxEntries) entries_.clear();
  wanted_.clear();
  for (const CodeRequest& code : codes) {
    Entry& entry = entries_[code.address];
    if (entry.code == 0 || entry.identity != *code.identity)
      entry = {*code.identity, 0, kReadAttempts};
    if (entry.attempts_left == 0) continue;
    // Twice in a row on one stack (recursion): one attempt.
    if (!wanted_.empty() && wanted_.back().address == code.address) continue;
    wanted_.push_back(code);
  }
  if (wanted_.empty()) return {};
  std::vector<RemoteCode> whole;
  std::vector<RemoteCode> answers = reader.read_many(wanted_);
  for (std::size_t i = 0; i < answers.size() && i < wanted_.size(); i++) {
    Entry& entry = entries_[wanted_[i].address];
    if (entry.attempts_left == 0 || entry.identity != *wanted_[i].identity) continue;
    const bool first = entry.attempts_left == kReadAttempts;
    const bool read = answers[i].unreadable == Unreadable::kNo;
    entry.attempts_left = read ? 0 : static_cast<std::uint8_t>(entry.attempts_left - 1);
    if (first && !read) unreadable_++;
    if (!first && read) unreadable_--;
    entry.code = writer.code(recorded_code(answers[i], writer, python));
    if (read) whole.push_back(std::move(answers[i]));
  }
  return whole;
}

}  // namespace dynprof
