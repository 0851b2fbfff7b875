#include "symbolizer/export/html/page.h"

#include <cmath>
#include <string_view>

#include "symbolizer/base/cap_text.h"
#include "symbolizer/base/enum_text.h"
#include "symbolizer/base/json_writer.h"
#include "symbolizer/base/text.h"
#include "symbolizer/export/html/assets.h"
#include "symbolizer/export/html/flame_data.h"
#include "symbolizer/export/html/timeline_data.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxCell = 400;
constexpr std::size_t kMaxColumn = 80;
constexpr std::size_t kMaxLine = 2000;  // of details and the summary

// JSON in a script element: without '<' it can neither end the element nor begin a comment. In JSON
// the character occurs in strings alone.
class ScriptSink final : public ByteSink {
 public:
  explicit ScriptSink(ByteSink& sink) : sink_(sink) {}
  void write(std::string_view bytes) override {
    text_.clear();
    for (char c : bytes) {
      if (c == '<')
        text_ += "\\u003c";
      else
        text_ += c;
    }
    sink_.write(text_);
  }
  bool failed() const override { return sink_.failed(); }
  Result<void> finish() override { return {}; }  // the page goes on

 private:
  ByteSink& sink_;
  std::string text_;
};

const char* type_name(ColumnType type) {
  static constexpr const char* kTexts[] = {"text",    "place",  "seconds", "count",
                                           "percent", "change", "factor"};
  return enum_text<ColumnType::kFactor>(kTexts, type, "text");
}

void put(JsonWriter& json, std::string_view text, std::size_t most) {
  json.string(page_text(text, most));
}

void put_real(JsonWriter& json, double value) {
  if (!std::isfinite(value)) return json.null();
  json.element([&](std::string& out) {
    char digits[32];
    out.append(
        digits,
        std::to_chars(digits, digits + sizeof digits, value, std::chars_format::general, 6).ptr);
  });
}

void put_cell(JsonWriter& json, const PageCell& cell) {
  switch (cell.kind) {
    case PageCell::Kind::kText:
      return put(json, cell.text, kMaxCell);
    case PageCell::Kind::kWhole:
      return json.number(cell.whole);
    case PageCell::Kind::kReal:
      return put_real(json, cell.real);
    case PageCell::Kind::kUnknown:
      return json.null();
  }
}

void put_row(JsonWriter& json, const PageRow& row) {
  json.begin_object();
  json.key("cells");
  json.begin_array();
  for (const PageCell& cell : row.cells) put_cell(json, cell);
  json.end_array();
  if (row.group >= 0) json.field("group", row.group);
  if (row.faint) json.field("faint", true);
  if (!row.details.empty()) {
    json.key("details");
    json.begin_array();
    for (const PageDetail& detail : row.details) {
      json.begin_object();
      json.field("title", detail.title);
      json.key("lines");
      json.begin_array();
      for (const std::string& line : detail.lines) put(json, line, kMaxLine);
      json.end_array();
      json.end_object();
    }
    json.end_array();
  }
  json.end_object();
}

void put_table(JsonWriter& json, const PageTable& table) {
  json.begin_object();
  json.field("id", table.id);
  json.field("title", table.title);
  json.key("note");
  put(json, table.note, kMaxLine);
  json.field("leftOut", table.left_out);
  json.key("columns");
  json.begin_array();
  for (const PageColumn& column : table.columns) {
    json.begin_object();
    json.key("name");
    put(json, column.name, kMaxColumn);
    json.field("type", type_name(column.type));
    json.field("help", column.help);
    json.end_object();
  }
  json.end_array();
  json.key("rows");
  json.begin_array();
  for (const PageRow& row : table.rows) {
    json.line_break();
    put_row(json, row);
  }
  json.end_array();
  json.end_object();
}

void put_code(JsonWriter& json, const CodeListing& file) {
  json.begin_object();
  json.key("path");
  put(json, file.path, kMaxCell);
  json.field("ns", file.ns);
  json.key("lines");
  json.begin_array();
  for (const CodeLine& line : file.lines) {
    json.begin_array();
    json.number(line.number);
    json.number(line.ns);
    put(json, line.text, kMaxCell);
    json.end_array();
  }
  json.end_array();
  json.end_object();
}

void put_page(JsonWriter& json, const Page& page) {
  json.begin_object();
  json.field("version", 1);
  json.key("title");
  put(json, page.title, kMaxLine);
  json.key("sides");
  json.begin_array();
  for (const std::string& side : page.sides) put(json, side, kMaxCell);
  json.end_array();
  json.key("summary");
  json.begin_array();
  for (const auto& [title, text] : page.summary) {
    json.begin_array();
    json.string(title);
    put(json, text, kMaxLine);
    json.end_array();
  }
  json.end_array();
  json.key("about");
  json.begin_array();
  for (const std::string& line : page.about) put(json, line, kMaxLine);
  json.end_array();
  json.key("tables");
  json.begin_array();
  for (const PageTable& table : page.tables) put_table(json, table);
  json.end_array();
  json.field("codeLeftOut", page.code_left_out);
  json.key("code");
  json.begin_array();
  for (const CodeListing& file : page.code) put_code(json, file);
  json.end_array();
  if (page.timeline != nullptr) {
    json.key("timeline");
    page.timeline->write(json);
  }
  if (page.flame != nullptr) {
    json.key("flame");
    page.flame->write(json);
  }
  json.end_object();
}

}  // namespace

std::string page_text(std::string_view text, std::size_t most) {
  // Escapes are longer than what they stand for: cut before, so as to escape little, and after.
  return cap_text(escape_terminal(cap_text(text, most)), most);
}

Result<void> write_page(const Page& page, ByteSink& sink) {
  std::string_view rest = page_template();
  auto copy_until = [&](std::string_view mark) {
    const std::size_t at = rest.find(mark);
    DYNPROF_CHECK(at != std::string_view::npos);
    sink.write(rest.substr(0, at));
    rest.remove_prefix(at + mark.size());
  };
  copy_until("<!-- style -->");
  sink.write(page_style());
  copy_until("<!-- data -->");
  ScriptSink script(sink);
  JsonWriter json(script);
  put_page(json, page);
  TRY(json.finish());
  copy_until("<!-- script -->");
  sink.write(page_script());
  sink.write(rest);
  return sink.finish();
}

}  // namespace dynprof
