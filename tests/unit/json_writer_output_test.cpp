#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <zlib.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "symbolizer/base/gzip.h"
#include "symbolizer/base/json_writer.h"

namespace dynprof {
namespace {

namespace fs = std::filesystem;

class OutputTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "dynprof-output-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { fs::remove_all(folder); }
  static std::string slurp(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  static std::string gunzip(const fs::path& path) {
    gzFile file = gzopen(path.c_str(), "rb");
    std::string text;
    char block[4096];
    for (int count; (count = gzread(file, block, sizeof block)) > 0;) {
      text.append(block, static_cast<std::size_t>(count));
    }
    gzclose(file);
    return text;
  }
  fs::path folder;
};

class Text final : public ByteSink {
 public:
  void write(std::string_view bytes) override { text += bytes; }
  bool failed() const override { return false; }
  Result<void> finish() override { return {}; }
  std::string text;
};

TEST(JsonWriter, CommasAndTypes) {
  Text sink;
  JsonWriter json(sink);
  json.begin_object();
  json.field("a", 1);
  json.field("b", "two");
  json.key("c");
  json.begin_array();
  json.line_break();
  json.begin_object();
  json.end_object();
  json.line_break();
  json.begin_array();
  json.end_array();
  json.null();
  json.boolean(true);
  json.number(std::numeric_limits<std::int64_t>::min());
  json.number(std::numeric_limits<std::uint64_t>::max());
  json.end_array();
  json.field("d", false);
  json.end_object();
  ASSERT_TRUE(json.finish());
  EXPECT_EQ(sink.text,
            "{\"a\":1,\"b\":\"two\",\"c\":[\n{},\n[],null,true,-9223372036854775808,"
            "18446744073709551615],\"d\":false}\n");
  EXPECT_TRUE(nlohmann::json::accept(sink.text));
}

TEST(JsonWriter, AnyBytesMakeValidJson) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  all += "\xed\xb2\x80 \xe2\x80\xa8 \xf0\x9f\x92\xa9 \"quoted\\\"";
  Text sink;
  JsonWriter json(sink);
  json.begin_array();
  json.string(all);
  json.end_array();
  ASSERT_TRUE(json.finish());
  auto parsed = nlohmann::json::parse(sink.text);  // throws on bad UTF-8
  std::string back = parsed[0];
  EXPECT_NE(back.find(std::string("\0\1\2", 3)), std::string::npos);
  EXPECT_NE(back.find("\xf0\x9f\x92\xa9 \"quoted\\\""), std::string::npos);
}

TEST(JsonWriter, FixedPointTimes) {
  std::string text;
  append_microseconds(text, 0);
  text += ' ';
  append_microseconds(text, 1'234'567);
  text += ' ';
  append_microseconds(text, 1);
  text += ' ';
  append_microseconds(text, std::numeric_limits<std::uint64_t>::max());
  text += ' ';
  append_seconds(text, 10'101'010);
  EXPECT_EQ(text, "0.000 1234.567 0.001 18446744073709551.615 0.010101010");
}

TEST_F(OutputTest, LargeJsonArrivesWholeAndCompressed) {
  for (const char* name : {"a.json", "a.json.gz"}) {
    auto sink = create_output(folder / name);
    ASSERT_TRUE(sink);
    JsonWriter json(**sink);
    json.begin_array();
    for (int i = 0; i < 200'000; ++i) json.number(i);
    json.end_array();
    ASSERT_TRUE(json.finish());
    bool packed = std::string_view(name).ends_with(".gz");
    std::string text = packed ? gunzip(folder / name) : slurp(folder / name);
    auto parsed = nlohmann::json::parse(text);
    ASSERT_EQ(parsed.size(), 200'000u);
    EXPECT_EQ(parsed.back(), 199'999);
  }
  EXPECT_LT(fs::file_size(folder / "a.json.gz"), fs::file_size(folder / "a.json") / 2);
}

TEST_F(OutputTest, FilesArePrivateAndNeverReplaced) {
  auto first = OutputFile::create(folder / "x");
  ASSERT_TRUE(first);
  (*first)->write("kept");
  ASSERT_TRUE((*first)->finish());
  struct stat status {};
  ASSERT_EQ(stat((folder / "x").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);

  auto again = OutputFile::create(folder / "x");
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().errno_value, EEXIST);
  EXPECT_NE(again.error().what.find((folder / "x").string()), std::string::npos);
  EXPECT_FALSE(again.error().hint.empty());
  EXPECT_EQ(slurp(folder / "x"), "kept");
}

TEST_F(OutputTest, LinksAreNotFollowed) {
  fs::create_symlink(folder / "target", folder / "dangling");
  EXPECT_FALSE(OutputFile::create(folder / "dangling"));
  EXPECT_FALSE(fs::exists(folder / "target"));
}

TEST_F(OutputTest, ADirectoryDescriptorIsEnough) {
  UniqueFd directory(::open(folder.c_str(), O_DIRECTORY | O_CLOEXEC));
  auto file = OutputFile::create(directory.get(), "inside", "shown/inside");
  ASSERT_TRUE(file);
  (*file)->write("text");
  ASSERT_TRUE((*file)->finish());
  EXPECT_EQ(slurp(folder / "inside"), "text");
  auto again = OutputFile::create(directory.get(), "inside", "shown/inside");
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().what.find("shown/inside"), std::string::npos);
}

TEST_F(OutputTest, WhatIsNotFinishedIsTakenAway) {
  {
    auto file = OutputFile::create(folder / "half");
    ASSERT_TRUE(file);
    (*file)->write("half");
    EXPECT_TRUE(fs::exists(folder / "half"));
  }
  EXPECT_FALSE(fs::exists(folder / "half"));
}

TEST_F(OutputTest, OnlyTheFileMadeHereIsTakenAway) {
  {
    auto file = OutputFile::create(folder / "swapped");
    ASSERT_TRUE(file);
    fs::rename(folder / "swapped", folder / "elsewhere");
    std::ofstream(folder / "swapped") << "another's";
  }
  EXPECT_EQ(slurp(folder / "swapped"), "another's");
}

// A file size limit fails writes in the middle as a full disk does, after a part was taken.
class FullDisk {
 public:
  FullDisk() {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit{100'000, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

TEST_F(OutputTest, AFullDiskIsAnErrorAndLeavesNothing) {
  for (const char* name : {"full.json", "full.json.gz"}) {
    FullDisk full;
    auto sink = create_output(folder / name);
    ASSERT_TRUE(sink);
    JsonWriter json(**sink);
    json.begin_array();
    std::uint64_t noise = 1;
    for (int i = 0; i < 100'000; ++i) json.number(noise = noise * 6364136223846793005u + 1);
    EXPECT_TRUE(json.failed());
    json.end_array();
    auto finished = json.finish();
    ASSERT_FALSE(finished) << name;
    EXPECT_EQ(finished.error().errno_value, EFBIG);
    EXPECT_NE(finished.error().what.find(name), std::string::npos);
    EXPECT_FALSE(fs::exists(folder / name));
  }
}

TEST_F(OutputTest, DevFullIsAnErrorAndStays) {
  auto file = OutputFile::adopt(UniqueFd(::open("/dev/full", O_WRONLY | O_CLOEXEC)), "/dev/full");
  file->write("x");
  auto finished = file->finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().errno_value, ENOSPC);
  EXPECT_TRUE(fs::exists("/dev/full"));
}

}  // namespace
}  // namespace dynprof
