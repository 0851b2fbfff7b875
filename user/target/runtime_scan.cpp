#include "user/target/runtime_scan.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "user/target/interpreter_walk.h"

namespace dynprof {
namespace {

constexpr std::size_t kChunk = 256 * 1024;
constexpr std::uint64_t kMaxScan = 256ULL << 20;
constexpr std::size_t kOverlap = 64;  // what a test at one word looks at after it

// Calls `test` at each 8-byte word with what follows it, until it says yes.
RuntimeScan scan(RemoteMemory& memory, std::span<const AddressRange> data,
                 const std::function<bool(std::uint64_t, std::span<const std::byte>)>& test) {
  std::vector<std::byte> buffer(kChunk);
  std::uint64_t scanned = 0;
  RuntimeScan result;
  for (const AddressRange& range : data) {
    for (std::uint64_t at = range.begin; at + 8 <= range.end && scanned < kMaxScan;) {
      std::size_t size = static_cast<std::size_t>(std::min<std::uint64_t>(kChunk, range.end - at));
      RemoteRange piece{at, std::span(buffer).first(size)};
      memory.read_many(std::span(&piece, 1));
      std::span<const std::byte> bytes = piece.into.first(piece.done);
      for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
        if (!test(at + i, bytes.subspan(i))) continue;
        result.place = at + i;
        return result;
      }
      if (piece.done <= kOverlap && piece.done < size) {
        at = (at / 4096 + 1) * 4096;  // an unreadable page
        scanned += 4096;
        result.complete = false;
      } else if (at + piece.done >= range.end) {
        break;
      } else {
        at += piece.done - kOverlap;
        scanned += piece.done;
      }
    }
  }
  return result;
}

}  // namespace

RuntimeScan scan_for_cookie(RemoteMemory& memory, std::span<const AddressRange> data) {
  return scan(memory, data, [&](std::uint64_t address, std::span<const std::byte> bytes) {
    if (std::memcmp(bytes.data(), kDebugCookie.data(), kDebugCookie.size()) != 0) return false;
    std::vector<std::byte> head(kDebugOffsetsBytes);
    return memory.read(address, head) && parse_debug_offsets(head).has_value();
  });
}

std::optional<std::uint64_t> scan_for_interpreter(RemoteMemory& memory,
                                                  std::span<const AddressRange> data,
                                                  const PythonLayout& layout) {
  // struct pyinterpreters in all of 3.10-3.13: mutex, head, main, next_id. `head` is what we look
  // for: newest interpreter, main one, number of interpreters made so far.
  RemoteObjects objects(memory, layout);
  const auto place =
      scan(memory, data, [&](std::uint64_t address, std::span<const std::byte> bytes) {
        if (bytes.size() < 24) return false;
        auto head = load<std::uint64_t>(bytes, 0);
        auto main = load<std::uint64_t>(bytes, 8);
        auto next_id = load<std::uint64_t>(bytes, 16);
        if (!plausible_pointer(head) || !plausible_pointer(main)) return false;
        if (next_id == 0 || next_id > 1'000'000'000) return false;
        InterpreterWalk walk =
            walk_interpreters(objects, address - layout.runtime_interpreters_head);
        if (!walk.problem.empty() || !walk.main() || walk.main()->address != main) return false;
        // Some thread of it has to be a thread.
        return std::any_of(
            walk.threads.begin(), walk.threads.end(),
            [&](const RemoteThread& thread) { return is_thread_pointer(memory, thread.pthread); });
      }).place;
  if (!place) return std::nullopt;
  return *place - layout.runtime_interpreters_head;
}

}  // namespace dynprof
