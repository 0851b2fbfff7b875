#include "user/cli/top_keys.h"

#include <optional>
#include <string_view>

namespace dynprof {
namespace {

constexpr std::size_t kLongestSequence = 16;

// '\x03': Control-C, where the terminal sends it as a character.
struct Letter {
  char character;
  TopKey key;
};
constexpr Letter kLetters[] = {
    {'c', TopKey::kCompiles},  {'f', TopKey::kFinished},  {'p', TopKey::kProcesses},
    {'t', TopKey::kFunctions}, {'\t', TopKey::kNextPage}, {'s', TopKey::kSort},
    {' ', TopKey::kFreeze},    {'h', TopKey::kHelp},      {'?', TopKey::kHelp},
    {'k', TopKey::kUp},        {'j', TopKey::kDown},      {'q', TopKey::kQuit},
    {'Q', TopKey::kQuit},      {'\x04', TopKey::kQuit},   {'\x03', TopKey::kQuit}};

std::optional<TopKey> letter(char c) {
  for (const Letter& one : kLetters)
    if (one.character == c) return one.key;
  return std::nullopt;
}

std::optional<TopKey> sequence(std::string_view text) {
  if (text == "\x1b[A" || text == "\x1bOA") return TopKey::kUp;
  if (text == "\x1b[B" || text == "\x1bOB") return TopKey::kDown;
  if (text == "\x1b[5~") return TopKey::kPageUp;
  if (text == "\x1b[6~") return TopKey::kPageDown;
  return std::nullopt;
}

// Length of the escape sequence that `text` begins with; 0: it is not complete.
std::size_t sequence_length(std::string_view text) {
  if (text.size() < 2) return 0;
  if (text[1] == 'O') return text.size() < 3 ? 0 : 3;
  if (text[1] != '[') return 1;  // a lone Escape
  for (std::size_t i = 2; i < text.size(); ++i)
    if (text[i] >= '@' && text[i] <= '~') return i + 1;
  return text.size() >= kLongestSequence ? text.size() : 0;
}

}  // namespace

std::vector<TopKey> take_keys(std::string& pending) {
  std::vector<TopKey> keys;
  while (!pending.empty()) {
    std::size_t length = 1;
    std::optional<TopKey> key;
    if (pending[0] == '\x1b') {
      length = sequence_length(pending);
      if (length == 0) break;
      key = sequence(std::string_view(pending).substr(0, length));
    } else {
      key = letter(pending[0]);
    }
    if (key) keys.push_back(*key);
    pending.erase(0, length);
  }
  return keys;
}

}  // namespace dynprof
