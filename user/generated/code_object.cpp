#include "user/generated/code_object.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>
#include <utility>

#include "symbolizer/python/python_version.h"
#include "user/generated/code_listing.h"
#include "user/generated/opcodes.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxNames = 16'384;
constexpr std::int64_t kMaxDigits = 4096;
constexpr std::uint64_t kDigitMask = 0x7fff;

using Kind = CodeConstant::Kind;

class Reader {
 public:
  Reader(PythonObjects& python, const CodeObjectLimits& limits)
      : python_(python), layout_(python.objects().layout()), limits_(limits) {}

  std::optional<CodeObject> code(std::uint64_t address);
  std::size_t replaced() const { return replaced_; }

 private:
  // Whether so many bytes more are within the limit.
  bool spend(std::size_t bytes) {
    used_ += std::min(bytes, limits_.bytes + 1);
    return used_ <= limits_.bytes;
  }
  std::size_t left() const { return limits_.bytes - std::min(used_, limits_.bytes); }
  bool number(std::uint64_t field, std::int32_t& value) {
    auto found = python_.objects().memory().read<std::int32_t>(field);
    value = found.value_or(0);
    return found && *found >= 0;
  }
  std::optional<std::uint64_t> pointer(std::uint64_t field) {
    return python_.objects().memory().read_pointer(field);
  }
  bool bytes(std::uint64_t field, std::string& into);
  bool strings(std::uint64_t field, std::vector<std::string>& into);
  bool locals(std::uint64_t address, CodeObject& found);
  CodeConstant constant(std::uint64_t object);
  bool fill(std::uint64_t object, const std::string& type, CodeConstant& found);
  bool fill_int(std::uint64_t object, CodeConstant& found);
  bool fill_items(const std::optional<std::vector<std::uint64_t>>& items, CodeConstant& found);

  PythonObjects& python_;
  const PythonLayout& layout_;
  CodeObjectLimits limits_;
  std::vector<std::uint64_t> open_;  // containers and code objects around what is being read
  std::size_t constants_ = 0;
  std::size_t used_ = 0;
  std::size_t replaced_ = 0;
};

bool Reader::bytes(std::uint64_t field, std::string& into) {
  auto object = pointer(field);
  if (!object || python_.values().type_name(*object) != "bytes") return false;
  auto text = python_.objects().read_bytes(*object, left());
  if (!text || !spend(text->size())) return false;
  into = *std::move(text);
  return true;
}

bool Reader::strings(std::uint64_t field, std::vector<std::string>& into) {
  auto tuple = pointer(field);
  auto items = tuple ? python_.values().tuple_items(*tuple, kMaxNames) : std::nullopt;
  if (!items) return false;
  for (std::uint64_t item : *items) {
    auto text = python_.values().read_str(item, std::min(left(), kMaxStringLength));
    if (!text || !spend(text->size())) return false;
    into.push_back(*std::move(text));
  }
  return true;
}

bool Reader::locals(std::uint64_t address, CodeObject& found) {
  if (layout_.minor() == 10) {
    return strings(address + layout_.code_varnames, found.locals) &&
           strings(address + layout_.code_freevars, found.free_names) &&
           strings(address + layout_.code_cellvars, found.cell_names);
  }
  return strings(address + layout_.code_localsplusnames, found.locals) &&
         bytes(address + layout_.code_localspluskinds, found.local_kinds) &&
         found.local_kinds.size() == found.locals.size();
}

