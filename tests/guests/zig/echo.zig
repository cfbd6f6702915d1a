//! Gives its input back.

const areev = @import("areev.zig");

comptime {
    areev.tool(echo);
}

fn echo(input: []const u8) !void {
    areev.give(input);
}
