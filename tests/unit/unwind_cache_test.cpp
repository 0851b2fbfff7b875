// The cache on disk: what is believed, what is refused, what goes.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/unit/unwind_fake_elf.h"
#include "user/unwind_tables/table_cache.h"

namespace dynprof {
namespace {

namespace fs = std::filesystem;
using fake_elf::Bytes;
using fake_elf::kCodeAddress;

// A file whose table has over a hundred rows.
fake_elf::File some_file(std::uint8_t id, std::uint8_t frame = 16) {
  std::vector<fake_elf::Fde> fdes;
  for (std::uint64_t i = 0; i < 50; ++i) {
    fdes.push_back({kCodeAddress + 0x100 + 0x40 * i, 0x20, {0x0e, frame}, 0});
  }
  fake_elf::File file = fake_elf::file_of(fdes);
  file.build_id = Bytes(20, id);
  return file;
}

class UnwindCache : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/unwind_cache_XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    root_ = path;
    directory_ = root_ + "/cache";
    limits_.min_rows = 10;
  }
  void TearDown() override { fs::remove_all(root_); }

  std::unique_ptr<TableCache> open() {
    auto cache = TableCache::open(directory_, limits_);
    EXPECT_TRUE(cache) << cache.error().what;
    return cache ? *std::move(cache) : nullptr;
  }
  std::string refusal() {
    auto cache = TableCache::open(directory_, limits_);
    return cache ? "" : cache.error().what;
  }
  static Result<UnwindTable> get(TableCache& cache, const Bytes& image,
                                 std::string* problem = nullptr) {
    return load_or_build(ByteSource::of_bytes(image), {}, &cache, problem);
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_ + "/unwind")) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  static std::string name_of(const std::string& byte) {
    std::string name;
    for (int i = 0; i < 20; ++i) name += byte;
    return name + ".dpu";
  }
  std::string path_of(const std::string& byte) const {
    return directory_ + "/unwind/" + name_of(byte);
  }

  std::string root_;
  std::string directory_;
  TableCacheLimits limits_;
};

bool same_rows(const UnwindTable& a, const UnwindTable& b) {
  return std::equal(a.rows.begin(), a.rows.end(), b.rows.begin(), b.rows.end(),
                    [](const dp_unwind_row& x, const dp_unwind_row& y) {
                      return x.pc == y.pc && x.rule == y.rule;
                    });
}