std::optional<CodeObject> Reader::code(std::uint64_t address) {
  RemoteCode head = python_.codes().read(address);
  if (head.unreadable != Unreadable::kNo || !spend(head.line_table.size())) return std::nullopt;
  CodeObject found;
  found.python = layout_.python;
  found.first_line = head.first_line;
  const bool is_310 = layout_.minor() == 10;
  // Measured with layouts/*.h: posonlyargcount follows argcount, stacksize kwonlyargcount (3.10: nlocals comes
  // between), co_names co_consts, and the exception table co_names.
  const std::uint64_t keyword_only = address + layout_.code_kwonlyargcount;
  const std::uint64_t names = address + layout_.code_consts + 8;
  bool good = number(address + layout_.code_argcount, found.arguments) &&
              number(address + layout_.code_argcount + 4, found.positional_only) &&
              number(keyword_only, found.keyword_only) &&
              number(keyword_only + (is_310 ? 8 : 4), found.stack_size) &&
              number(address + layout_.code_flags, found.flags) && strings(names, found.names) &&
              locals(address, found);
  if (is_310)
    good = good && number(keyword_only + 4, found.local_count);
  else
    good = good && bytes(names + 8, found.exception_table);
  if (!good) return std::nullopt;
  auto bytecode = original_bytecode(layout_.python, read_bytecode(python_, address));
  if (!bytecode || bytecode->empty() || !spend(bytecode->size())) return std::nullopt;
  found.bytecode = *std::move(bytecode);
  found.filename = std::move(head.filename);
  found.name = std::move(head.name);
  found.qualname = std::move(head.qualname);
  found.line_table = std::move(head.line_table);
  auto tuple = pointer(address + layout_.code_consts);
  auto items = tuple ? python_.values().tuple_items(*tuple, kMaxNames) : std::nullopt;
  if (!items) return std::nullopt;
  open_.push_back(address);
  for (std::uint64_t item : *items) found.constants.push_back(constant(item));
  open_.pop_back();
  // What was read was this object's if it is still there.
  if (constants_ > limits_.constants || used_ > limits_.bytes ||
      python_.codes().identity_of(address) != head.identity) {
    return std::nullopt;
  }
  return found;
}

CodeConstant Reader::constant(std::uint64_t object) {
  CodeConstant found;
  const std::string type = python_.values().type_name(object);
  const bool around = std::find(open_.begin(), open_.end(), object) != open_.end();
  if (++constants_ <= limits_.constants && !around && open_.size() <= limits_.depth &&
      used_ <= limits_.bytes) {
    open_.push_back(object);
    const bool known = fill(object, type, found);
    open_.pop_back();
    if (known) return found;
  }
  ++replaced_;
  found = CodeConstant();
  found.text = type;
  return found;
}

bool Reader::fill(std::uint64_t object, const std::string& type, CodeConstant& found) {
  RemoteValues& values = python_.values();
  const std::uint64_t body = object + layout_.object_size;
  if (type == "NoneType") {
    found.kind = Kind::kNone;
    return true;
  }
  if (type == "bool") {
    auto value = values.read_bool(object);
    found.kind = value.value_or(false) ? Kind::kTrue : Kind::kFalse;
    return value.has_value();
  }
  if (type == "ellipsis") {
    found.kind = Kind::kEllipsis;
    return true;
  }
  if (type == "int") return fill_int(object, found);
  if (type == "float") {
    auto value = values.read_float(object);
    found.kind = Kind::kFloat;
    found.number = value.value_or(0);
    return value.has_value();
  }
  if (type == "complex") {
    auto real = python_.objects().memory().read<double>(body);
    auto imaginary = python_.objects().memory().read<double>(body + 8);
    if (!real || !imaginary) return false;
    found.kind = Kind::kComplex;
    found.number = *real;
    found.imaginary = *imaginary;
    return true;
  }
  if (type == "str") {
    auto text = python_.text(object, left());
    if (!text || text->truncated || !spend(text->text.size())) return false;
    found.kind = Kind::kStr;
    found.text = std::move(text->text);
    return true;
  }
  if (type == "bytes") {
    auto text = python_.objects().read_bytes(object, left());
    if (!text || !spend(text->size())) return false;
    found.kind = Kind::kBytes;
    found.text = *std::move(text);
    return true;
  }
  if (type == "tuple") {
    found.kind = Kind::kTuple;
    return fill_items(values.tuple_items(object, kMaxNames), found);
  }
  if (type == "frozenset") {
    found.kind = Kind::kFrozenSet;
    return fill_items(values.set_items(object, kMaxNames), found);
  }
  if (type == "slice" && layout_.minor() >= 14) {
    std::vector<std::uint64_t> parts;
    for (std::uint64_t offset : {0, 8, 16}) parts.push_back(pointer(body + offset).value_or(0));
    found.kind = Kind::kSlice;
    return fill_items(parts, found);
  }
  if (type != "code") return false;
  auto nested = code(object);
  if (!nested) return false;
  found.kind = Kind::kCode;
  found.code = std::make_shared<CodeObject>(*std::move(nested));
  return true;
}

