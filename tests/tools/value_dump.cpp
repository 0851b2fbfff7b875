// Reads the objects a Python process keeps in `__main__.objects` (a dict by name): for tests.
//   value_dump PID                     all of them as one line of JSON
//   value_dump PID steady NAME TIMES   reads the container NAME, whose ints count up from one to the
//                                      next, TIMES times: prints "whole N nothing N mixed N"; the
//                                      last item may not be stored yet
// An object is {"type": tp_name} with "none", "bool", "int", "float" (its bits) or "str" (UTF-8 in
// hex), or with "items", "pairs" and "attributes" as far as it has them.
#include <fmt/format.h>

#include <bit>
#include <cstdlib>
#include <string>
#include <string_view>

#include "symbolizer/base/text.h"
#include "user/target/remote_values.h"

namespace dynprof {
namespace {

constexpr std::size_t kMost = 100'000;
constexpr int kDeepest = 6;

std::string hex(std::string_view text) {
  std::string digits;
  for (char c : text) digits += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return digits;
}

class Dump {
 public:
  explicit Dump(RemoteValues& values) : values_(values) {}

  std::string object(std::uint64_t address, int depth = 0) {
    std::string name = values_.type_name(address);
    if (name.empty()) return "{}";
    std::string inside = scalar(address);
    if (inside.empty() && depth < kDeepest) inside = parts(address, depth);
    return fmt::format("{{\"type\":\"{}\"{}}}", json_escape(name), inside);
  }

 private:
  std::string scalar(std::uint64_t address) {
    RemoteValue value = values_.value(address);
    // The single readers have to agree with the common one.
    bool agree = values_.is_none(address) == (value.kind == RemoteValue::Kind::kNone);
    agree &= values_.read_bool(address).has_value() == (value.kind == RemoteValue::Kind::kBool);
    agree &= values_.read_float(address).has_value() == (value.kind == RemoteValue::Kind::kFloat);
    agree &= values_.read_str(address).has_value() == (value.kind == RemoteValue::Kind::kStr);
    if (!agree) return ",\"disagree\":1";
    switch (value.kind) {
      case RemoteValue::Kind::kNothing:
        return ",\"nothing\":1";
      case RemoteValue::Kind::kNone:
        return ",\"none\":1";
      case RemoteValue::Kind::kBool:
        return fmt::format(",\"bool\":{}", value.integer);
      case RemoteValue::Kind::kInt:
        return fmt::format(",\"int\":{}", value.integer);
      case RemoteValue::Kind::kFloat:
        return fmt::format(",\"float\":{}", std::bit_cast<std::uint64_t>(value.number));
      case RemoteValue::Kind::kStr:
        return fmt::format(",\"str\":\"{}\"", hex(value.text));
      case RemoteValue::Kind::kOther:
        return "";
    }
    return "";
  }

  std::string parts(std::uint64_t address, int depth) {
    std::string text;
    auto items = values_.list_items(address, kMost);
    if (!items) items = values_.tuple_items(address, kMost);
    if (!items) items = values_.deque_items(address, kMost);
    if (!items) items = values_.set_items(address, kMost);
    if (items) {
      text += ",\"items\":[";
      for (std::size_t i = 0; i < items->size(); ++i) {
        text += (i ? "," : "") + object((*items)[i], depth + 1);
      }
      text += "]";
    }
    if (auto pairs = values_.dict_items(address, kMost)) {
      text += ",\"pairs\":[";
      for (std::size_t i = 0; i < pairs->size(); ++i) {
        text += fmt::format("{}[{},{}]", i ? "," : "", object((*pairs)[i].key, depth + 1),
                            object((*pairs)[i].value, depth + 1));
      }
      text += "]";
    }
    return text + attributes(address, depth);
  }

  std::string attributes(std::uint64_t address, int depth) {
    auto named = values_.attributes(address, kMost);
    if (!named) return ",\"unreadable\":1";
    std::string text = ",\"attributes\":{";
    for (std::size_t i = 0; i < named->size(); ++i) {
      const NamedValue& attribute = (*named)[i];
      // The way for one name has to lead to the same object.
      bool same = values_.attribute(address, attribute.name) == attribute.value;
      text += fmt::format("{}\"{}\":{}", i ? "," : "", json_escape(attribute.name),
                          same ? object(attribute.value, depth + 1) : "\"differs\"");
    }
    return text + "}";
  }

  RemoteValues& values_;
};

void steady(RemoteValues& values, std::uint64_t object, int times) {
  int whole = 0;
  int nothing = 0;
  int mixed = 0;
  for (int i = 0; i < times; ++i) {
    auto items = values.deque_items(object, kMost);
    if (!items) items = values.list_items(object, kMost);
    if (!items) {
      if (auto pairs = values.dict_items(object, kMost)) {
        items.emplace();
        for (const DictEntry& pair : *pairs) items->push_back(pair.key);
      }
    }
    if (!items) {
      ++nothing;
      continue;
    }
    std::int64_t last = -1;
    bool counts_up = true;
    if (!items->empty()) items->pop_back();
    for (const RemoteValue& value : values.values(*items)) {
      bool next = value.kind == RemoteValue::Kind::kInt && (last < 0 || value.integer == last + 1);
      counts_up = counts_up && next;
      last = value.integer;
    }
    ++(counts_up ? whole : mixed);
  }
  fmt::print("whole {} nothing {} mixed {}\n", whole, nothing, mixed);
}

int run(int argc, char** argv) {
  if (argc != 2 && argc != 5) {
    fmt::print(stderr, "usage: value_dump PID [steady NAME TIMES]\n");
    return 2;
  }
  pid_t pid = std::atoi(argv[1]);
  auto runtime = discover_python(pid);
  if (!runtime) {
    fmt::print(stderr, "{}\n", runtime.error().what);
    return 1;
  }
  ProcessMemory memory(pid);
  RemoteObjects objects(memory, runtime->layout);
  objects.set_str_type(runtime->str_type);
  RemoteValues values(objects, *runtime);
  auto main_module = objects.find_module(runtime->main_interpreter, "__main__");
  auto held = main_module ? values.attribute(*main_module, "objects") : std::nullopt;
  if (!held) {
    fmt::print(stderr, "no __main__.objects\n");
    return 1;
  }
  if (argc == 5) {
    steady(values, objects.dict_get(*held, argv[3]).value_or(0), std::atoi(argv[4]));
    return 0;
  }
  Dump dump(values);
  auto named = values.dict_items(*held, kMost);
  if (!named) return 1;
  fmt::print("{{");
  for (std::size_t i = 0; i < named->size(); ++i) {
    fmt::print("{}\"{}\":{}", i ? "," : "", values.read_str((*named)[i].key).value_or("?"),
               dump.object((*named)[i].value));
  }
  fmt::print("}}\n");
  return 0;
}

}  // namespace
}  // namespace dynprof

int main(int argc, char** argv) { return dynprof::run(argc, argv); }
