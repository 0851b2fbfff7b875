// Writes JSON as a stream: commas and quotes are kept track of, nesting is up to the caller. Nothing
// is kept but one block of text, and numbers are formatted in place.
//
// More than 15 public members: one for each kind of value, and the nesting.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "symbolizer/base/file_output.h"
#include "symbolizer/base/text.h"

namespace dynprof {

// Adds nanoseconds as microseconds with three decimals: 1234567 is "1234.567".
void append_microseconds(std::string& out, std::uint64_t ns);
// Adds nanoseconds as seconds with nine decimals.
void append_seconds(std::string& out, std::uint64_t ns);
template <std::integral T>
void append_number(std::string& out, T value) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

class JsonWriter {
 public:
  explicit JsonWriter(ByteSink& sink) : out_(sink) {}

  void begin_object() { open('{'); }
  void end_object() { close('}'); }
  void begin_array() { open('['); }
  void end_array() { close(']'); }

  // `name` is ours and needs no escaping.
  void key(std::string_view name) {
    comma();
    std::string& text = out_.text();
    text += '"';
    text += name;
    text += "\":";
    comma_ = false;
  }
  void string(std::string_view value) {
    comma();
    out_.text() += '"';
    append_json_escaped(out_.text(), value);
    out_.text() += '"';
    done();
  }
  // The inside of a string that json_escape has made before.
  void escaped(std::string_view value) {
    comma();
    out_.text() += '"';
    out_.text() += value;
    out_.text() += '"';
    done();
  }
  // One whole element, valid JSON, that `append` adds to the text.
  template <class Append>
  void element(const Append& append) {
    comma();
    append(out_.text());
    done();
  }
  template <std::integral T>
  void number(T value) {
    comma();
    append_number(out_.text(), value);
    done();
  }
  void boolean(bool value) { literal(value ? "true" : "false"); }
  void null() { literal("null"); }
  void microseconds(std::uint64_t ns) {
    comma();
    append_microseconds(out_.text(), ns);
    done();
  }
  void seconds(std::uint64_t ns) {
    comma();
    append_seconds(out_.text(), ns);
    done();
  }

  // `"name":value`
  void field(std::string_view name, std::string_view value) {
    key(name);
    string(value);
  }
  void field(std::string_view name, const char* value) { field(name, std::string_view(value)); }
  template <std::integral T>
  void field(std::string_view name, T value) {
    key(name);
    if constexpr (std::same_as<T, bool>)
      boolean(value);
    else
      number(value);
  }

  // Before the next element: one line each keeps large files greppable. No meaning to JSON.
  void line_break() {
    comma();
    comma_ = false;
    out_.text() += '\n';
  }
  bool failed() const { return out_.failed(); }
  // Writes out what is held and finishes the sink.
  Result<void> finish() {
    out_.text() += '\n';
    return out_.finish();
  }

 private:
  void comma() {
    if (comma_) out_.text() += ',';
  }
  void open(char bracket) {
    comma();
    out_.text() += bracket;
    comma_ = false;
  }
  void close(char bracket) {
    out_.text() += bracket;
    done();
  }
  void literal(std::string_view text) {
    comma();
    out_.text() += text;
    done();
  }
  void done() {
    comma_ = true;
    out_.flush_if_full();
  }

  BufferedSink out_;
  bool comma_ = false;
};

}  // namespace dynprof
