// A folder for another process is removed when this program is killed.
#include "user/inject/folder_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include "user/inject/target_folder.h"

namespace dynprof {
namespace {

// A program that has such a folder, and its path; `awaited`: it waits for an answer.
struct Program {
  pid_t pid = -1;
  std::string folder;

  explicit Program(bool awaited) {
    std::array<int, 2> ends = {-1, -1};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    pid = ::fork();
    if (pid == 0) {
      auto made = TargetFolder::create(::getpid());
      if (!made || !made->put_text("one", "1") || !made->put_text("two", "2")) ::_exit(1);
      auto answer = awaited ? made->put_empty(kAnswerFile) : Result<UniqueFd>(UniqueFd());
      if (!answer) ::_exit(1);
      const std::string path = made->path_of("");
      (void)!::write(ends[1], path.data(), path.size());
      for (;;) ::pause();
    }
    ::close(ends[1]);
    std::array<char, 256> path;
    const ssize_t got = ::read(ends[0], path.data(), path.size());
    ::close(ends[0]);
    if (got > 0) folder.assign(path.data(), static_cast<std::size_t>(got));
  }
  void kill() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
};

bool disappears(const std::string& folder) {
  for (int tries = 0; tries < 1000 && std::filesystem::exists(folder); tries++) ::usleep(10'000);
  return !std::filesystem::exists(folder);
}

TEST(FolderGuard, RemovesTheFolderOfAProgramThatWasKilled) {
  Program program(false);
  ASSERT_FALSE(program.folder.empty());
  EXPECT_TRUE(std::filesystem::exists(program.folder + "two"));

  program.kill();

  EXPECT_TRUE(disappears(program.folder));
}

TEST(FolderGuard, AwaitsTheAnswer) {
  Program program(true);
  ASSERT_FALSE(program.folder.empty());

  program.kill();

  ::usleep(200'000);
  EXPECT_TRUE(std::filesystem::exists(program.folder + "one"));
  std::ofstream(program.folder + kAnswerFile) << "loaded";
  EXPECT_TRUE(disappears(program.folder));
}

TEST(FolderGuard, LeavesAFolderThatIsNotThereAlone) {
  const int tmp = ::open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_GE(tmp, 0);
  EXPECT_TRUE(FolderGuard::start(tmp, "dynprof-bpf-none"));
  ::close(tmp);
}

}  // namespace
}  // namespace dynprof
