#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "symbolizer/attribution/process_command.h"
#include "symbolizer/base/hash.h"
#include "symbolizer/base/interner.h"
#include "symbolizer/base/text.h"
#include "symbolizer/report/sections.h"
#include "symbolizer/symbols/short_name.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxRows = 200;

// The columns of a row as numbers; those not asked for are 0. That of the symbol is twice the
// function, and one more where it is inlined.
using Key = std::array<std::uint32_t, 5>;  // by SortKey

struct Row {
  Key key{};
  std::uint64_t self = 0;                                 // ns of CPU time
  std::uint64_t children = 0;                             // with what it calls
  std::size_t last_stack = static_cast<std::size_t>(-1);  // counted in `children` already
};

struct KeyHash {
  std::uint64_t operator()(const Key& key) const {
    std::uint64_t hash = 0;
    for (std::uint32_t part : key) hash = hash_u64(hash ^ part);
    return hash;
  }
};

const char* title_of(SortKey key) {
  switch (key) {
    case SortKey::kComm:
      return "Command";
    case SortKey::kDso:
      return "Shared Object";
    case SortKey::kSymbol:
      return "Symbol";
    case SortKey::kPhase:
      return "Phase";
    case SortKey::kCompile:
      return "Trace id";
  }
  return "";
}

std::size_t max_width(SortKey key) {
  switch (key) {
    case SortKey::kComm:
      return 15;
    case SortKey::kDso:
      return 28;
    case SortKey::kSymbol:
      return kReportColumns;
    case SortKey::kPhase:
      return 14;
    case SortKey::kCompile:
      return 24;
  }
  return 10;
}

class SymbolTable {
 public:
  explicit SymbolTable(const Selection& selection)
      : selection_(selection), functions_(selection.analysis.functions()) {
    // Functions whose object or file has the same short name share a number.
    std::unordered_map<std::string_view, std::uint32_t> known;
    for (FunctionId id = 0; id < functions_.size(); ++id) {
      std::string_view name = dso_of(functions_[id]);
      auto [it, added] = known.try_emplace(name, static_cast<std::uint32_t>(dsos_.size()));
      if (added) dsos_.push_back(name);
      dso_of_function_.push_back(it->second);
    }
    std::unordered_map<std::string, std::uint32_t> commands;
    for (std::string& command : thread_commands(selection.tables())) {
      auto [it, added] =
          commands.try_emplace(command, static_cast<std::uint32_t>(commands_.size()));
      if (added) commands_.push_back(std::move(command));
      command_of_thread_.push_back(it->second);
    }
    for (SortKey key : selection.options.sort) {
      if (std::find(columns_.begin(), columns_.end(), key) == columns_.end()) {
        columns_.push_back(key);
      }
    }
    if (columns_.empty()) columns_.push_back(SortKey::kSymbol);
  }

  void count() {
    const Tables& tables = selection_.tables();
    for (std::size_t i = 0; i < selection_.counts.size(); ++i) {
      const StackCount& count = selection_.counts[i];
      row(key_of(count, count.stack)).self += count.ns;
      if (!selection_.options.children) continue;
      StackId stack = count.stack;
      do {
        Row& on_stack = row(key_of(count, stack));
        if (on_stack.last_stack != i) {
          on_stack.last_stack = i;
          on_stack.children += count.ns;
        }
        StackId caller = tables.stacks[stack].caller;
        stack = caller < stack ? caller : 0;
      } while (stack != 0);
    }
    bool children = selection_.options.children;
    std::sort(rows_.begin(), rows_.end(), [children](const Row& a, const Row& b) {
      std::uint64_t first = children ? a.children : a.self, second = children ? b.children : b.self;
      return first != second ? first > second : a.self != b.self ? a.self > b.self : a.key < b.key;
    });
  }

  void print(std::string& out) const {
    bool children = selection_.options.children;
    std::vector<const Row*> shown;
    for (const Row& row : rows_) {
      double share = 100.0 * static_cast<double>(children ? row.children : row.self) /
                     static_cast<double>(std::max<std::uint64_t>(selection_.ns, 1));
      if (share < selection_.options.percent_limit || shown.size() == kMaxRows) break;
      shown.push_back(&row);
    }
    std::vector<std::size_t> widths = widths_of(shown, children ? 20 : 10);
    std::string titles = children ? "# Children      Self" : "# Overhead";
    std::string rule = children ? "# ........  ........" : "# ........";
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      titles += "  " + cell(title_of(columns_[i]), widths[i]);
      rule += "  " + std::string(widths[i], '.');
    }
    titles.erase(titles.find_last_not_of(' ') + 1);
    out += titles + '\n' + rule + "\n#\n";
    for (const Row* row : shown) {
      std::string line;
      if (children) line += fmt::format("{:>10}", percent(row->children, selection_.ns));
      line += fmt::format("{:>10}", percent(row->self, selection_.ns));
      for (std::size_t i = 0; i < columns_.size(); ++i) {
        line += "  " + cell(text_of(columns_[i], row->key), widths[i]);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + '\n';
    }
    if (shown.size() < rows_.size()) {
      append_comment(out,
                     fmt::format("{} more rows, each less", grouped(rows_.size() - shown.size())));
    }
  }

