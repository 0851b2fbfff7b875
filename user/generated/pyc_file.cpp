#include "user/generated/pyc_file.h"

#include <fmt/format.h>

#include "symbolizer/export/marshal_writer.h"
#include "symbolizer/python/pyc_magic.h"

namespace dynprof {
namespace {

using Kind = CodeConstant::Kind;

constexpr std::size_t kHeaderRest = 12;  // flags, time and size of a source: none

void write_strings(MarshalWriter& out, const std::vector<std::string>& texts) {
  out.begin_tuple(static_cast<std::uint32_t>(texts.size()));
  for (const std::string& text : texts) out.raw_text(text);
}

void write_code(MarshalWriter& out, const CodeObject& code);

void write_constants(MarshalWriter& out, const std::vector<CodeConstant>& items);

void write_constant(MarshalWriter& out, const CodeConstant& constant, std::size_t index) {
  switch (constant.kind) {
    case Kind::kNone:
      return out.none();
    case Kind::kFalse:
      return out.boolean(false);
    case Kind::kTrue:
      return out.boolean(true);
    case Kind::kEllipsis:
      return out.ellipsis();
    case Kind::kInt:
      return out.integer(constant.integer);
    case Kind::kLongInt:
      return out.long_integer(constant.negative, constant.digits);
    case Kind::kFloat:
      return out.real(constant.number);
    case Kind::kComplex:
      return out.complex(constant.number, constant.imaginary);
    case Kind::kStr:
      return out.raw_text(constant.text);
    case Kind::kBytes:
      return out.byte_string(constant.text);
    case Kind::kTuple:
      out.begin_tuple(static_cast<std::uint32_t>(constant.items.size()));
      return write_constants(out, constant.items);
    case Kind::kFrozenSet:
      out.begin_frozenset(static_cast<std::uint32_t>(constant.items.size()));
      return write_constants(out, constant.items);
    case Kind::kSlice:
      out.begin_slice();
      return write_constants(out, constant.items);
    case Kind::kCode:
      return write_code(out, *constant.code);
    case Kind::kOther:
      return out.raw_text(fmt::format("__co_consts[{}]", index));
  }
}

void write_constants(MarshalWriter& out, const std::vector<CodeConstant>& items) {
  for (std::size_t i = 0; i < items.size(); ++i) write_constant(out, items[i], i);
}

// As w_object() of each version's Python/marshal.c has it.
void write_code(MarshalWriter& out, const CodeObject& code) {
  const bool is_310 = python_minor(code.python) == 10;
  out.begin_code();
  out.number(code.arguments);
  out.number(code.positional_only);
  out.number(code.keyword_only);
  if (is_310) out.number(code.local_count);
  out.number(code.stack_size);
  out.number(code.flags);
  out.byte_string(code.bytecode);
  out.begin_tuple(static_cast<std::uint32_t>(code.constants.size()));
  write_constants(out, code.constants);
  write_strings(out, code.names);
  write_strings(out, code.locals);
  if (is_310) {
    write_strings(out, code.free_names);
    write_strings(out, code.cell_names);
  } else {
    out.byte_string(code.local_kinds);
  }
  out.raw_text(code.filename);
  out.raw_text(code.name);
  if (!is_310) out.raw_text(code.qualname);
  out.number(code.first_line);
  out.byte_string(code.line_table);
  if (!is_310) out.byte_string(code.exception_table);
}

}  // namespace

std::optional<std::string> pyc_bytes(const CodeObject& code) {
  for (const auto& [python, magic] : kPycMagic) {
    if (python != code.python) continue;
    std::string file = {static_cast<char>(magic & 0xff), static_cast<char>(magic >> 8), '\r', '\n'};
    file.append(kHeaderRest, '\0');
    MarshalWriter out;
    write_code(out, code);
    return file + out.take();
  }
  return std::nullopt;
}

}  // namespace dynprof
