// Names that might be too long are demangled by a separate process, whose failure has no other effect.
#include "user/symbols/long_names.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace dynprof {
namespace {

// In the place of our own program.
std::string script(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

TEST(LongNames, AreAskedOnce) {
  const std::string log = testing::TempDir() + "/asked";
  std::filesystem::remove(log);
  LongNames names(script("answers", "echo \"$1\" >>" + log + "; printf '<%s>' \"$(cat <&3)\""));
  EXPECT_EQ(names("_Z1f"), "<_Z1f>");
  EXPECT_EQ(names("_Z1f"), "<_Z1f>");
  EXPECT_EQ(names("_Z1g"), "<_Z1g>");
  std::ifstream asked(log);
  const std::string text(std::istreambuf_iterator<char>(asked), {});
  EXPECT_EQ(text, "long-name\nlong-name\n");
}

TEST(LongNames, AreNoNamesWhereTheProcessFails) {
  EXPECT_EQ(LongNames("/nowhere/at/all")("_Z1f"), "");
  EXPECT_EQ(LongNames(script("crashes", "printf f; kill -SEGV $$"))("_Z1f"), "");
  EXPECT_EQ(LongNames(script("talks", "exec yes"))("_Z1f"), "");
}

TEST(LongNames, AreGivenUpAfterSomeFailures) {
  const std::string log = testing::TempDir() + "/failed";
  std::filesystem::remove(log);
  LongNames names(script("fails", "echo x >>" + log + "; exit 1"));
  for (int i = 0; i < 2 * LongNames::kMostFailures; ++i)
    EXPECT_EQ(names("_Z" + std::to_string(i)), "");
  EXPECT_EQ(std::filesystem::file_size(log), 2u * LongNames::kMostFailures);
}

}  // namespace
}  // namespace dynprof
