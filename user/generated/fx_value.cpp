#include "user/generated/fx_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "user/generated/fx_callable.h"

namespace dynprof {
namespace {

constexpr int kMaxDepth = 8;
constexpr std::size_t kMaxText = 1024;
constexpr std::size_t kMaxDimensions = 64;

// Behind the object's head, torch 2.6 to 2.15: THPDtype and THPLayout are an enum of one byte and the name,
// THPMemoryFormat the same; THPDevice is c10::Device, a type and an index of one byte each.
constexpr std::uint32_t kNameAfterEnum = 1;
constexpr std::size_t kFixedName = 65;
// c10::DeviceType
constexpr std::array<std::pair<std::uint8_t, std::string_view>, 5> kDevices = {
    {{0, "cpu"}, {1, "cuda"}, {9, "meta"}, {12, "xpu"}, {13, "mps"}}};

// As torch.fx.graph abbreviates them.
constexpr auto kTypes = std::to_array<std::pair<std::string_view, std::string_view>>(
    {{"torch.float32", "f32"},
     {"torch.float64", "f64"},
     {"torch.float16", "f16"},
     {"torch.bfloat16", "bf16"},
     {"torch.float8_e4m3fn", "f8e4m3fn"},
     {"torch.float8_e5m2", "f8e5m2"},
     {"torch.float8_e4m3fnuz", "f8e4m3fnuz"},
     {"torch.float8_e5m2fnuz", "f8e5m2fnuz"},
     {"torch.float8_e8m0fnu", "f8e8m0fnu"},
     {"torch.float4_e2m1fn_x2", "f4e2m1fnx2"},
     {"torch.complex32", "c32"},
     {"torch.complex64", "c64"},
     {"torch.complex128", "c128"},
     {"torch.int8", "i8"},
     {"torch.int16", "i16"},
     {"torch.int32", "i32"},
     {"torch.int64", "i64"},
     {"torch.bool", "b8"},
     {"torch.uint8", "u8"},
     {"torch.uint16", "u16"},
     {"torch.uint32", "u32"},
     {"torch.uint64", "u64"}});

std::string quoted(std::string_view text) {
  std::string result = "'";
  for (char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

// As repr() of a float.
std::string float_text(double number) {
  std::string text = fmt::format("{}", number);
  const bool plain = std::isfinite(number) && text.find_first_of(".e") == std::string::npos;
  return plain ? text + ".0" : text;
}

}  // namespace

std::string FxValues::text(std::uint64_t object) {
  const std::size_t room = std::min(kMaxItems, budget_);
  room_ = room;
  std::string found = text(object, 0);
  budget_ -= room - room_;
  return found;
}

std::string FxValues::text(std::uint64_t object, int depth) {
  if (depth > kMaxDepth || room_ == 0) return "...";
  --room_;
  RemoteValue value = python_.values().value(object, kMaxText);
  switch (value.kind) {
    case RemoteValue::Kind::kNothing:
      return "<unreadable>";
    case RemoteValue::Kind::kNone:
      return "None";
    case RemoteValue::Kind::kBool:
      return value.integer != 0 ? "True" : "False";
    case RemoteValue::Kind::kInt:
      return fmt::format("{}", value.integer);
    case RemoteValue::Kind::kFloat:
      return float_text(value.number);
    case RemoteValue::Kind::kStr:
      return quoted(value.text);
    case RemoteValue::Kind::kOther:
      break;
  }
  if (python_.values().is_a(object, "Node")) {
    auto name = nodes_.attribute(object, "name");
    return name ? python_.values().read_str(*name, kMaxText).value_or("?") : "?";
  }
  if (value.text == "torch.dtype" || value.text == "torch.layout" ||
      value.text == "torch.memory_format") {
    std::string name = fixed_name(object, kNameAfterEnum);
    return name.starts_with("torch.") ? name : "torch." + name;
  }
  if (value.text == "torch.device") return device(object);
  if (value.text == "ellipsis") return "Ellipsis";
  return container(object, value.text, depth);
}

std::string FxValues::container(std::uint64_t object, const std::string& type, int depth) {
  RemoteValues& values = python_.values();
  auto joined = [&](const std::vector<std::uint64_t>& items) {
    std::string text;
    for (std::uint64_t item : items) {
      text += (text.empty() ? "" : ", ") + this->text(item, depth + 1);
      if (room_ == 0) break;
    }
    return text;
  };
  if (type == "slice") {  // PySliceObject: start, stop, step
    std::vector<std::uint64_t> parts;
    for (std::uint32_t i = 0; i < 3; ++i) {
      const std::uint64_t field = object + python_.objects().layout().object_size + 8 * i;
      parts.push_back(values.memory().read_pointer(field).value_or(0));
    }
    return fmt::format("slice({})", joined(parts));
  }
  if (auto items = values.tuple_items(object, kMaxItems))
    return fmt::format("({}{})", joined(*items), items->size() == 1 ? "," : "");
  if (auto items = values.list_items(object, kMaxItems)) return fmt::format("[{}]", joined(*items));
  if (auto entries = values.dict_items(object, kMaxItems)) {
    std::string text;
    for (const DictEntry& entry : *entries) {
      text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", this->text(entry.key, depth + 1),
                          this->text(entry.value, depth + 1));
      if (room_ == 0) break;
    }
    return "{" + text + "}";
  }
  return callable_name(python_, object);
}

std::string FxValues::fixed_name(std::uint64_t object, std::uint32_t offset) {
  std::array<std::byte, kFixedName> bytes{};
  const std::uint64_t head = object + python_.objects().layout().object_size;
  if (!python_.objects().memory().read(head + offset, bytes)) return "?";
  const char* first = reinterpret_cast<const char*>(bytes.data());
  std::string name(first, std::find(first, first + bytes.size(), '\0'));
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
  return plain && !name.empty() ? name : "?";
}

std::string FxValues::device(std::uint64_t object) {
  const std::uint64_t head = object + python_.objects().layout().object_size;
  auto type = python_.objects().memory().read<std::uint8_t>(head);
  auto index = python_.objects().memory().read<std::int8_t>(head + 1);
  auto known = std::find_if(kDevices.begin(), kDevices.end(),
                            [&](const auto& device) { return type && device.first == *type; });
  if (!index || known == kDevices.end()) return "device(?)";
  if (*index < 0) return fmt::format("device(type='{}')", known->second);
  return fmt::format("device(type='{}', index={})", known->second, *index);
}

// Of ints and SymInts; of the latter those that are a plain symbol have a name, SymInt.node._expr.name.
std::string FxValues::sizes(std::uint64_t tuple) {
  auto items = python_.values().tuple_items(tuple, kMaxDimensions);
  if (!items) return "?";
  std::string text;
  for (std::uint64_t item : *items) {
    std::string size = "?";
    if (auto number = python_.values().read_int(item)) {
      size = fmt::format("{}", *number);
    } else if (auto name = python_.attribute(item, {"node", "_expr", "name"})) {
      size = python_.values().read_str(*name, kMaxText).value_or("?");
    }
    text += (text.empty() ? "" : ", ") + size;
  }
  return text;
}

std::string FxValues::tensor_type(std::uint64_t tensor_metadata) {
  RemoteValues& values = python_.values();
  if (!values.is_a(tensor_metadata, "TensorMetadata")) return "";
  auto dtype = values.attribute(tensor_metadata, "dtype");
  auto shape = values.attribute(tensor_metadata, "shape");
  auto strides = values.attribute(tensor_metadata, "stride");
  if (!dtype || !shape || !strides) return "";
  std::string name = text(*dtype);
  auto known = std::find_if(kTypes.begin(), kTypes.end(),
                            [&](const auto& type) { return type.first == name; });
  return fmt::format("{}[{}][{}]", known != kTypes.end() ? known->second : name, sizes(*shape),
                     sizes(*strides));
}

}  // namespace dynprof
