// The process that reads DWARF: what it is asked and answers, and that it can neither hang nor harm
// us.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "symbolizer/base/unique_fd.h"
#include "symbolizer/recording/model.h"
#include "symbolizer/symbols/demangle.h"
#include "user/symbols/confined_process.h"
#include "user/symbols/place_wire.h"

namespace dynprof {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

TEST(PlaceWire, AddressesThereAndBack) {
  const std::vector<std::uint64_t> addresses{0, 0, 5, 0x401000, UINT64_MAX - 1, UINT64_MAX};
  const auto bytes = encode_wanted(addresses);
  EXPECT_EQ(decode_wanted(bytes), addresses);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode_wanted(std::span(bytes).first(size))) << size;
  ByteWriter wraps;
  for (std::uint64_t value : {std::uint64_t{2}, UINT64_MAX, std::uint64_t{1}}) wraps.varint(value);
  EXPECT_FALSE(decode_wanted(wraps.view()));
  ByteWriter many;
  many.varint(kMaxPlaceAddresses + 1);
  EXPECT_FALSE(decode_wanted(many.view()));
}

std::vector<std::uint8_t> answer(const std::vector<std::pair<std::size_t, PlaceChain>>& chains) {
  ByteWriter out;
  for (const auto& [index, chain] : chains) encode_places(index, chain, out);
  encode_end(out);
  return {out.view().begin(), out.view().end()};
}

TEST(PlaceWire, AnswersThereAndBack) {
  const std::vector<std::pair<std::size_t, PlaceChain>> chains{
      {2, {{"inner", "/src/a.cpp", 7, 5}, {"outer()", "/src/b.cpp", 0, 0}}},
      {0, PlaceChain(kMaxInlined + 1, NamedPlace{"f", "", INT32_MAX, 1})}};
  const auto bytes = answer(chains);
  const PlaceAnswers back = decode_places(bytes, 3);
  EXPECT_TRUE(back.ended);
  EXPECT_EQ(back.found, chains);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const PlaceAnswers cut = decode_places(std::span(bytes).first(size), 3);
    EXPECT_FALSE(cut.ended) << size;
    ASSERT_LE(cut.found.size(), 2u);
    for (std::size_t i = 0; i < cut.found.size(); ++i) EXPECT_EQ(cut.found[i], chains[i]);
  }
}

TEST(PlaceWire, MalformedAnswersAreRejected) {
  const PlaceChain good{{"f", "a.cpp", 1, 1}};
  EXPECT_EQ(decode_places(answer({{1, good}, {1, good}}), 3).found.size(), 1u) << "given twice";
  EXPECT_EQ(decode_places(answer({{3, good}}), 3).found.size(), 0u) << "not asked";
  EXPECT_EQ(decode_places(answer({{0, {}}}), 3).found.size(), 0u);
  EXPECT_EQ(decode_places(answer({{0, PlaceChain(kMaxInlined + 2)}}), 3).found.size(), 0u);
  const NamedPlace wrong[] = {{std::string(kMaxSymbolBytes + 1, 'f'), "", 1, 1},
                              {"", std::string(kMaxPlaceFileBytes + 1, 'f'), 1, 1},
                              {"", "", 1U << 31, 1},
                              {"", "", 1, 1U << 31}};
  for (const NamedPlace& place : wrong) {
    const PlaceAnswers answers = decode_places(answer({{0, good}, {1, {place}}, {2, good}}), 3);
    EXPECT_EQ(answers.found.size(), 1u) << "what came before holds";
    EXPECT_FALSE(answers.ended);
  }
  auto more = answer({{0, good}});
  more.push_back(0);
  EXPECT_FALSE(decode_places(more, 3).ended) << "something behind the end";
}

ConfinedRun shell(const std::string& script, std::string_view request = {},
                  ConfinedLimits limits = {}) {
  const UniqueFd input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return run_confined("/bin/sh", {"sh", "-c", script}, input.get(),
                      {reinterpret_cast<const std::uint8_t*>(request.data()), request.size()},
                      limits);
}

std::string text(const ConfinedRun& run) { return {run.output.begin(), run.output.end()}; }

TEST(ConfinedProcess, GetsTheRequestAndNothingElse) {
  const UniqueFd open_here(::open("/dev/null", O_RDONLY));  // not even close-on-exec
  const ConfinedRun run = shell("cat <&3; echo; ls /proc/$$/fd", "ask");
  EXPECT_EQ(run.problem, "");
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(text(run), "ask\n0\n1\n2\n3\n");
}

TEST(ConfinedProcess, EveryOutcomeIsReported) {
  ConfinedRun run = shell("echo before; exit 7");
  EXPECT_EQ(run.status, 7);
  EXPECT_EQ(text(run), "before\n");
  EXPECT_EQ(run.problem, "");
  run = shell("echo before; kill -SEGV $$");
  EXPECT_EQ(run.status, -1);
  EXPECT_EQ(text(run), "before\n") << "what it wrote can be used";
  EXPECT_EQ(run.problem, "was ended by signal 11");
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  run = run_confined("/nowhere/at/all", {"x"}, null.get(), {}, {});
  EXPECT_THAT(run.problem, HasSubstr("could not be started"));
}

TEST(ConfinedProcess, IsEndedAfterItsTime) {
  ConfinedLimits limits;
  limits.wall = 300ms;
  EXPECT_EQ(shell("echo before; exec sleep 1000", "", limits).problem, "took too long");
  // It closed its output and stays.
  EXPECT_EQ(shell("exec sleep 1000 >&-", "", limits).problem, "took too long");
  limits = {};
  limits.output_bytes = 100'000;
  const ConfinedRun loud = shell("exec yes", "", limits);
  EXPECT_EQ(loud.problem, "wrote too much");
  EXPECT_LE(loud.output.size(), limits.output_bytes);
}

// What confine_self leaves of a process' rights, one letter each that it still has.
std::string rights_left() {
  int ends[2];
  DYNPROF_CHECK(::pipe(ends) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::string left = confine_self() ? "" : "!";
    if (::open("/dev/null", O_RDONLY) >= 0) left += 'o';
    if (::socket(AF_INET, SOCK_STREAM, 0) >= 0) left += 's';
    if (::geteuid() == 0 || ::getuid() == 0) left += 'r';
    if (::setuid(0) == 0 && ::getuid() == 0) left += 'u';
    if (::access("/etc/shadow", R_OK) == 0) left += 'f';
    (void)!::write(ends[1], left.data(), left.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  char buffer[16];
  const ssize_t got = ::read(ends[0], buffer, sizeof buffer);
  ::close(ends[0]);
  ::waitpid(pid, nullptr, 0);
  return {buffer, static_cast<std::size_t>(got)};
}

TEST(ConfinedProcess, HasNoRights) { EXPECT_EQ(rights_left(), ""); }

}  // namespace
}  // namespace dynprof
