#include "symbolizer/export/dynamo_pstats.h"

#include "symbolizer/export/marshal_writer.h"

namespace dynprof {
namespace {

void key(MarshalWriter& out, const DynamoFunction& function) {
  out.begin_tuple(3);
  out.text(function.file);
  out.integer(function.first_line);
  out.text(function.name);
}

void numbers(MarshalWriter& out, std::uint64_t first, std::uint64_t second,
             const DynamoCalls& calls) {
  out.integer(static_cast<std::int64_t>(first));
  out.integer(static_cast<std::int64_t>(second));
  out.real(static_cast<double>(calls.own_ns) * 1e-9);
  out.real(static_cast<double>(calls.cumulative_ns) * 1e-9);
}

}  // namespace

std::string dynamo_pstats_bytes(const DynamoProfile& profile) {
  MarshalWriter out;
  out.begin_dict();
  for (const DynamoFunction& function : profile.functions) {
    key(out, function);
    out.begin_tuple(5);
    numbers(out, function.calls.primitive, function.calls.calls, function.calls);
    out.begin_dict();
    for (const DynamoCaller& caller : function.callers) {
      key(out, profile.functions[caller.function]);
      out.begin_tuple(4);
      numbers(out, caller.calls.calls, caller.calls.primitive, caller.calls);
    }
    out.end_dict();
  }
  out.end_dict();
  return out.take();
}

}  // namespace dynprof
