// Result<T>: a value or an Error, in the shape of std::expected (which C++20 on g++ 12 lacks).
// No exceptions cross a module; every function that can fail says so in its type.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <variant>

namespace dynprof {

// `what` names what failed with its pid, path or number; `hint` is one command or sentence that
// helps, or empty. `exit_code` is the process status if the error ends the program (1: run-time
// failure, 2: usage).
struct Error {
  std::string what;
  std::string hint;
  int errno_value = 0;
  int exit_code = 1;
};

// The text of an errno value; strerror's buffer is per thread in glibc >= 2.32.
inline std::string errno_text(int value) { return std::strerror(value); }

inline Error error(std::string what, std::string hint = {}) {
  return Error{std::move(what), std::move(hint)};
}

// "<what>: <strerror(errno)>"; call it before anything else can change errno.
inline Error errno_error(std::string what, std::string hint = {}) {
  int value = errno;
  return Error{std::move(what) + ": " + errno_text(value), std::move(hint), value};
}

// A broken invariant of ours, never a condition of the outside world. On in release builds too.
#define DYNPROF_CHECK(condition)                                                              \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      std::fprintf(stderr, "bug: %s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                           \
    }                                                                                         \
  } while (0)

template <class T = void>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& value() & {
    DYNPROF_CHECK(has_value());
    return std::get<0>(state_);
  }
  const T& value() const& {
    DYNPROF_CHECK(has_value());
    return std::get<0>(state_);
  }
  T&& value() && {
    DYNPROF_CHECK(has_value());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    DYNPROF_CHECK(!has_value());
    return std::get<1>(state_);
  }
  Error&& error() && {
    DYNPROF_CHECK(!has_value());
    return std::get<1>(std::move(state_));
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool has_value() const { return error_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  const Error& error() const& {
    DYNPROF_CHECK(!has_value());
    return std::get<1>(error_);
  }
  Error&& error() && {
    DYNPROF_CHECK(!has_value());
    return std::get<1>(std::move(error_));
  }

 private:
  std::variant<std::monostate, Error> error_;
};

// TRY(expr): leaves the function with expr's error. ASSIGN_OR_RETURN(auto x, expr): else takes it.
#define DYNPROF_CONCAT2(a, b) a##b
#define DYNPROF_CONCAT(a, b) DYNPROF_CONCAT2(a, b)
#define TRY(expression)                                \
  do {                                                 \
    if (auto try_result = (expression); !try_result) { \
      return std::move(try_result).error();            \
    }                                                  \
  } while (0)
#define ASSIGN_OR_RETURN(declaration, expression) \
  ASSIGN_OR_RETURN_2(DYNPROF_CONCAT(assign_result_, __LINE__), declaration, expression)
#define ASSIGN_OR_RETURN_2(result, declaration, expression) \
  auto result = (expression);                               \
  if (!result) return std::move(result).error();            \
  declaration = std::move(result).value()

}  // namespace dynprof
