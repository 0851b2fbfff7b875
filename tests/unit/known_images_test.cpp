#include "user/target/known_images.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "symbolizer/base/unique_fd.h"
#include "user/target/process.h"
#include "user/target/python_image.h"

namespace dynprof {
namespace {

UniqueFd open_file(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

TEST(KnownImages, AFileIsSearchedOnce) {
  const std::string exe = read_exe(::getpid());
  const auto mappings = read_mappings(::getpid());
  ASSERT_TRUE(mappings);
  KnownImages known;
  const ImageSearch first = find_python_images(::getpid(), *mappings, exe, known);
  for (const PythonImage& image : first.images) EXPECT_EQ(image.runtime, 0u) << image.path;
  const auto key = KnownImages::key_of(open_file(exe).get(), false);
  ASSERT_TRUE(key);
  KnownImage* image = known.find(*key);
  ASSERT_NE(image, nullptr);
  EXPECT_FALSE(image->segments.empty());

  // Something that the file does not hold: it is found only if the file is not searched again.
  image->symbols[0] = 0x1234;
  image->no_debug_offsets = true;
  const ImageSearch again = find_python_images(::getpid(), *mappings, exe, known);
  ASSERT_EQ(again.images.size(), 1u);
  EXPECT_EQ(again.images[0].path, exe);
  EXPECT_EQ(again.images[0].runtime & 0xfff, 0x234u);
  EXPECT_TRUE(again.images[0].no_debug_offsets);
}

TEST(KnownImages, AFileThatChangedIsAnother) {
  const auto directory =
      std::filesystem::temp_directory_path() / ("known_images_test." + std::to_string(::getpid()));
  std::filesystem::create_directory(directory);
  const std::string path = directory / "file", other = directory / "other";
  std::ofstream(path) << "before";
  const auto before = KnownImages::key_of(open_file(path).get(), false);
  ASSERT_TRUE(before);
  EXPECT_EQ(before, KnownImages::key_of(open_file(path).get(), false));
  EXPECT_NE(before, KnownImages::key_of(open_file(path).get(), true));

  std::ofstream(path, std::ios::app) << ", and after";
  EXPECT_NE(before, KnownImages::key_of(open_file(path).get(), false));
  std::ofstream(other) << "before";
  std::filesystem::rename(other, path);
  EXPECT_NE(before, KnownImages::key_of(open_file(path).get(), false));
  EXPECT_FALSE(KnownImages::key_of(-1, false));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace dynprof
