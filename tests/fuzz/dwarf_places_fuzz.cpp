// What a process that reads DWARF is asked and what it answers, as any bytes; and any bytes as a file with
// DWARF. libdw is no parser for hostile files, which is why the recorder has it run in a process of its
// own: so it does here, where its crash is no finding, but a process that does not end within its limits,
// and an error that a sanitizer saw in it, are. The first byte chooses.
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "symbolizer/recording/model.h"
#include "symbolizer/symbols/demangle.h"
#include "user/symbols/dwarf_places.h"
#include "user/symbols/place_wire.h"

using namespace dynprof;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

constexpr std::size_t kAddresses = 64;
constexpr rlim_t kCpuSeconds = 5;
constexpr int kDone = 42;

void check_answers(std::span<const std::uint8_t> bytes) {
  const PlaceAnswers answers = decode_places(bytes, kAddresses);
  std::vector<bool> seen(kAddresses);
  for (const auto& [index, chain] : answers.found) {
    DYNPROF_CHECK(index < kAddresses && !seen[index]);
    seen[index] = true;
    DYNPROF_CHECK(!chain.empty());
    for (const NamedPlace& place : chain) {
      DYNPROF_CHECK(place.function.size() <= kMaxSymbolBytes);
      DYNPROF_CHECK(place.file.size() <= kMaxPlaceFileBytes);
    }
  }
  // What was taken is the same after being written and read again.
  ByteWriter out;
  for (const auto& [index, chain] : answers.found) encode_places(index, chain, out);
  encode_end(out);
  const PlaceAnswers again = decode_places(out.view(), kAddresses);
  DYNPROF_CHECK(again.ended && again.found == answers.found);
}

void check_request(std::span<const std::uint8_t> bytes) {
  const auto wanted = decode_wanted(bytes);
  if (!wanted) return;
  DYNPROF_CHECK(wanted->size() <= kMaxPlaceAddresses);
  DYNPROF_CHECK(decode_wanted(encode_wanted(*wanted)) == wanted);
}

[[noreturn]] void read_file(int file, int answers) {
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGXCPU}) ::signal(number, SIG_DFL);
  const rlimit cpu{kCpuSeconds, kCpuSeconds + 1}, none{0, 0};
  ::setrlimit(RLIMIT_CPU, &cpu);
  ::setrlimit(RLIMIT_CORE, &none);
  ::close(STDERR_FILENO);
  std::vector<std::uint64_t> addresses;
  for (std::size_t i = 0; i < kAddresses; ++i) addresses.push_back(i * i * 8);
  ByteWriter out;
  const auto read = read_dwarf_places(
      file, addresses,
      [&](std::size_t index, const PlaceChain& one) { encode_places(index, one, out); });
  if (read) encode_end(out);
  (void)!::write(answers, out.view().data(), out.view().size());
  ::_exit(kDone);
}

void check_file(std::span<const std::uint8_t> bytes) {
  const UniqueFd file(::memfd_create("dwarf", MFD_CLOEXEC));
  const UniqueFd answers(::memfd_create("answers", MFD_CLOEXEC));
  if (!file || !answers || ::write(file.get(), bytes.data(), bytes.size()) < 0) return;
  const pid_t pid = ::fork();
  if (pid < 0) return;
  if (pid == 0) read_file(file.get(), answers.get());
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  DYNPROF_CHECK(!WIFSIGNALED(status) || WTERMSIG(status) != SIGXCPU);  // it took too long
  DYNPROF_CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) == kDone);  // a sanitizer's report
  std::vector<std::uint8_t> got(1 << 20);
  const ssize_t size = ::pread(answers.get(), got.data(), got.size(), 0);
  if (size > 0) check_answers(std::span(got).first(static_cast<std::size_t>(size)));
}

std::vector<std::uint8_t> example(bool request) {
  std::vector<std::uint8_t> bytes{static_cast<std::uint8_t>(request)};
  ByteWriter out;
  for (std::size_t i = 0; i < 5 && !request; ++i)
    encode_places(i * 3, {{"inlined", "a.h", 7, 5}, {"ns::f(int)", "/src/a.cpp", 12, 10}}, out);
  if (!request) encode_end(out);
  const std::vector<std::uint64_t> addresses{0, 0x1000, 0x1001, 1ULL << 40};
  const std::vector<std::uint8_t> wanted = encode_wanted(addresses);
  const auto body = request ? std::span<const std::uint8_t>(wanted) : out.view();
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed) {
  static const std::vector<std::uint8_t> all[] = {example(false), example(true)};
  if (size < 4 || seed % 16 == 0) {
    const auto& chosen = all[seed / 16 % 2];
    if (max_size >= chosen.size()) {
      std::memcpy(data, chosen.data(), chosen.size());
      size = chosen.size();
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::span(data, size).subspan(1);
  switch (data[0] % 3) {
    case 0:
      check_answers(bytes);
      break;
    case 1:
      check_request(bytes);
      break;
    default:
      check_file(bytes);
  }
  return 0;
}
