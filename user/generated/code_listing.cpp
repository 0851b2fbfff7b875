#include "user/generated/code_listing.h"

#include <fmt/format.h>

#include "symbolizer/base/text.h"
#include "symbolizer/python/line_table.h"
#include "user/generated/opcodes.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxBytecode = 1 << 20;
constexpr std::size_t kMaxNames = 16'384;
constexpr std::size_t kMaxConstant = 200;  // bytes of a constant's text that are shown
constexpr std::string_view kExtendedArg = "EXTENDED_ARG";

std::string at(const std::vector<std::string>& texts, std::size_t index) {
  return index < texts.size() ? texts[index] : fmt::format("[{}]", index);
}

std::string meaning_of(const Opcode& opcode, std::uint32_t argument, std::uint32_t next_unit,
                       const CodeBody& body) {
  auto jump = [](std::int64_t unit) { return fmt::format("to {}", unit * 2); };
  switch (opcode.argument) {
    case OpcodeArgument::kPlain:
      return "";
    case OpcodeArgument::kName:
      return at(body.names, argument);
    case OpcodeArgument::kNameShifted:
      return at(body.names, argument >> 1);
    case OpcodeArgument::kNameShifted2:
      return at(body.names, argument >> 2);
    case OpcodeArgument::kLocal:
      return at(body.locals, argument);
    case OpcodeArgument::kLocalPair:
      return at(body.locals, argument >> 4) + ", " + at(body.locals, argument & 15);
    case OpcodeArgument::kConstant:
      return at(body.constants, argument);
    case OpcodeArgument::kFree:
      return at(body.locals, argument + body.variables);
    case OpcodeArgument::kJump:
      return jump(std::int64_t{next_unit} + argument);
    case OpcodeArgument::kJumpBack:
      return jump(std::int64_t{next_unit} - argument);
    case OpcodeArgument::kJumpTo:
      return jump(argument);
  }
  return "";
}

std::vector<std::string> read_names(PythonObjects& python, std::uint64_t field) {
  auto tuple = python.objects().memory().read_pointer(field);
  auto items = tuple ? python.values().tuple_items(*tuple, kMaxNames) : std::nullopt;
  std::vector<std::string> names;
  for (std::uint64_t item : items.value_or(std::vector<std::uint64_t>())) {
    names.push_back(escape_terminal(python.values().read_str(item, 4096).value_or("?")));
  }
  return names;
}

std::string constant_text(const RemoteValue& value) {
  switch (value.kind) {
    case RemoteValue::Kind::kNothing:
      return "?";
    case RemoteValue::Kind::kNone:
      return "None";
    case RemoteValue::Kind::kBool:
      return value.integer != 0 ? "True" : "False";
    case RemoteValue::Kind::kInt:
      return fmt::format("{}", value.integer);
    case RemoteValue::Kind::kFloat:
      return fmt::format("{}", value.number);
    case RemoteValue::Kind::kStr: {
      bool cut = value.text.size() > kMaxConstant;
      return "'" + escape_terminal(value.text.substr(0, kMaxConstant)) + (cut ? "…'" : "'");
    }
    case RemoteValue::Kind::kOther:
      return fmt::format("<{}>", escape_terminal(value.text));
  }
  return "?";
}

std::vector<std::string> read_constants(PythonObjects& python, std::uint64_t field) {
  auto tuple = python.objects().memory().read_pointer(field);
  auto items = tuple ? python.values().tuple_items(*tuple, kMaxNames) : std::nullopt;
  std::vector<std::string> texts;
  if (!items) return texts;
  for (const RemoteValue& value : python.values().values(*items)) {
    texts.push_back(constant_text(value));
  }
  return texts;
}

}  // namespace

// 3.11+: the instructions are in the object, as many units as its ob_size says. 3.10: the bytes
// object co_code.
std::string read_bytecode(PythonObjects& python, std::uint64_t code) {
  const PythonLayout& t = python.objects().layout();
  RemoteMemory& memory = python.objects().memory();
  if (t.minor() == 10) {
    auto bytes = memory.read_pointer(code + t.code_code);
    return bytes ? python.objects().read_bytes(*bytes, kMaxBytecode).value_or("") : "";
  }
  auto units = memory.read<std::uint64_t>(code + t.object_size);
  if (!units || *units > kMaxBytecode / 2) return "";
  std::string bytecode(static_cast<std::size_t>(*units) * 2, '\0');
  auto into = std::as_writable_bytes(std::span(bytecode));
  return memory.read(code + t.bpf.code_instructions, into) ? bytecode : "";
}

std::vector<Instruction> decode_instructions(const CodeBody& body) {
  std::vector<Instruction> instructions;
  const OpcodeTable* table = opcode_table(body.python);
  if (!table) return instructions;
  auto lines = decode_line_table(body.python, body.line_table, body.first_line);
  const auto units = static_cast<std::uint32_t>(body.bytecode.size() / 2);
  std::uint32_t extended = 0;
  for (std::uint32_t unit = 0; unit < units;) {
    Instruction found;
    found.number = static_cast<std::uint8_t>(body.bytecode[unit * 2]);
    auto low = static_cast<std::uint8_t>(body.bytecode[unit * 2 + 1]);
    const Opcode& opcode = (*table)[found.number];
    found.offset = unit * 2;
    found.opcode = opcode.name;
    found.line = line_of_unit(lines, body.first_line, static_cast<std::int32_t>(unit));
    found.argument = extended << 8 | low;
    unit += 1U + opcode.caches;
    found.meaning = meaning_of(opcode, found.argument, unit, body);
    extended = opcode.name == kExtendedArg ? found.argument : 0;
    instructions.push_back(std::move(found));
  }
  return instructions;
}

std::string list_instructions(const std::vector<Instruction>& instructions) {
  std::string text;
  std::int32_t line = -1;
  for (const Instruction& instruction : instructions) {
    std::string shown;
    if (instruction.line != line) {
      line = instruction.line;
      shown = line == 0 ? "-" : fmt::format("{}", line);
    }
    std::string name = instruction.opcode.empty() ? fmt::format("<{}>", instruction.number)
                                                  : std::string(instruction.opcode);
    text += fmt::format("{:>6} {:>6} {:<30}", shown, instruction.offset, name);
    if (!instruction.meaning.empty()) {
      text += fmt::format(" {:>5}  {}", instruction.argument, instruction.meaning);
    } else if (instruction.argument != 0) {
      text += fmt::format(" {:>5}", instruction.argument);
    }
    while (text.ends_with(' ')) text.pop_back();
    text += '\n';
  }
  return text;
}

std::optional<CodeText> read_code_text(PythonObjects& python, std::uint64_t address) {
  const PythonLayout& t = python.objects().layout();
  CodeText found;
  found.code = python.codes().read(address);
  if (found.code.unreadable != Unreadable::kNo) return std::nullopt;
  CodeBody& body = found.body;
  body.python = t.python;
  body.first_line = found.code.first_line;
  body.line_table = found.code.line_table;
  body.bytecode = read_bytecode(python, address);
  body.constants = read_constants(python, address + t.code_consts);
  body.names = read_names(python, address + t.code_consts + 8);  // co_names, 3.10-3.15
  for (const LocalName& local :
       python.codes().read_locals(address).value_or(std::vector<LocalName>())) {
    if (t.minor() == 10 && local.kind == LocalName::kLocal) ++body.variables;
    body.locals.push_back(escape_terminal(local.name));
  }
  // Names and constants were the same object's if that is still there.
  if (python.codes().identity_of(address) != found.code.identity) return std::nullopt;
  return found;
}

}  // namespace dynprof
