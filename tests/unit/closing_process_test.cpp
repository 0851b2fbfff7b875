// Descriptors of a program that was killed are closed by another process.
#include "user/kernel/closing_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "user/preflight/capabilities.h"

namespace dynprof {
namespace {

std::string text_of(pid_t pid, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool exists(pid_t pid) { return ::kill(pid, 0) == 0 || errno != ESRCH; }

// Whether all who can write into this pipe are gone, or are within so many milliseconds.
bool ends_within(int pipe, int milliseconds) {
  pollfd end = {pipe, POLLIN, 0};
  return ::poll(&end, 1, milliseconds) == 1 && (end.revents & POLLHUP) != 0;
}

struct Pipe {
  UniqueFd read, write;
  static Pipe make() {
    std::array<int, 2> ends = {-1, -1};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
  }
};

TEST(ClosingProcess, ClosesTheDescriptorsOfAProgramThatWasKilled) {
  Pipe held = Pipe::make(), told = Pipe::make();
  const pid_t program = ::fork();
  if (program == 0) {
    held.read.reset();
    auto closing = ClosingProcess::start();
    const pid_t pid = closing ? (*closing)->pid() : 0;
    (void)!::write(told.write.get(), &pid, sizeof pid);
    for (;;) ::pause();
  }
  held.write.reset();
  pid_t closing = 0;
  ASSERT_EQ(::read(told.read.get(), &closing, sizeof closing), ssize_t{sizeof closing});
  ASSERT_NE(closing, 0);
  ASSERT_EQ(::kill(closing, SIGSTOP), 0);

  ::kill(program, SIGKILL);
  ::waitpid(program, nullptr, 0);

  EXPECT_FALSE(ends_within(held.read.get(), 100)) << "the killed program closed it";
  ASSERT_EQ(::kill(closing, SIGCONT), 0);
  EXPECT_TRUE(ends_within(held.read.get(), 10'000));
}

TEST(ClosingProcess, ClosesDescriptorsOnRequest) {
  auto closing = ClosingProcess::start();
  ASSERT_TRUE(closing) << closing.error().what;
  std::vector<Pipe> pipes;
  std::vector<UniqueFd> writers;
  for (int i = 0; i < 100; i++) {
    pipes.push_back(Pipe::make());
    writers.push_back(std::move(pipes.back().write));
  }
  const Pipe open = Pipe::make();

  (*closing)->close(std::move(writers));

  EXPECT_TRUE((*closing)->wait());
  for (const Pipe& pipe : pipes) EXPECT_TRUE(ends_within(pipe.read.get(), 0));
  EXPECT_FALSE(ends_within(open.read.get(), 0));
}

TEST(ClosingProcess, FinishesRequestsWhenTheProgramIsKilled) {
  Pipe held = Pipe::make(), told = Pipe::make();
  const pid_t program = ::fork();
  if (program == 0) {
    held.read.reset();
    auto closing = ClosingProcess::start();
    if (!closing) ::_exit(1);
    ::kill((*closing)->pid(), SIGSTOP);
    std::vector<UniqueFd> writers;
    writers.push_back(std::move(held.write));
    (*closing)->close(std::move(writers));
    const pid_t pid = (*closing)->pid();
    (void)!::write(told.write.get(), &pid, sizeof pid);
    for (;;) ::pause();
  }
  held.write.reset();
  pid_t closing = 0;
  ASSERT_EQ(::read(told.read.get(), &closing, sizeof closing), ssize_t{sizeof closing});

  ::kill(program, SIGKILL);
  ::waitpid(program, nullptr, 0);

  EXPECT_FALSE(ends_within(held.read.get(), 100));
  ASSERT_EQ(::kill(closing, SIGCONT), 0);
  EXPECT_TRUE(ends_within(held.read.get(), 10'000));
}

TEST(ClosingProcess, ItsDeathIsNoticed) {
  auto closing = ClosingProcess::start();
  ASSERT_TRUE(closing) << closing.error().what;
  EXPECT_TRUE((*closing)->wait());

  ASSERT_EQ(::kill((*closing)->pid(), SIGKILL), 0);

  EXPECT_FALSE((*closing)->wait());
  EXPECT_FALSE((*closing)->wait());
}

TEST(ClosingProcess, LeavesOtherDescriptorsOpenWhenItIsEnded) {
  const Pipe pipe = Pipe::make();
  pid_t pid = 0;
  {
    auto closing = ClosingProcess::start();
    ASSERT_TRUE(closing) << closing.error().what;
    pid = (*closing)->pid();
    EXPECT_TRUE(exists(pid));
  }
  EXPECT_FALSE(exists(pid));
  EXPECT_EQ(::write(pipe.write.get(), "x", 1), 1);
}

TEST(ClosingProcess, IsNotKilledWithTheProgramsGroupOrName) {
  auto closing = ClosingProcess::start();
  ASSERT_TRUE(closing) << closing.error().what;
  const pid_t pid = (*closing)->pid();
  for (int tries = 0; tries < 1000 && text_of(pid, "comm") != "fd-closer\n"; tries++)
    ::usleep(10'000);

  EXPECT_EQ(text_of(pid, "comm"), "fd-closer\n");
  EXPECT_NE(::getpgid(pid), ::getpgid(0));
  const std::string command = text_of(pid, "cmdline");
  EXPECT_EQ(command.substr(0, command.find('\0')), "fd-closer");
}

TEST(ClosingProcess, HasNoCapabilities) {
  auto closing = ClosingProcess::start();
  ASSERT_TRUE(closing) << closing.error().what;
  const auto is_ready = [&] {
    return text_of((*closing)->pid(), "status").find("NoNewPrivs:\t1") != std::string::npos &&
           effective_capabilities(text_of((*closing)->pid(), "status")) == 0;
  };
  for (int tries = 0; tries < 1000 && !is_ready(); tries++) ::usleep(10'000);

  EXPECT_TRUE(is_ready());
}

}  // namespace
}  // namespace dynprof
