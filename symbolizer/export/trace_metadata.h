// A metadata event of a chrome trace: names a process or a thread, or gives it a place.
#pragma once

#include <cstdint>

#include "symbolizer/base/json_writer.h"

namespace dynprof {

template <class Value>
void write_metadata(JsonWriter& json, const char* name, std::int32_t pid, std::int64_t tid,
                    const char* argument, const Value& value) {
  json.line_break();
  json.begin_object();
  json.field("ph", "M");
  json.field("name", name);
  json.field("pid", pid);
  json.field("tid", tid);
  json.field("ts", 0);
  json.key("args");
  json.begin_object();
  json.field(argument, value);
  json.end_object();
  json.end_object();
}

}  // namespace dynprof
