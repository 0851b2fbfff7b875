// C++ names, among them such as stand for more text than there is memory.
#include "symbolizer/symbols/demangle.h"

#include <cxxabi.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

namespace dynprof {
namespace {

constexpr std::string_view kDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

// f(T<int, int>, T<that, that>, T<the last, the last> ...): each parameter is twice as long as the one
// before it.
std::string doubling(std::size_t levels) {
  std::string name = "_Z1f1TIiiE";
  for (std::size_t i = 0; i < levels; ++i) {
    const std::string number(1, kDigits[i]);
    name += "S_IS" + number + "_S" + number + "_E";
  }
  return name;
}

// f<int ...>(A<int> ..., B<int, the last> ...): each parameter is expanded for every argument.
std::string packs(std::size_t levels) {
  std::string name = "_Z1fIJ" + std::string(20, 'i') + "EEvDp1AIT_E";
  for (std::size_t i = 1; i < levels; ++i) name += std::string("Dp1BIT_S") + kDigits[i] + "_E";
  return name;
}

std::size_t length_of(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  EXPECT_EQ(status, 0) << mangled;
  return text ? std::string_view(text.get()).size() : 0;
}

TEST(Demangle, MakesNamesReadable) {
  EXPECT_EQ(demangle("_ZN2at6native3addERKNS_6TensorES3_"),
            "at::native::add(at::Tensor const&, at::Tensor const&)");
  EXPECT_EQ(demangle("main"), "main");
  EXPECT_EQ(demangle("_Znothing"), "_Znothing");
  EXPECT_EQ(demangle(""), "");
}

TEST(Demangle, CutsLongNames) {
  EXPECT_EQ(demangle(doubling(8).c_str()).size(), kMaxSymbolBytes);
  EXPECT_EQ(demangle(std::string(100'000, 'x').c_str()).size(), kMaxSymbolBytes);
}

TEST(Demangle, KeepsNamesThatWouldFillMemory) {
  // 2^35 times "int".
  EXPECT_EQ(demangle(doubling(35).c_str()), doubling(35));
  EXPECT_FALSE(expands_within(packs(35), 1ULL << 40));
}

TEST(Demangle, AsksForLongNames) {
  set_long_names([](const std::string& name) { return name == doubling(35) ? "long" : ""; });
  EXPECT_EQ(demangle(doubling(35).c_str()), "long");
  EXPECT_EQ(demangle(doubling(34).c_str()), doubling(34));
  EXPECT_EQ(demangle("_Z1fi"), "f(int)") << "is not asked for";
  set_long_names(nullptr);
}

TEST(Demangle, BoundsNamesFromAbove) {
  std::vector<std::string> names = {
      "_ZN2at6native3addERKNS_6TensorES3_",
      "_ZNSt6vectorISsSaISsEEC1ERKS1_",
      "_ZZN1A1fIiEEvT_ENKUlT_E_clIdEEDaS2_",
      "_ZNK1AcvT_I1BIiEEEv",
      "_ZTSN1A1BE",
      "_Z1fIyyyyyyyyEvT_T0_T1_T2_T3_T4_T5_T6_",
      "_ZN15LongNameOfClassC1ERKS_",
      "_Z1fIJyyyyyyyyyyyyyyyyyyyyEEvDpRVKT_",
      "_Z1fI1AIiiES0_IS1_S1_ES0_IS2_S2_EEvT_T0_T1_T1_",
  };
  for (std::size_t levels = 1; levels < 14; ++levels) names.push_back(doubling(levels));
  for (std::size_t levels = 1; levels < 9; ++levels) names.push_back(packs(levels));
  for (const std::string& name : names) {
    const std::size_t length = length_of(name);
    EXPECT_FALSE(expands_within(name, length - 1)) << name;
  }
}

TEST(Demangle, BoundsOrdinaryNamesLow) {
  EXPECT_TRUE(expands_within("_ZN2at6native3addERKNS_6TensorES3_", 4096));
  EXPECT_TRUE(expands_within("_ZNSt6vectorISsSaISsEEC1ERKS1_", 16'384));
}

}  // namespace
}  // namespace dynprof
