#include "symbolizer/recording/life_codec.h"

#include "symbolizer/base/byte_reader.h"

namespace dynprof::recording {

void encode(std::span<const ProcessLife> lives, ByteWriter& out) {
  ProcessLife last;
  for (const ProcessLife& life : lives) {
    out.u8(static_cast<std::uint8_t>(life.kind));
    out.difference(life.time_ns, last.time_ns);
    out.signed_varint(std::int64_t{life.pid} - last.pid);
    out.signed_varint(std::int64_t{life.parent_pid} - last.parent_pid);
    out.signed_varint(std::int64_t{life.parent_tid} - last.parent_tid);
    out.difference(life.comm, last.comm);
    out.difference(life.exe, last.exe);
    out.difference(life.command_line, last.command_line);
    out.varint(life.command_bytes);
    out.varint(life.cpu_ns);
    out.signed_varint(life.exit_code);
    last = life;
  }
}

bool decode(std::span<const std::uint8_t> raw, std::uint32_t count, std::vector<ProcessLife>& out) {
  ByteReader in(raw);
  ProcessLife last;
  auto plus = [&in](std::int32_t base) {
    // Wraps as the writer's subtraction never does: only a damaged file has such a row.
    const auto sum = static_cast<std::uint64_t>(in.signed_varint()) +
                     static_cast<std::uint64_t>(std::int64_t{base});
    const auto value = static_cast<std::int64_t>(sum);
    if (value < INT32_MIN || value > INT32_MAX) in.fail();
    return static_cast<std::int32_t>(value);
  };
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    ProcessLife life;
    const std::uint8_t kind = in.u8();
    if (kind < static_cast<std::uint8_t>(LifeKind::kFork) ||
        kind > static_cast<std::uint8_t>(LifeKind::kLeft)) {
      in.fail();
      break;
    }
    life.kind = static_cast<LifeKind>(kind);
    life.time_ns = in.plus_difference(last.time_ns);
    life.pid = plus(last.pid);
    life.parent_pid = plus(last.parent_pid);
    life.parent_tid = plus(last.parent_tid);
    life.comm = in.plus_difference32(last.comm);
    life.exe = in.plus_difference32(last.exe);
    life.command_line = in.plus_difference32(last.command_line);
    life.command_bytes = in.varint32();
    life.cpu_ns = in.varint();
    life.exit_code = in.signed_varint32();
    out.push_back(life);
    last = life;
  }
  return in.done();
}

}  // namespace dynprof::recording