bool Reader::fill_items(const std::optional<std::vector<std::uint64_t>>& items,
                        CodeConstant& found) {
  if (!items) return false;
  for (std::uint64_t item : *items) {
    if (constants_ > limits_.constants) return false;
    found.items.push_back(constant(item));
  }
  return true;
}

// Digits of 30 bits behind their number: of ob_size, whose sign is the int's, and from 3.12 on of lv_tag,
// whose lowest bits are the sign (2: negative).
bool Reader::fill_int(std::uint64_t object, CodeConstant& found) {
  if (auto small = python_.values().read_int(object)) {
    found.kind = Kind::kInt;
    found.integer = *small;
    return true;
  }
  auto head = python_.objects().memory().read<std::int64_t>(object + layout_.object_size);
  if (!head) return false;
  const bool tagged = layout_.minor() >= 12;
  const std::int64_t count = tagged ? *head >> 3 : std::abs(std::max(*head, -kMaxDigits - 1));
  if (count <= 0 || count > kMaxDigits) return false;
  std::vector<std::uint32_t> digits(static_cast<std::size_t>(count));
  auto into = std::as_writable_bytes(std::span(digits));
  if (!spend(into.size())) return false;
  if (!python_.objects().memory().read(object + layout_.object_size + 8, into)) return false;
  found.kind = Kind::kLongInt;
  found.negative = tagged ? (*head & 3) == 2 : *head < 0;
  for (std::uint32_t digit : digits) {
    found.digits.push_back(static_cast<std::uint16_t>(digit & kDigitMask));
    found.digits.push_back(static_cast<std::uint16_t>((digit >> 15) & kDigitMask));
  }
  while (!found.digits.empty() && found.digits.back() == 0) found.digits.pop_back();
  return true;
}

}  // namespace

std::optional<ReadCode> read_code_object(PythonObjects& python, std::uint64_t address,
                                         const CodeObjectLimits& limits) {
  Reader reader(python, limits);
  auto code = reader.code(address);
  if (!code) return std::nullopt;
  return ReadCode{*std::move(code), reader.replaced()};
}

std::optional<std::string> original_bytecode(std::uint16_t python, std::string bytecode) {
  const OpcodeTable* table = opcode_table(python);
  if (!table) return std::nullopt;
  if (python_minor(python) == 10) return bytecode;
  constexpr std::array<std::string_view, 4> kUnknown = {
      "INSTRUMENTED_LINE", "INSTRUMENTED_INSTRUCTION", "ENTER_EXECUTOR", "TRACE_RECORD"};
  for (std::size_t at = 0; at + 1 < bytecode.size(); at += 2) {
    const Opcode& opcode = (*table)[static_cast<std::uint8_t>(bytecode[at])];
    if (opcode.name.empty() ||
        std::find(kUnknown.begin(), kUnknown.end(), opcode.name) != kUnknown.end()) {
      return std::nullopt;
    }
    bytecode[at] = static_cast<char>(opcode.original);
    for (std::size_t cache = opcode.caches; cache > 0 && at + 3 < bytecode.size(); --cache) {
      at += 2;
      bytecode[at] = bytecode[at + 1] = '\0';
    }
  }
  return bytecode;
}

}  // namespace dynprof
