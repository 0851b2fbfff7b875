/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* One row of an unwind table: from `pc` up to the next row's, the caller's registers are found by
 * `rule`. Rows are sorted by pc, no two have the same, neighbours differ in their rule, and the last
 * row of a table is DP_CFA_NONE. Used by the BPF unwinder and by user space, which builds the tables.
 *
 *   rule   bits  0..3   enum dp_cfa_kind
 *          bits  4..19  offset: signed, in units of 8 bytes (so up to 256 KiB either way); a reason
 *                       for DP_CFA_UNSUPPORTED, a threshold for DP_CFA_PLT
 *          bits 20..31  where the caller's rbp is: DP_RBP_*
 *
 * x86-64: the return address lies at CFA - 8 and the caller's rsp is the CFA, for every kind but
 * SIGNAL. A pc that was found as a return address is looked up as pc - 1, except above a SIGNAL row:
 * there it is the interrupted instruction itself. */
#ifndef DYNPROF_BPF_UNWIND_FORMAT_H
#define DYNPROF_BPF_UNWIND_FORMAT_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

struct dp_unwind_row {
  __u32 pc; /* virtual address in the file minus the table's base */
  __u32 rule;
};

/* Rows of one table; user space refuses more. */
#define DP_UNWIND_MAX_ROWS (1u << 23)

/* Where in a table the rows of one page of pcs are: `first` up to, not with, `end`. So a search looks at
 * a few rows that lie together, not at twenty all over the table. */
struct dp_unwind_page {
  __u32 first;
  __u32 end;
};
#define DP_UNWIND_PAGE_SHIFT 12
/* Halvings that find a row among those of a page, one per byte at most, and the one before them. */
#define DP_UNWIND_PAGE_STEPS 13

enum dp_cfa_kind {
  DP_CFA_NONE = 0,      /* no unwind information: not code, or code without */
  DP_CFA_RSP = 1,       /* CFA = rsp + offset */
  DP_CFA_RBP = 2,       /* CFA = rbp + offset */
  DP_CFA_DEREF_RBP = 3, /* CFA = *(rbp + offset): functions that realign their stack */
  DP_CFA_DEREF_RSP = 4, /* CFA = *(rsp + offset) */
  DP_CFA_PLT = 5,       /* CFA = rsp + 8 + ((rip & 15) >= threshold ? 8 : 0) */
  /* No CFA: with p = rsp + offset, the caller's rsp = *p, rip = *(p + 8), rbp = *(p - 40). */
  DP_CFA_SIGNAL = 6,
  DP_CFA_OUTERMOST = 7,   /* the thread began here: no caller */
  DP_CFA_UNSUPPORTED = 8, /* the reason stands in the offset: enum dp_unwind_reason */
  /* Prologue and epilogue of functions that realign their stack: other registers are known in the
   * interrupted frame only, and no call is made between these instructions. */
  DP_CFA_R10 = 9,  /* CFA = r10 + offset */
  DP_CFA_R13 = 10, /* CFA = r13 + offset */
  DP_CFA_RBX = 11, /* CFA = rbx + offset */
  /* CFA = *(rsp + offset) + 8: assembly that keeps its first rsp on the stack (OpenSSL's hashes). */
  DP_CFA_DEREF_RSP_8 = 12,
  DP_CFA_KIND_COUNT = 13,
};

/* The rbp field: 1..0x7ff are saved at CFA - 8 * field, 0x800..0xffe at rbp + 8 * (field - 0xc00). */
#define DP_RBP_SAME 0u     /* the caller's rbp is still in rbp */
#define DP_RBP_RBP 0x800u  /* first value that means "relative to rbp" */
#define DP_RBP_ZERO 0xc00u /* *(rbp + 0) */
#define DP_RBP_LOST 0xfffu /* not known: rules that need rbp fail from here on */

/* Why a row is DP_CFA_UNSUPPORTED. DP_UNWIND_REASON(id, name, sentence) */
#define DP_UNWIND_REASONS(DP_UNWIND_REASON)                                                       \
  DP_UNWIND_REASON(CFA_REGISTER, "cfa_register", "frames based on an unusual register")           \
  DP_UNWIND_REASON(CFA_EXPRESSION, "cfa_expression", "frames found by an unusual expression")     \
  DP_UNWIND_REASON(CFA_OFFSET, "cfa_offset", "frames too large, or not of whole words")           \
  DP_UNWIND_REASON(RETURN_ADDRESS, "return_address", "return addresses kept in an unusual place") \
  DP_UNWIND_REASON(SIGNAL_FRAME, "signal_frame", "signal frames of an unknown layout")            \
  DP_UNWIND_REASON(BAD_PROGRAM, "bad_program", "unwind information that is damaged")              \
  DP_UNWIND_REASON(PROGRAM_LIMIT, "program_limit", "unwind information beyond our bounds")        \
  DP_UNWIND_REASON(BAD_CIE, "bad_cie", "unwind information of an unknown kind")                   \
  DP_UNWIND_REASON(TABLE_LIMIT, "table_limit", "code beyond the largest table we make")

enum dp_unwind_reason {
#define DP_UNWIND_REASON_ID(id, name, sentence) DP_UNWIND_##id,
  DP_UNWIND_REASONS(DP_UNWIND_REASON_ID)
#undef DP_UNWIND_REASON_ID
      DP_UNWIND_REASON_COUNT
};

static inline __u32 dp_unwind_kind(__u32 rule) { return rule & 15u; }

/* Bytes; of every kind but PLT and UNSUPPORTED. */
static inline __s32 dp_unwind_offset(__u32 rule) { return ((__s32)(rule << 12) >> 16) * 8; }

/* PLT: its threshold; UNSUPPORTED: its enum dp_unwind_reason. */
static inline __u32 dp_unwind_argument(__u32 rule) { return (rule >> 4) & 0xffffu; }

static inline __u32 dp_unwind_rbp(__u32 rule) { return rule >> 20; }

/* Whether a rbp field other than SAME and LOST is relative to rbp (else to the CFA), and by how much:
 * the caller's rbp is read at that address. */
static inline int dp_rbp_from_rbp(__u32 field) { return field >= DP_RBP_RBP; }
static inline __s32 dp_rbp_offset(__u32 field) {
  return field >= DP_RBP_RBP ? ((__s32)field - (__s32)DP_RBP_ZERO) * 8 : -(__s32)field * 8;
}

#ifdef __cplusplus
static_assert(sizeof(struct dp_unwind_row) == 8 && sizeof(struct dp_unwind_page) == 8);
#else
_Static_assert(sizeof(struct dp_unwind_row) == 8, "dp_unwind_row");
_Static_assert(sizeof(struct dp_unwind_page) == 8, "dp_unwind_page");
#endif

#endif
