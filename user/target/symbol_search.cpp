#include "user/target/symbol_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace dynprof {
namespace {

constexpr std::size_t kMaxName = 1024;
// A linker writes a name once, or a few times as the end of longer names.
constexpr std::size_t kMaxPlaces = 4096;
constexpr std::size_t kStringBlock = 256 << 10;
constexpr std::size_t kSymbolBlock = 8192;  // entries

Error spent() { return error("takes too long to read, or is too large"); }

// Where in the string table a wanted name begins, and which.
struct Place {
  std::uint32_t at = 0;
  std::uint32_t name = 0;
  bool operator<(const Place& other) const { return at < other.at; }
};

int rank_of(const Elf64_Sym& symbol) {
  const int bind = ELF64_ST_BIND(symbol.st_info);
  return bind == STB_GLOBAL || bind == STB_GNU_UNIQUE ? 3 : bind == STB_WEAK ? 2 : 1;
}

class TableSearch {
 public:
  TableSearch(const ImageBytes& file, const SymbolQuery& query, ReadBudget& budget,
              std::vector<std::optional<ElfSymbol>>& found)
      : file_(file), query_(query), budget_(budget), found_(found), ranks_(found.size()) {}

  Result<void> run(const Elf64_Shdr& symbols, const Elf64_Shdr& names) {
    if (symbols.sh_entsize != sizeof(Elf64_Sym))
      return error(fmt::format("has symbols of {} bytes", symbols.sh_entsize));
    // A file offset is signed, and a name's place in the table has 32 bits.
    if (symbols.sh_offset > INT64_MAX || symbols.sh_size > INT64_MAX ||
        names.sh_offset > INT64_MAX || names.sh_size > UINT32_MAX)
      return error("has an oversized symbol table");
    for (std::size_t i = 0; i < found_.size(); ++i)
      if (!found_[i]) missing_.push_back(static_cast<std::uint32_t>(i));
    TRY(find_names(names));
    if (places_.empty()) return {};
    std::sort(places_.begin(), places_.end());
    return find_symbols(symbols);
  }

 private:
  Result<void> find_names(const Elf64_Shdr& names) {
    std::size_t longest = 0;
    for (std::uint32_t name : missing_) longest = std::max(longest, query_.names[name].size());
    // A name that ends in the next block is found there: its begin is kept.
    std::string block;
    std::uint64_t begins = 0;  // of `block`, in the table
    for (std::uint64_t at = 0; at < names.sh_size;) {
      const auto want =
          static_cast<std::size_t>(std::min<std::uint64_t>(kStringBlock, names.sh_size - at));
      const std::size_t kept = std::min(block.size(), longest);
      block.erase(0, block.size() - kept);
      begins = at - kept;
      block.resize(kept + want);
      if (!budget_.take(want)) return spent();
      if (!file_.read(names.sh_offset + at,
                      {reinterpret_cast<std::uint8_t*>(block.data()) + kept, want}))
        return error("has symbol names beyond its end");
      at += want;
      TRY(find_names_in(block, kept, begins));
    }
    return {};
  }

  // Those that end in what is new in the block, behind `known` bytes.
  Result<void> find_names_in(std::string_view block, std::size_t known, std::uint64_t begins) {
    for (std::uint32_t name : missing_) {
      const std::string wanted(query_.names[name]);
      const std::string_view pattern(wanted.c_str(), wanted.size() + 1);  // with its end
      const std::size_t from = known >= wanted.size() ? known - wanted.size() : 0;
      for (std::size_t at = block.find(pattern, from); at != std::string_view::npos;
           at = block.find(pattern, at + pattern.size())) {
        if (places_.size() == kMaxPlaces) return error("has one symbol name thousands of times");
        places_.push_back({static_cast<std::uint32_t>(begins + at), name});
      }
    }
    return {};
  }

  Result<void> find_symbols(const Elf64_Shdr& symbols) {
    std::vector<Elf64_Sym> block(kSymbolBlock);
    const std::uint64_t count = symbols.sh_size / sizeof(Elf64_Sym);
    for (std::uint64_t at = 0; at < count; at += kSymbolBlock) {
      const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(kSymbolBlock, count - at));
      const std::size_t size = want * sizeof(Elf64_Sym);
      if (!budget_.take(size)) return spent();
      if (!file_.read(symbols.sh_offset + at * sizeof(Elf64_Sym),
                      {reinterpret_cast<std::uint8_t*>(block.data()), size}))
        return error("has symbols beyond its end");
      for (std::size_t i = 0; i < want; ++i) take(block[i]);
    }
    return {};
  }

  void take(const Elf64_Sym& symbol) {
    if (symbol.st_shndx == SHN_UNDEF || symbol.st_value == 0) return;
    if (query_.functions_only && ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) return;
    const int rank = rank_of(symbol);
    auto place =
        std::lower_bound(places_.begin(), places_.end(), Place{.at = symbol.st_name, .name = 0});
    // A name that is asked for twice has two places.
    for (; place != places_.end() && place->at == symbol.st_name; ++place) {
      if (rank <= ranks_[place->name]) continue;
      ranks_[place->name] = rank;
      found_[place->name] = ElfSymbol{symbol.st_value, symbol.st_size};
    }
  }

  const ImageBytes& file_;
  const SymbolQuery& query_;
  ReadBudget& budget_;
  std::vector<std::optional<ElfSymbol>>& found_;
  std::vector<int> ranks_;  // of what was found in this table
  std::vector<std::uint32_t> missing_;
  std::vector<Place> places_;  // by place
};

}  // namespace

Result<std::vector<std::optional<ElfSymbol>>> search_symbols(const ImageBytes& file,
                                                             const ElfTables& tables,
                                                             const SymbolQuery& query,
                                                             ReadBudget& budget) {
  std::vector<std::optional<ElfSymbol>> found(query.names.size());
  for (std::string_view name : query.names)
    if (name.empty() || name.size() > kMaxName)
      return error("a symbol name of an implausible length");
  for (std::uint32_t type : {SHT_DYNSYM, SHT_SYMTAB}) {
    if (type == SHT_SYMTAB && query.exported_only) break;
    if (std::all_of(found.begin(), found.end(), [](const auto& symbol) { return !!symbol; })) break;
    const Elf64_Shdr* symbols = tables.section_of_type(type);
    if (symbols == nullptr || symbols->sh_size == 0) continue;
    if (symbols->sh_link >= tables.sections.size() ||
        tables.sections[symbols->sh_link].sh_type != SHT_STRTAB)
      return error("has symbols without names");
    TRY(TableSearch(file, query, budget, found).run(*symbols, tables.sections[symbols->sh_link]));
  }
  return found;
}

}  // namespace dynprof
