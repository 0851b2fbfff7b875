// The assembler includes the files, so that they stay HTML, CSS and JavaScript. mk/rules.mk names
// them as what this object is made from.
#include "symbolizer/export/html/assets.h"

#define DYNPROF_ASSET_FOLDER "symbolizer/export/html/"
#define DYNPROF_BEGIN(symbol) \
  ".global dynprof_" symbol "\n.hidden dynprof_" symbol "\ndynprof_" symbol ":\n"
#define DYNPROF_FILE(name) ".incbin \"" DYNPROF_ASSET_FOLDER name "\"\n"

__asm__(".section .rodata\n"
        // clang-format off
    DYNPROF_BEGIN("template") DYNPROF_FILE("page.html")
    DYNPROF_BEGIN("style") DYNPROF_FILE("page.css")
    DYNPROF_BEGIN("script")
    DYNPROF_FILE("base.js") DYNPROF_FILE("tables.js") DYNPROF_FILE("flame_tree.js")
    DYNPROF_FILE("flame.js") DYNPROF_FILE("timeline.js") DYNPROF_FILE("page.js")
    DYNPROF_BEGIN("end")
        // clang-format on
        ".byte 0\n"
        ".text\n");

extern "C" {
extern const char dynprof_template[], dynprof_style[], dynprof_script[], dynprof_end[];
}

namespace dynprof {

std::string_view page_template() { return {dynprof_template, dynprof_style}; }
std::string_view page_style() { return {dynprof_style, dynprof_script}; }
std::string_view page_script() { return {dynprof_script, dynprof_end}; }

}  // namespace dynprof
