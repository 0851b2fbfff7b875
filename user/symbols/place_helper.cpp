#include "user/symbols/place_helper.h"

#include <unistd.h>

#include <cerrno>
#include <vector>

#include "symbolizer/symbols/demangle.h"
#include "user/symbols/confined_process.h"
#include "user/symbols/dwarf_places.h"
#include "user/symbols/place_wire.h"

namespace dynprof {
namespace {

constexpr int kRequestFd = 3;
constexpr int kBadRequest = 11;
constexpr std::size_t kMaxRequest = 10 * kMaxPlaceAddresses + 16;
constexpr std::size_t kFlushBytes = 1 << 16;

std::vector<std::uint8_t> read_request() {
  std::vector<std::uint8_t> bytes;
  std::uint8_t buffer[1 << 14];
  while (bytes.size() <= kMaxRequest) {
    const ssize_t got = ::read(kRequestFd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    bytes.insert(bytes.end(), buffer, buffer + got);
  }
  return bytes;
}

void write_out(ByteWriter& out) {
  std::span<const std::uint8_t> bytes = out.view();
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) ::_exit(kBadRequest);  // no reader
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
  out.clear();
}

}  // namespace

int run_place_helper() {
  if (!confine_self()) return kNotConfined;
  set_long_names(demangle_unbounded);
  const auto addresses = decode_wanted(read_request());
  if (!addresses) return kBadRequest;
  ByteWriter out;
  const auto read =
      read_dwarf_places(STDIN_FILENO, *addresses, [&](std::size_t index, const PlaceChain& chain) {
        encode_places(index, chain, out);
        if (out.size() >= kFlushBytes) write_out(out);
      });
  encode_end(out);
  write_out(out);
  return read ? 0 : kDwarfDamaged;
}

}  // namespace dynprof
