// The guest ABI for C: what the host links, and the room that it asks for.
#pragma once

typedef unsigned char u8;
typedef unsigned int u32;

#define HOST(name) __attribute__((import_module("areev"), import_name(#name)))
#define GUEST(name) __attribute__((export_name(#name)))

HOST(emit) void emit(const void *bytes, u32 length);
HOST(fetch) const u8 *fetch(const void *request, u32 length);

enum { PAGE_BYTES = 65536, REPLY_NONE = -1 };

extern u8 __heap_base;
static u32 next;

// Hands out memory and never takes it back: one input and one call live no longer than the module does.
GUEST(alloc) u32 alloc(u32 length) {
    u32 start = next ? next : (u32)&__heap_base;
    u32 end = start + ((length + 7) & ~7u);
    u32 pages = __builtin_wasm_memory_size(0), needed = end / PAGE_BYTES + 1;
    if (end < start || (needed > pages && __builtin_wasm_memory_grow(0, needed - pages) == (u32)-1)) return 0;
    next = end;
    return start;
}
