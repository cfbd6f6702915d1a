//! The guest ABI for Zig: what the host links, and the room that it asks for.

const std = @import("std");

pub const allocator = std.heap.wasm_allocator;

extern "areev" fn emit(pointer: [*]const u8, length: usize) void;
extern "areev" fn fetch(pointer: [*]const u8, length: usize) i32;

/// Hands the result to the host; the last one counts.
pub fn give(output: []const u8) void {
    emit(output.ptr, output.len);
}

/// One brokered call.
pub fn call(request: []const u8) error{NoReply}![]const u8 {
    const answered = fetch(request.ptr, request.len);
    if (answered <= 0) return error.NoReply;
    const reply: [*]const u8 = @ptrFromInt(@as(usize, @intCast(answered)));
    return reply[4..][0..std.mem.readInt(u32, reply[0..4], .little)];
}

/// Exports the ABI for a tool: `comptime { areev.tool(run); }`.
pub fn tool(comptime run: fn (input: []const u8) anyerror!void) void {
    const guest = struct {
        fn alloc(length: usize) callconv(.c) usize {
            const room = allocator.alloc(u8, length) catch return 0;
            return @intFromPtr(room.ptr);
        }
        fn start(pointer: [*]const u8, length: usize) callconv(.c) void {
            run(pointer[0..length]) catch @trap();
        }
    };
    @export(&guest.alloc, .{ .name = "alloc" });
    @export(&guest.start, .{ .name = "run" });
}
