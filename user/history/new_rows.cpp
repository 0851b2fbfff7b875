#include "user/history/new_rows.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "user/history/row_reader.h"
#include "user/target/bounded_memory.h"
#include "user/target/remote_values.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxItems = 1024;  // the deque's limit is 64, but a program may raise it
constexpr int kLooksOfView = 64;
constexpr std::size_t kMaxReads = 100'000;  // of one view
constexpr std::size_t kMaxBytes = 64u << 20;

std::uint64_t find_deque(RemoteObjects& objects, const PythonRuntime& runtime) {
  auto utils = objects.find_module(runtime.main_interpreter, "torch._dynamo.utils");
  return utils ? objects.module_get(*utils, "_compilation_metrics").value_or(0) : 0;
}

}  // namespace

// The types of torch's rows, once learnt: most of the reads of a first look are for these.
struct NewRows::View {
  View(RemoteObjects& objects, const PythonRuntime& runtime)
      : memory(objects.memory(), kMaxReads, kMaxBytes),
        bounded(memory, objects.layout()),
        values((bounded.set_str_type(objects.str_type()), bounded), runtime) {}
  BoundedMemory memory;
  RemoteObjects bounded;
  RemoteValues values;
  int looks = 0;
};

NewRows::NewRows() = default;
NewRows::NewRows(NewRows&&) noexcept = default;
NewRows& NewRows::operator=(NewRows&&) noexcept = default;
NewRows::~NewRows() = default;

std::vector<HistoryRow> NewRows::read(RemoteObjects& objects, const PythonRuntime& runtime,
                                      std::size_t ended) {
  if (!view_ || view_->memory.exhausted() || ++view_->looks > kLooksOfView)
    view_ = std::make_unique<View>(objects, runtime);
  RemoteObjects& bounded = view_->bounded;
  RemoteValues& values = view_->values;
  auto items = deque_ == 0 ? std::nullopt : values.deque_items(deque_, kMaxItems);
  if (!items) {  // the first look, or the program set another limit, which makes a new deque
    deque_ = find_deque(bounded, runtime);
    if (deque_ != 0) items = values.deque_items(deque_, kMaxItems);
  }
  if (!items || items->empty() || items->back() == newest_) return {};
  auto known = std::find(items->rbegin(), items->rend(), newest_);
  std::ptrdiff_t count = known - items->rbegin();
  if (newest_ == 0) count = std::min(count, static_cast<std::ptrdiff_t>(ended));
  auto first = items->end() - std::min<std::ptrdiff_t>(count, kRowsAtMost);
  std::vector<HistoryRow> rows;
  std::set<std::string> unread_fields;
  for (auto item = first; item != items->end(); ++item) {
    auto row = read_row(values, *item, unread_fields);
    if (!row) return rows;  // being made or freed: the next look may have it
    newest_ = *item;
    if (!is_runtime(*row)) rows.push_back(std::move(*row));
  }
  return rows;
}

}  // namespace dynprof
