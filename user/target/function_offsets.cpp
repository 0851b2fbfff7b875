#include "user/target/function_offsets.h"

#include <fmt/format.h>

#include "user/target/symbol_search.h"

namespace dynprof {

Result<std::vector<std::optional<FunctionPlace>>> find_functions(
    int fd, std::span<const std::string_view> names) {
  ReadBudget budget = budget_for_one_file();
  const ImageBytes file(fd);
  ASSIGN_OR_RETURN(const ElfTables tables, ElfTables::read(file, budget));
  const SymbolQuery query = {.names = names, .functions_only = true};
  ASSIGN_OR_RETURN(const auto symbols, search_symbols(file, tables, query, budget));
  std::vector<std::optional<FunctionPlace>> places(names.size());
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    if (!symbols[i]) continue;
    if (const auto offset = tables.file_offset(symbols[i]->address))
      places[i] = FunctionPlace{*offset, symbols[i]->size};
  }
  return places;
}

std::string path_of_open_file(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

}  // namespace dynprof
