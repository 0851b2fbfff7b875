// Names of native code: perf maps, files that lie, names made short.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "symbolizer/base/unique_fd.h"
#include "symbolizer/symbols/demangle.h"
#include "symbolizer/symbols/elf_symbols.h"
#include "symbolizer/symbols/short_name.h"
#include "user/symbols/perf_map.h"

namespace dynprof {
namespace {

TEST(PerfMapTest, LinesNameRanges) {
  const PerfMap map = PerfMap::parse(
      "7f0000001000 40 py::work:/tmp/a b.py\n"
      "0x7f0000002000 0x10 hexed\n");
  EXPECT_EQ(map.find(0x7f0000001000), "py::work:/tmp/a b.py");
  EXPECT_EQ(map.find(0x7f000000103f), "py::work:/tmp/a b.py");
  EXPECT_FALSE(map.find(0x7f0000001040));
  EXPECT_EQ(map.find(0x7f0000002008), "hexed");
  EXPECT_FALSE(map.find(0));
}

TEST(PerfMapTest, TheLatestLineHolds) {
  const PerfMap map = PerfMap::parse("1000 100 old\n1040 10 inner\n1000 20 new\n");
  EXPECT_EQ(map.find(0x1000), "new");
  EXPECT_EQ(map.find(0x1020), "old");
  EXPECT_EQ(map.find(0x1048), "inner");
}

TEST(PerfMapTest, DamagedLinesArePassedOver) {
  const PerfMap map = PerfMap::parse(
      "\nnothing\n12 \n zz 10 x\n1000 0 empty\n1000 10 \nffffffffffffffff 10 wraps\n"
      "123456789012345678901234567890 10 long\n2000 10 good\n3000 10 half written");
  EXPECT_EQ(map.size(), 1u);
  EXPECT_EQ(map.find(0x2000), "good");
}

TEST(PerfMapTest, NamesAreBounded) {
  const PerfMap map = PerfMap::parse("1000 10 " + std::string(100'000, 'x') + "\n");
  EXPECT_EQ(map.find(0x1000)->size(), kMaxSymbolBytes);
}

TEST(ShortName, TemplatesAndParametersGo) {
  const std::string parameters = "(at::TensorIteratorBase&, c10::Scalar const&, long)";
  EXPECT_EQ(short_name("at::native::(anonymous namespace)::add_kernel<float, std::vector<int>>" +
                       parameters),
            "at::native::(anonymous namespace)::add_kernel<…>(…)");
  EXPECT_EQ(short_name("torch::autograd::Engine::evaluate_function(std::shared_ptr<GraphTask>&, "
                       "Node*)::{lambda()#1}::operator()() const"),
            "torch::autograd::Engine::evaluate_function(…)::{lambda()#1}::operator()() const");
  EXPECT_EQ(short_name("std::ostream& std::operator<< <std::char_traits<char> >(std::basic_"
                       "ostream<char>&, char const*)"),
            "std::ostream& std::operator<< <…>(…)");
  EXPECT_EQ(short_name("c10::ArrayRef<long>::operator->(std::integral_constant<int, 3>, long, lo"
                       "ng) const"),
            "c10::ArrayRef<…>::operator->(…) const");
}

TEST(ShortName, OthersStay) {
  for (const char* name : {"_PyEval_EvalFrameDefault", "at::add(at::Tensor const&)", "",
                           "py::<lambda>:/a/very/long/path/of/some/file/that/has/no/end/at/all.py"})
    EXPECT_EQ(short_name(name), name);
  // Cut by our own bound, or made up: it ends somewhere.
  const std::string open = "a::b" + std::string(5000, '<') + std::string(5000, '(');
  EXPECT_EQ(short_name(open), "a::b<…");
  EXPECT_LE(short_name("a::" + std::string(1000, '>')).size(), 1003u);
}

std::vector<std::uint8_t> own_file() {
  UniqueFd self(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(::lseek(self.get(), 0, SEEK_END)));
  EXPECT_TRUE(ImageBytes(self.get()).read(0, bytes));
  return bytes;
}

TEST(ElfSymbolsTest, EveryTruncationIsRefusedOrHasFewer) {
  const std::vector<std::uint8_t> whole = own_file();
  const auto all = ElfSymbols::read(ImageBytes(std::span(whole)));
  ASSERT_TRUE(all);
  EXPECT_TRUE(all->complete());
  for (std::size_t part = 0; part < 64; ++part) {
    const auto cut = std::span(whole).first(whole.size() / 64 * part + part % 7);
    const auto symbols = ElfSymbols::read(ImageBytes(cut));
    if (!symbols) continue;
    EXPECT_LE(symbols->size(), all->size());
    symbols->find_address(0x1234);
    symbols->parts_of("main");
  }
}

// Names are read when they are asked for, long after the symbols.
TEST(ElfSymbolsTest, AFileTruncatedAfterItsSymbolsWereReadHasNoNames) {
  const std::vector<std::uint8_t> whole = own_file();
  UniqueFd file(::memfd_create("program", MFD_CLOEXEC));
  ASSERT_EQ(::write(file.get(), whole.data(), whole.size()), static_cast<ssize_t>(whole.size()));
  const ImageBytes image(file.get());
  const auto symbols = ElfSymbols::read(image);
  ASSERT_TRUE(symbols);
  const auto parts = symbols->parts_of("main");
  ASSERT_FALSE(parts.empty());
  EXPECT_TRUE(symbols->find(parts[0].begin));
  ASSERT_EQ(::ftruncate(file.get(), 0x1000), 0);
  EXPECT_TRUE(symbols->parts_of("main").empty());
  EXPECT_FALSE(symbols->find(parts[0].begin));
  ASSERT_EQ(::ftruncate(file.get(), 0), 0);
  EXPECT_FALSE(symbols->find(parts[0].begin));
  EXPECT_FALSE(ElfSymbols::read(image));
}

TEST(ElfSymbolsTest, FalseHeaders) {
  std::vector<std::uint8_t> bytes = own_file();
  bytes.resize(std::min<std::size_t>(bytes.size(), 1 << 16));
  for (std::size_t at = 0; at < 64; ++at) {
    for (std::uint8_t value : {0, 1, 0x7f, 0xff}) {
      const std::uint8_t before = std::exchange(bytes[at], value);
      const auto symbols = ElfSymbols::read(ImageBytes(std::span(bytes)));
      if (symbols) symbols->find(0);
      bytes[at] = before;
    }
  }
}

}  // namespace
}  // namespace dynprof
