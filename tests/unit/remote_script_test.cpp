// The debugger support of _Py_DebugOffsets, which may be forged, and the script that loads the library.
#include "user/inject/remote_script.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "user/target/python_layouts.h"

namespace dynprof {
namespace {

// Numbers of fields and their values in 3.14.10.
constexpr std::size_t kInterpreterSize = 6, kThreadsMain = 10, kThreadSize = 22, kSupport = 89;

class Offsets {
 public:
  Offsets() {
    std::memcpy(fields_.data(), kDebugCookie.data(), kDebugCookie.size());
    set(1, 0x030e0af0);
    set(kInterpreterSize, 225864);
    set(kThreadsMain, 7360);
    set(kThreadSize, 832);
    const std::array<std::uint64_t, 6> support = {24, 304, 8076, 0, 4, 512};
    for (std::size_t i = 0; i < support.size(); ++i) set(kSupport + i, support[i]);
  }
  Offsets& set(std::size_t field, std::uint64_t value) {
    fields_[field] = value;
    return *this;
  }
  Result<ScriptPlaces> parse() const {
    return parse_script_places(std::as_bytes(std::span(fields_)));
  }

 private:
  std::array<std::uint64_t, kDebugOffsetsBytes / 8> fields_{};
};

TEST(RemoteScript, FindsThePlacesOf314) {
  const auto places = Offsets().parse();
  ASSERT_TRUE(places) << places.error().what;
  EXPECT_EQ(places->main_thread, 7360U);
  EXPECT_EQ(places->enabled, 8076U);
  EXPECT_EQ(places->eval_breaker, 24U);
  EXPECT_EQ(places->pending, 304U);
  EXPECT_EQ(places->path, 308U);
  EXPECT_EQ(places->path_bytes, 512U);
}

TEST(RemoteScript, RefusesImplausiblePlaces) {
  EXPECT_FALSE(Offsets().set(0, 0).parse());
  EXPECT_FALSE(Offsets().set(1, 0x030d00f0).parse());          // 3.13 has none
  EXPECT_FALSE(Offsets().set(1, 0x031000f0).parse());          // not known
  EXPECT_FALSE(Offsets().set(kSupport, 830).parse());          // beyond the thread state
  EXPECT_FALSE(Offsets().set(kSupport + 1, 400).parse());      // the path is beyond it
  EXPECT_FALSE(Offsets().set(kSupport + 1, ~0ULL).parse());    // overflows
  EXPECT_FALSE(Offsets().set(kSupport + 2, 225862).parse());   // beyond the interpreter
  EXPECT_FALSE(Offsets().set(kSupport + 5, 1 << 20).parse());  // a path of a megabyte
  EXPECT_FALSE(Offsets().set(kSupport + 5, 0).parse());
  EXPECT_FALSE(Offsets().set(kThreadsMain, 225860).parse());
  EXPECT_FALSE(Offsets().set(kThreadSize, ~0ULL).parse());
  EXPECT_FALSE(parse_script_places({}));
}

// A path is data in the script, whatever it contains.
TEST(RemoteScript, APathIsNoCode) {
  const std::string script = loading_script("/a\"); import evil #\n.so", "/tmp/r", 42);
  EXPECT_EQ(script.find("evil"), std::string::npos);
  EXPECT_NE(script.find("if os.getpid() != 42:"), std::string::npos);
  EXPECT_NE(script.find("\\x2f\\x61\\x22"), std::string::npos);
}

}  // namespace
}  // namespace dynprof
