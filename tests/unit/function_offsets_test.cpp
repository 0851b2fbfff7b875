// Functions of ELF files by name: those of this test program itself, and files that lie.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "symbolizer/base/unique_fd.h"
#include "user/target/function_offsets.h"
#include "user/target/process.h"
#include "user/target/symbol_search.h"

// Found by its name in the symbol table of the test program itself.
extern "C" __attribute__((noinline)) int function_offsets_test_here(int number) {
  asm volatile("" : "+r"(number));
  return number + 1;
}

namespace dynprof {
namespace {

constexpr std::array<std::string_view, 2> kNames = {"wanted", "other"};

UniqueFd in_memory(std::string_view bytes) {
  UniqueFd fd(::memfd_create("elf", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  return fd;
}

// A small library: one segment that shows the file from 0x1000 on at 0x400000, .dynsym and .dynstr.
struct FakeLibrary {
  Elf64_Ehdr header{};
  Elf64_Phdr segment{};
  Elf64_Shdr symbols{};
  Elf64_Shdr names{};
  std::vector<Elf64_Sym> entries;
  std::string strings = std::string("\0unwanted\0other\0", 16);

  FakeLibrary() {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = ET_DYN;
    header.e_machine = EM_X86_64;
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof segment;
    header.e_phnum = 1;
    header.e_shoff = header.e_phoff + sizeof segment;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = 3;
    segment.p_type = PT_LOAD;
    segment.p_flags = PF_R | PF_X;
    segment.p_offset = 0x1000;
    segment.p_vaddr = 0x400000;
    segment.p_filesz = segment.p_memsz = 0x1000;
    symbols.sh_type = SHT_DYNSYM;
    symbols.sh_link = 2;
    symbols.sh_entsize = sizeof(Elf64_Sym);
    symbols.sh_offset = 0x400;
    names.sh_type = SHT_STRTAB;
    names.sh_offset = 0x800;
    names.sh_size = strings.size();
    entries.push_back({});
    add(1 + 2, 0x400010, STB_GLOBAL, STT_FUNC);  // the end of "unwanted" is "wanted"
    add(10, 0x400020, STB_GLOBAL, STT_OBJECT);
    add(10, 0x400030, STB_LOCAL, STT_FUNC);
    add(10, 0x400040, STB_GLOBAL, STT_FUNC);
    add(10, 0x400050, STB_WEAK, STT_FUNC);
    symbols.sh_size = entries.size() * sizeof(Elf64_Sym);
  }
  void add(std::uint32_t name, std::uint64_t address, int bind, int type) {
    Elf64_Sym symbol{};
    symbol.st_name = name;
    symbol.st_info = static_cast<unsigned char>(ELF64_ST_INFO(bind, type));
    symbol.st_shndx = 1;
    symbol.st_value = address;
    symbol.st_size = 16;
    entries.push_back(symbol);
  }
  std::string bytes() const {
    std::string file(0x2000, '\0');
    const auto put = [&](std::size_t at, const void* what, std::size_t size) {
      std::memcpy(file.data() + at, what, size);
    };
    put(0, &header, sizeof header);
    put(sizeof header, &segment, sizeof segment);
    const Elf64_Shdr sections[3] = {{}, symbols, names};
    put(sizeof header + sizeof segment, sections, sizeof sections);
    put(0x400, entries.data(), entries.size() * sizeof(Elf64_Sym));
    put(0x800, strings.data(), strings.size());
    return file;
  }
  auto find() const {
    UniqueFd fd = in_memory(bytes());
    return find_functions(fd.get(), kNames);
  }
};

TEST(FunctionOffsets, FindsAFunctionWhereTheKernelWouldProbeIt) {
  UniqueFd self(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  constexpr std::array<std::string_view, 3> names = {"function_offsets_test_here", "no_such_thing",
                                                     "function_offsets_test_here"};
  auto found = find_functions(self.get(), names);
  ASSERT_TRUE(found) << found.error().what;
  ASSERT_TRUE((*found)[0] && (*found)[2]);
  EXPECT_FALSE((*found)[1]);
  const auto address = reinterpret_cast<std::uint64_t>(&function_offsets_test_here);
  auto mappings = read_mappings(::getpid());
  ASSERT_TRUE(mappings);
  for (const Mapping& mapping : *mappings) {
    if (address < mapping.start || address >= mapping.end) continue;
    EXPECT_EQ((*found)[0]->offset, address - mapping.start + mapping.offset);
    EXPECT_EQ((*found)[2]->offset, (*found)[0]->offset);
  }
  EXPECT_GT((*found)[0]->size, 0u);
  EXPECT_EQ(function_offsets_test_here(1), 2);
}

TEST(FunctionOffsets, TakesTheGlobalFunctionOfSeveralSymbols) {
  auto found = FakeLibrary().find();
  ASSERT_TRUE(found) << found.error().what;
  ASSERT_TRUE((*found)[0] && (*found)[1]);
  EXPECT_EQ((*found)[0]->offset, 0x1010u);
  EXPECT_EQ((*found)[0]->size, 16u);
  EXPECT_EQ((*found)[1]->offset, 0x1040u);
}

TEST(FunctionOffsets, SaysWhatIsWrongWithAFile) {
  const auto why = [](auto change) {
    FakeLibrary library;
    change(library);
    auto found = library.find();
    return found ? std::string() : found.error().what;
  };
  EXPECT_EQ(why([](auto&) {}), "");
  EXPECT_EQ(why([](auto& file) { file.symbols.sh_entsize = 0; }), "has symbols of 0 bytes");
  EXPECT_EQ(why([](auto& file) { file.symbols.sh_entsize = 25; }), "has symbols of 25 bytes");
  EXPECT_EQ(why([](auto& file) { file.symbols.sh_link = 3; }), "has symbols without names");
  EXPECT_EQ(why([](auto& file) { file.symbols.sh_link = 1; }), "has symbols without names");
  EXPECT_EQ(why([](auto& file) { file.symbols.sh_size = 24 * 1000; }),
            "has symbols beyond its end");
  EXPECT_EQ(why([](auto& file) { file.names.sh_size = 1 << 20; }),
            "has symbol names beyond its end");
  EXPECT_EQ(why([](auto& file) { file.names.sh_offset = UINT64_MAX - 8; }),
            "has an oversized symbol table");
  EXPECT_EQ(why([](auto& file) { file.symbols.sh_size = UINT64_MAX; }),
            "has an oversized symbol table");
  EXPECT_EQ(why([](auto& file) { file.header.e_shentsize = 0; }), "has headers of 56 and 0 bytes");
  EXPECT_EQ(why([](auto& file) { file.header.e_shoff = INT64_MAX - 10; }),
            "has section headers beyond its end");
  EXPECT_EQ(why([](auto& file) { file.header.e_shnum = 0xfeff; }),
            "has more sections or segments than we read");
}

// A segment that begins nowhere: the function has no place in the file, which is no error.
TEST(FunctionOffsets, AFunctionOutsideTheSegmentsHasNoPlace) {
  for (const std::uint64_t offset : {std::uint64_t{0x1000}, UINT64_MAX - 4}) {
    FakeLibrary library;
    library.segment.p_offset = offset;
    if (offset == 0x1000) library.segment.p_vaddr = 0x500000;
    auto found = library.find();
    ASSERT_TRUE(found) << found.error().what;
    EXPECT_FALSE((*found)[0]);
  }
}

TEST(FunctionOffsets, AFileTruncatedWhileItIsReadIsAnError) {
  UniqueFd fd = in_memory(FakeLibrary().bytes());
  ReadBudget budget = budget_for_one_file();
  const ImageBytes file(fd.get());  // before: a file that is mapped then ends the program (SIGBUS)
  auto tables = ElfTables::read(file, budget);
  ASSERT_TRUE(tables);
  ASSERT_EQ(::ftruncate(fd.get(), 0x500), 0);
  auto found = search_symbols(file, *tables, {.names = kNames}, budget);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().what, "has symbol names beyond its end");
  ASSERT_EQ(::ftruncate(fd.get(), 0), 0);
  EXPECT_FALSE(search_symbols(file, *tables, {.names = kNames}, budget));
  EXPECT_FALSE(ElfTables::read(file, budget));
}

// Names cross the blocks that the table is read in at every place.
TEST(FunctionOffsets, FindsANameWhereverItLiesInTheTable) {
  for (std::size_t filler : {262'130u, 262'137u, 262'138u, 262'143u, 262'144u, 524'287u}) {
    std::string file = FakeLibrary().bytes();
    FakeLibrary library;
    library.names.sh_offset = 0x2000;
    library.strings = std::string(filler, 'x') + std::string("\0wanted\0", 8);
    library.names.sh_size = library.strings.size();
    library.entries[1].st_name = static_cast<std::uint32_t>(filler + 1);
    std::string strings;
    std::swap(strings, library.strings);
    file = library.bytes() + strings;
    UniqueFd fd = in_memory(file);
    auto found = find_functions(fd.get(), kNames);
    ASSERT_TRUE(found) << found.error().what;
    EXPECT_TRUE((*found)[0]) << filler;
  }
}

// Gigabytes that take no room on the disk: a hole reads as fast as memory, for ever.
TEST(FunctionOffsets, ASparseFileIsReadUpToItsBudget) {
  FakeLibrary library;
  library.names.sh_size = 3ULL << 30;
  UniqueFd fd = in_memory(library.bytes());
  ASSERT_EQ(::ftruncate(fd.get(), 4LL << 30), 0);
  ReadBudget budget(8 << 20, std::chrono::milliseconds(10'000));
  auto tables = ElfTables::read(ImageBytes(fd.get()), budget);
  ASSERT_TRUE(tables);
  auto found = search_symbols(ImageBytes(fd.get()), *tables, {.names = kNames}, budget);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().what, "takes too long to read, or is too large");
  EXPECT_TRUE(budget.spent());
}

TEST(FunctionOffsets, OneNameAMillionTimesIsAnError) {
  FakeLibrary library;
  std::string names(1, '\0');
  for (int i = 0; i < 100'000; ++i) names += std::string("wanted\0", 7);
  library.names.sh_offset = 0x2000;
  library.names.sh_size = names.size();
  UniqueFd fd = in_memory(library.bytes() + names);
  auto found = find_functions(fd.get(), kNames);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().what, "has one symbol name thousands of times");
}

TEST(FunctionOffsets, DamagedFilesAreReadWithoutHarm) {
  const std::string good = FakeLibrary().bytes();
  UniqueFd fd = in_memory(good);
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    const std::size_t at = random() % (0x800 + 32);
    const char changed = static_cast<char>(random());
    ASSERT_EQ(::pwrite(fd.get(), &changed, 1, static_cast<off_t>(at)), 1);
    (void)find_functions(fd.get(), kNames);
    if (random() % 4 == 0) {
      ASSERT_EQ(::pwrite(fd.get(), good.data(), good.size(), 0), static_cast<ssize_t>(good.size()));
    }
  }
  for (std::size_t size = 0; size < good.size(); size += 37) {
    UniqueFd cut = in_memory(std::string_view(good).substr(0, size));
    (void)find_functions(cut.get(), kNames);
  }
}

}  // namespace
}  // namespace dynprof