TEST_F(UnwindCache, TheSecondTimeATableIsFound) {
  auto cache = open();
  const Bytes image = fake_elf::make(some_file(0xab));
  const auto built = get(*cache, image);
  ASSERT_TRUE(built);
  EXPECT_FALSE(built->from_cache);
  EXPECT_EQ(files(), std::vector<std::string>{name_of("ab")});
  const auto found = get(*cache, image);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->from_cache);
  EXPECT_TRUE(same_rows(*built, *found));
  EXPECT_EQ(found->base, built->base);
  EXPECT_EQ(found->build_id, built->build_id);
  EXPECT_EQ(found->stats.fdes, 50u);
  EXPECT_EQ(found->segments.size(), 1u);
  // Another process finds it as well.
  EXPECT_TRUE(get(*open(), image)->from_cache);
  struct stat status {};
  ASSERT_EQ(::stat(path_of("ab").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat(directory_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST_F(UnwindCache, SmallOrNamelessTablesAreNotStored) {
  limits_.min_rows = 1000;
  ASSERT_TRUE(get(*open(), fake_elf::make(some_file(0xab))));
  limits_.min_rows = 10;
  fake_elf::File nameless = some_file(0xab);
  nameless.build_id.clear();
  ASSERT_TRUE(get(*open(), fake_elf::make(nameless)));
  EXPECT_TRUE(files().empty());
}

TEST_F(UnwindCache, ABuildIdAloneProvesNothing) {
  auto cache = open();
  ASSERT_TRUE(get(*cache, fake_elf::make(some_file(0xab, 16))));
  const auto other = get(*cache, fake_elf::make(some_file(0xab, 24)));
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->from_cache);
  EXPECT_EQ(dp_unwind_offset(other->rule_at(kCodeAddress + 0x100)), 24);
  EXPECT_TRUE(get(*cache, fake_elf::make(some_file(0xab, 24)))->from_cache);
}

TEST_F(UnwindCache, EveryDamagedByteIsNoticed) {
  auto cache = open();
  const Bytes image = fake_elf::make(some_file(0xab));
  ASSERT_TRUE(get(*cache, image));
  std::ifstream in(path_of("ab"), std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  ASSERT_GT(good.size(), 100u);
  for (std::size_t at = 0; at <= good.size(); at += at < 160 ? 1 : 37) {
    std::string bad = good;
    if (at == good.size()) {
      bad.pop_back();
    } else {
      bad[at] = static_cast<char>(bad[at] ^ 1);
    }
    std::ofstream(path_of("ab"), std::ios::binary) << bad;
    const auto table = get(*cache, image);
    ASSERT_TRUE(table);
    EXPECT_FALSE(table->from_cache) << at;
    EXPECT_TRUE(get(*cache, image)->from_cache) << "it was built anew";
  }
}

TEST_F(UnwindCache, LinksInPlaceOfAFileAreNotFollowed) {
  auto cache = open();
  const Bytes image = fake_elf::make(some_file(0xab));
  ASSERT_TRUE(get(*cache, image));
  const std::string elsewhere = root_ + "/elsewhere";
  fs::rename(path_of("ab"), elsewhere);
  fs::create_symlink(elsewhere, path_of("ab"));
  EXPECT_FALSE(get(*cache, image)->from_cache);
  EXPECT_TRUE(fs::exists(elsewhere));
  EXPECT_FALSE(fs::is_symlink(path_of("ab"))) << "replaced by a file";
}

TEST_F(UnwindCache, DirectoriesOfOthersAreRefused) {
  fs::create_directories(directory_ + "/unwind");
  EXPECT_EQ(refusal(), "");
  ::chmod(directory_.c_str(), 0777);
  EXPECT_NE(refusal().find("may be written by others"), std::string::npos);
  ::chmod(directory_.c_str(), 0770);
  EXPECT_NE(refusal(), "");
  ::chmod(directory_.c_str(), 0755);
  EXPECT_EQ(refusal(), "");
  ::chmod((directory_ + "/unwind").c_str(), 0702);
  EXPECT_NE(refusal(), "");
  fs::remove_all(directory_);
  fs::create_directories(root_ + "/real");
  fs::create_directory_symlink(root_ + "/real", directory_);
  EXPECT_NE(refusal().find("a link?"), std::string::npos);
  fs::remove(directory_);
  std::ofstream(directory_.c_str()) << "a file";
  EXPECT_NE(refusal(), "");
  fs::remove(directory_);
  if (::geteuid() == 0) {
    fs::create_directories(directory_ + "/unwind");
    ASSERT_EQ(::chown(directory_.c_str(), 1234, 1234), 0);
    EXPECT_NE(refusal().find("another user"), std::string::npos);
  }
  directory_ = root_ + "/not/there";
  EXPECT_NE(refusal(), "");
}

TEST_F(UnwindCache, WhatCannotBeStoredIsBuilt) {
  auto cache = open();
  fs::remove_all(directory_);
  std::string problem;
  const auto table = get(*cache, fake_elf::make(some_file(0xab)), &problem);
  ASSERT_TRUE(table);
  EXPECT_FALSE(table->from_cache);
  EXPECT_NE(problem, "");
  EXPECT_EQ(problem.find('\n'), std::string::npos);
}

TEST_F(UnwindCache, TheLongestUnusedGoes) {
  limits_.max_files = 3;
  auto cache = open();
  const auto used = [&](const std::string& byte, int hours_ago) {
    fs::last_write_time(path_of(byte),
                        fs::file_time_type::clock::now() - std::chrono::hours(hours_ago));
  };
  for (std::uint8_t id : {0x01, 0x02, 0x03})
    ASSERT_TRUE(get(*cache, fake_elf::make(some_file(id))));
  used("01", 5);
  used("02", 6);
  used("03", 4);
  // To be found counts as use.
  EXPECT_TRUE(get(*cache, fake_elf::make(some_file(0x02)))->from_cache);
  ASSERT_TRUE(get(*cache, fake_elf::make(some_file(0x04))));
  EXPECT_EQ(files(), (std::vector<std::string>{name_of("02"), name_of("03"), name_of("04")}));
}

TEST_F(UnwindCache, BytesAreBoundedAndLeftOversGo) {
  auto cache = open();
  ASSERT_TRUE(get(*cache, fake_elf::make(some_file(0x01))));
  const auto size = fs::file_size(path_of("01"));
  limits_.max_bytes = 2 * size;
  cache = open();
  const std::string old = directory_ + "/unwind/.tmp-old";
  const std::string fresh = directory_ + "/unwind/.tmp-fresh";
  std::ofstream(old.c_str()) << "x";
  std::ofstream(fresh.c_str()) << "x";
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(2));
  fs::last_write_time(path_of("01"), fs::file_time_type::clock::now() - std::chrono::hours(2));
  ASSERT_TRUE(get(*cache, fake_elf::make(some_file(0x02))));
  ASSERT_TRUE(get(*cache, fake_elf::make(some_file(0x03))));
  EXPECT_EQ(files(), (std::vector<std::string>{".tmp-fresh", name_of("02"), name_of("03")}));
}

}  // namespace
}  // namespace dynprof
