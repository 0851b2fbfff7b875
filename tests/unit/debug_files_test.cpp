// Separate debug files: found by build-id or link, never outside the root.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/unit/unwind_fake_elf.h"

namespace dynprof {
namespace {

using fake_elf::Bytes;
using fake_elf::frame_of;
using fake_elf::kCodeAddress;
using fake_elf::make;
using fake_elf::offset_at;
using fake_elf::table_of;

class DebugFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/unwind_root_XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    root_ = path;
    root_fd_.reset(::open(path, O_PATH | O_DIRECTORY));
    fake_elf::Frames debug(0, false);
    debug.cie({"", fake_elf::usual_cie_program(), 3, 0});
    debug.fde({kCodeAddress + 0x100, 0x10, frame_of(48), 0});
    debug_.sections.push_back({".debug_frame", 0, debug.out});
    main_ = fake_elf::file_of({{kCodeAddress, 0x10, frame_of(16), 0}});
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const Bytes& content) {
    std::filesystem::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
    std::ofstream(root_ + path, std::ios::binary)
        .write(reinterpret_cast<const char*>(content.data()),
               static_cast<std::streamsize>(content.size()));
  }
  bool found(const std::string& path = "/opt/lib/x.so") {
    UnwindOptions options;
    options.debug_files = {root_fd_.get(), path};
    const auto table = table_of(make(main_), options);
    return table && offset_at(*table, kCodeAddress + 0x100) == 48;
  }
  void link(const std::string& name, std::uint32_t crc) {
    Bytes content(name.begin(), name.end());
    content.resize((name.size() + 4) / 4 * 4);
    fake_elf::put_value(content, crc);
    main_.sections.push_back({".gnu_debuglink", 0, content});
  }

  std::string root_;
  UniqueFd root_fd_;
  fake_elf::File main_;
  fake_elf::File debug_;
};

TEST_F(DebugFiles, ByBuildId) {
  main_.build_id = debug_.build_id = Bytes(20, 0xab);
  std::string name = "/usr/lib/debug/.build-id/ab/";
  for (int i = 0; i < 19; ++i) name += "ab";
  name += ".debug";
  EXPECT_FALSE(found());
  write(name, make(debug_));
  EXPECT_TRUE(found());
  debug_.build_id = Bytes(20, 0xac);
  write(name, make(debug_));
  EXPECT_FALSE(found()) << "another file's";
}

TEST_F(DebugFiles, ByLinkAndChecksum) {
  const Bytes debug = make(debug_);
  const auto crc = static_cast<std::uint32_t>(::crc32_z(0, debug.data(), debug.size()));
  link("x.debug", crc);
  for (const char* place :
       {"/opt/lib/x.debug", "/opt/lib/.debug/x.debug", "/usr/lib/debug/opt/lib/x.debug"}) {
    EXPECT_FALSE(found());
    write(place, debug);
    EXPECT_TRUE(found()) << place;
    std::filesystem::remove(root_ + place);
  }
  write("/opt/lib/x.debug", debug);
  EXPECT_FALSE(found("opt/lib/x.so")) << "not an absolute path";
  main_.sections.pop_back();
  link("x.debug", crc + 1);
  EXPECT_FALSE(found()) << "wrong checksum";
}

TEST_F(DebugFiles, LinksNeverLeaveTheRoot) {
  const Bytes debug = make(debug_);
  const auto crc = static_cast<std::uint32_t>(::crc32_z(0, debug.data(), debug.size()));
  // Outside of the root, where "/opt/lib/x.debug" points if it is not looked up inside.
  const std::string outside = root_ + "_outside.debug";
  std::ofstream(outside, std::ios::binary)
      .write(reinterpret_cast<const char*>(debug.data()),
             static_cast<std::streamsize>(debug.size()));
  std::filesystem::create_directories(root_ + "/opt/lib");
  std::filesystem::create_symlink(outside, root_ + "/opt/lib/x.debug");
  link("x.debug", crc);
  EXPECT_FALSE(found());
  main_.sections.pop_back();
  link("../../" + outside.substr(1), crc);
  EXPECT_FALSE(found());
  ::unlink(outside.c_str());
}

}  // namespace
}  // namespace dynprof
