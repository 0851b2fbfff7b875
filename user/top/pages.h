// The tables of `top`, one for each thing it shows: rows in the order asked for, cells not escaped yet.
#pragma once

#include <cstddef>
#include <string>

#include "user/top/model.h"
#include "user/top/table.h"

namespace dynprof {

TopTable open_table(const TopState& state, std::size_t sort);
// With `details`, columns for the cache, the phases and the reason.
TopTable finished_table(const TopState& state, std::size_t sort, bool details);
TopTable process_table(const TopState& state, std::size_t sort);
TopTable function_table(const TopState& state, std::size_t sort);

// The order of function_table() that leaves the functions that Dynamo compiled alone.
inline constexpr std::size_t kRegionsSort = 8;

// What the order number `sort` of a table is called; "" beyond the last one.
const char* open_order(std::size_t sort);
const char* finished_order(std::size_t sort);
const char* process_order(std::size_t sort);
const char* function_order(std::size_t sort);

// "4.2 s", "3:05", "2:03:00", "5 d": short, for a column.
std::string short_age(double seconds);

}  // namespace dynprof