 private:
  static std::string_view dso_of(const Function& function) {
    bool python = function.kind == FrameKind::kPython;
    constexpr std::string_view kCopies = "generated/";
    if (python && function.file.starts_with(kCopies)) return function.file.substr(kCopies.size());
    std::string_view name = base_name(python ? function.file : function.object);
    return name.empty() || name == "~" ? "[unknown]" : name;
  }
  FunctionId function_of(StackId stack) const {
    if (stack == 0) return Functions::kNoStack;
    return functions_.of_frames()[selection_.tables().stacks[stack].frame];
  }
  bool is_inlined(StackId stack) const {
    const Tables& tables = selection_.tables();
    return stack != 0 && tables.frames[tables.stacks[stack].frame].inlined;
  }
  Key key_of(const StackCount& count, StackId stack) const {
    const FunctionId function = function_of(stack);
    Key key{};
    for (SortKey column : columns_) {
      std::uint32_t& part = key[static_cast<std::size_t>(column)];
      switch (column) {
        case SortKey::kComm:
          part = command_of_thread_[count.thread];
          break;
        case SortKey::kDso:
          part = dso_of_function_[function];
          break;
        case SortKey::kSymbol:
          part = 2 * function + (is_inlined(stack) ? 1 : 0);
          break;
        case SortKey::kPhase:
          part = static_cast<std::uint32_t>(count.phase);
          break;
        case SortKey::kCompile:
          part = count.compile;
          break;
      }
    }
    return key;
  }
  Row& row(const Key& key) {
    std::uint64_t hash = KeyHash{}(key);
    std::uint32_t at =
        index_.find(hash, [&](std::uint32_t other) { return rows_[other].key == key; });
    if (at == IndexTable::kNone) {
      at = static_cast<std::uint32_t>(rows_.size());
      rows_.push_back({key});
      index_.add(hash, at, [&](std::uint32_t other) { return KeyHash{}(rows_[other].key); });
    }
    return rows_[at];
  }
  std::string text_of(SortKey column, const Key& key) const {
    std::uint32_t part = key[static_cast<std::size_t>(column)];
    switch (column) {
      case SortKey::kComm:
        return commands_[part];
      case SortKey::kDso:
        return std::string(dsos_[part]);
      case SortKey::kSymbol: {
        const Function& function = functions_[part / 2];
        const char* tail = part % 2 == 1 ? " (inlined)" : "";
        const char* mark = function.kind == FrameKind::kPython   ? "[p] "
                           : function.kind == FrameKind::kKernel ? "[k] "
                                                                 : "[.] ";
        if (function.kind == FrameKind::kNative) return mark + short_name(function.qualname) + tail;
        return mark + std::string(function.qualname.substr(0, 4 * kReportColumns));
      }
      case SortKey::kPhase:
        return phase_text(static_cast<Phase>(part));
      case SortKey::kCompile:
        return part == kNoCompile ? "-" : selection_.attribution().label(part);
    }
    return {};
  }
  std::vector<std::size_t> widths_of(const std::vector<const Row*>& shown, std::size_t used) const {
    std::vector<std::size_t> widths;
    for (SortKey column : columns_) {
      std::size_t width = std::string_view(title_of(column)).size();
      for (const Row* row : shown) {
        std::string text = cut(text_of(column, row->key), max_width(column));
        width = std::max(width, display_width(text));
      }
      widths.push_back(width);
      used += 2 + width;
    }
    // The widest column gives way.
    while (used > kReportColumns) {
      auto widest = std::max_element(widths.begin(), widths.end());
      std::size_t give = std::min(used - kReportColumns, *widest - 1);
      *widest -= give;
      used -= give;
    }
    return widths;
  }

  const Selection& selection_;
  const Functions& functions_;
  std::vector<SortKey> columns_;
  std::vector<std::string_view> dsos_;
  std::vector<std::uint32_t> dso_of_function_;
  std::vector<std::string> commands_;
  std::vector<std::uint32_t> command_of_thread_;
  std::vector<Row> rows_;
  IndexTable index_;
};

}  // namespace

void append_symbol_table(std::string& out, const Selection& selection) {
  SymbolTable table(selection);
  table.count();
  table.print(out);
}

}  // namespace dynprof
