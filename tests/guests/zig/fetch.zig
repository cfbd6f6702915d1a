//! Makes the call that its input describes, and gives the answer or why there is none.

const areev = @import("areev.zig");

comptime {
    areev.tool(fetch);
}

fn fetch(input: []const u8) !void {
    areev.give(try areev.call(input));
}
