#include "symbolizer/recording/wait_codec.h"

#include <array>
#include <limits>

#include "symbolizer/base/byte_reader.h"

namespace dynprof {

std::string_view wait_kind_text(WaitKind kind) {
  static constexpr std::array<std::string_view, kWaitKinds> kTexts = {
      "none",  "other", "preempted",  "futex",    "pipe",   "socket", "poll",   "disk",
      "sleep", "child", "page fault", "terminal", "signal", "device", "memory", "process"};
  const auto index = static_cast<std::size_t>(kind);
  return index < kTexts.size() ? kTexts[index] : kTexts[1];
}

namespace recording {
namespace {

constexpr std::uint8_t kAllFlags = kWaitAtAttach | kWaitAtEnd | kWaitRootMissing | kWaitUnmerged;

}  // namespace

void encode(std::span<const Wait> waits, ByteWriter& out) {
  Wait last;
  for (const Wait& wait : waits) {
    out.u8(static_cast<std::uint8_t>(wait.kind));
    out.u8(wait.flags);
    out.difference(wait.begin_ns, last.begin_ns);
    out.varint(wait.length_ns);
    out.varint(wait.span_ns - wait.length_ns);
    out.varint(wait.runnable_ns);
    out.difference(wait.cpu_ns, last.cpu_ns);
    out.difference(wait.thread, last.thread);
    out.difference(wait.stack, last.stack);
    out.difference(wait.context, last.context);
    out.varint(wait.count);
    last = wait;
  }
}

bool decode(std::span<const std::uint8_t> raw, std::uint32_t count, std::vector<Wait>& out) {
  ByteReader in(raw);
  Wait last;
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    const std::uint8_t kind = in.u8();
    last.kind = static_cast<WaitKind>(kind);
    last.flags = in.u8();
    if (kind >= kWaitKinds || (last.flags & ~kAllFlags) != 0) in.fail();
    last.begin_ns = in.plus_difference(last.begin_ns);
    last.length_ns = in.varint();
    const std::uint64_t between = in.varint();
    last.runnable_ns = in.varint();
    // The end must be a time, and no part longer than the whole.
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
    if (between > kMost - last.length_ns || last.runnable_ns > last.length_ns) in.fail();
    last.span_ns = last.length_ns + between;
    if (last.begin_ns > kMost - last.span_ns) in.fail();
    last.cpu_ns = in.plus_difference(last.cpu_ns);
    last.thread = in.plus_difference32(last.thread);
    last.stack = in.plus_difference32(last.stack);
    last.context = in.plus_difference32(last.context);
    last.count = in.varint32();
    out.push_back(last);
  }
  return in.done();
}

}  // namespace recording
}  // namespace dynprof
